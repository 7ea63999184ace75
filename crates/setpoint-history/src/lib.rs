//! A consistency checker for API servers: it records what clients observe, and checks that a correct server could have responded
//! like this.
//!
//! - [`Load`] runs clients and watchers that follow a seed, against any server that a [`kube::Client`] reaches.
//! - [`History`] is the recording: every [`Operation`] with its start, end and outcome, and every [`Watch`].
//! - [`check`] compares a history with the guarantees of the API. It explains each [`Violation`] by the few operations that
//!   contradict each other.
//!
//! In this history a create is acknowledged at time 20, and a read that starts at time 30 does not find the object:
//!
//! ```
//! use setpoint_history::{Call, Fields, Fresh, History, Item, Key, Mark, Operation, Outcome, Promise, State, check};
//!
//! let (key, mark) = (Key(1), Mark { client: 0, number: 1 });
//! let item = Item { key, version: 7, state: State { mark, previous: None, uid: 1, fields: Fields::default() } };
//! let create = Operation { mark, call: Call::Create { key }, start: 10, end: 20, outcome: Outcome::Written(item) };
//! let read = Operation {
//!     mark: Mark { client: 1, number: 1 },
//!     call: Call::Get { key, fresh: Fresh::Latest },
//!     start: 30,
//!     end: 40,
//!     outcome: Outcome::NotFound,
//! };
//! let history = History { operations: vec![create, read], ..History::default() };
//!
//! let verdict = check(&history);
//! assert_eq!(verdict.violations[0].promise, Promise::Linearizable, "it was created before the read began");
//! ```

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod check;
mod client;
mod clock;
mod history;
mod load;
pub mod model;
mod object;
mod operation;
mod resource;
mod select;
mod tally;
mod violation;
mod watch;
mod watcher;
mod wire;

pub use check::{Verdict, check};
pub use history::History;
pub use load::{Load, NoAnswer, Until};
pub use object::{Fields, Item, Key, Mark, Moment, State, Version};
pub use operation::{Call, Continue, Fresh, Operation, Outcome};
pub use resource::Resource;
pub use select::Select;
pub use tally::Tally;
pub use violation::{Promise, Violation};
pub use watch::{Ended, Event, From, Watch};
