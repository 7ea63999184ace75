//! All that clients have asked a server, and what they were told.

use crate::object::Moment;
use crate::operation::{Operation, Outcome};
use crate::resource::Resource;
use crate::watch::{Ended, Watch};

/// All that clients have asked a server about the objects of one namespace, and what they were told.
///
/// The moments are of one clock: an operation that ended at a smaller moment than another began was over by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What the objects are.
    pub resource: Resource,
    /// Reads and writes, in any order.
    pub operations: Vec<Operation>,
    /// Watches, in any order.
    pub watches: Vec<Watch>,
}

impl History {
    /// What was known at a moment: of operations under way nobody knows the outcome.
    #[must_use]
    pub fn until(&self, moment: Moment) -> History {
        let begun = self.operations.iter().filter(|operation| operation.start <= moment);
        let operations = begun
            .filter(|operation| operation.end <= moment || operation.call.changes())
            .map(|operation| match operation.end <= moment {
                true => operation.clone(),
                false => Operation { outcome: Outcome::Unknown, ..operation.clone() },
            })
            .collect();
        let begun = self.watches.iter().filter(|watch| watch.start <= moment);
        let watches = begun
            .map(|watch| {
                let told: Vec<_> = watch.told.iter().copied().filter(|(at, _)| *at <= moment).collect();
                let whole = told.len() == watch.told.len();
                let ended = if whole { watch.ended.clone() } else { Ended::Closed };
                Watch { told, ended, ..watch.clone() }
            })
            .collect();
        History { resource: self.resource, operations, watches }
    }

    /// The end of every operation, in order.
    pub fn ends(&self) -> Vec<Moment> {
        let mut ends: Vec<_> = self.operations.iter().map(|operation| operation.end).collect();
        ends.sort_unstable();
        ends
    }
}
