//! Test harness: an API server on virtual time with injected faults.

mod connection_error;
mod faults;
mod hash;
mod request;
mod trace;

pub use connection_error::ConnectionError;
pub use faults::{
    Body, Effect, FaultKind, FaultLayer, FaultService, Faults, Fired, Match, On, Refusal, Rule, Swarm,
};
pub use request::{RequestInfo, Verb};
pub use trace::{Entry, Trace, What};
