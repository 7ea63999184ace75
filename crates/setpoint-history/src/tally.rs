//! How many calls of a kind came to what.

use std::fmt;

use crate::operation::Outcome;
use crate::watch::{Ended, Watch};

/// How many calls of a kind came to what. A server that does nothing keeps every promise: this shows that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that did what they were to do. A watch did if it told anything.
    pub done: usize,
    /// Those that found an object which was about to go.
    pub leaving: usize,
    /// Those that found no object.
    pub not_found: usize,
    /// Those that found one where none should be.
    pub already_exists: usize,
    /// Those that found another version.
    pub conflicts: usize,
    /// Those whose version was no longer there.
    pub expired: usize,
    /// Those that were refused for another reason.
    pub refused: usize,
    /// Those that were answered with 500 or more.
    pub failed: usize,
    /// Those without an answer.
    pub unanswered: usize,
    /// Those whose answer cannot be read.
    pub unreadable: usize,
    /// Watches that were cut before they told anything.
    pub cut: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Written(_) | Outcome::Deleted(_) | Outcome::Found(_) | Outcome::Listed { .. } => {
                &mut self.done
            }
            Outcome::Leaving => &mut self.leaving,
            Outcome::NotFound => &mut self.not_found,
            Outcome::AlreadyExists => &mut self.already_exists,
            Outcome::Conflict => &mut self.conflicts,
            Outcome::Expired => &mut self.expired,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Unknown => &mut self.unanswered,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Unreadable(_) => &mut self.unreadable,
        } += 1;
    }

    pub(crate) fn count_watch(&mut self, watch: &Watch) {
        *match &watch.ended {
            Ended::Failed(500..) => &mut self.failed,
            Ended::Failed(_) => &mut self.refused,
            Ended::NoAnswer => &mut self.unanswered,
            Ended::Unreadable(_) => &mut self.unreadable,
            _ if !watch.told.is_empty() => &mut self.done,
            Ended::Expired => &mut self.expired,
            Ended::Closed | Ended::Stuck(_) => &mut self.cut,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.parts().iter().map(|(count, _)| count).sum()
    }

    /// Those of which nobody knows whether they were done.
    pub fn unknown(&self) -> usize {
        self.failed + self.unanswered
    }

    fn parts(&self) -> [(usize, &'static str); 11] {
        [
            (self.done, "done"),
            (self.leaving, "of what was about to go"),
            (self.not_found, "not found"),
            (self.already_exists, "already there"),
            (self.conflicts, "conflicts"),
            (self.expired, "expired"),
            (self.refused, "refused"),
            (self.failed, "failed"),
            (self.unanswered, "without an answer"),
            (self.unreadable, "unreadable"),
            (self.cut, "cut before the first event"),
        ]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, name) = self.parts()[0];
        write!(f, "{done} {name}")?;
        let rest = self.parts().into_iter().skip(1).filter(|(count, _)| *count > 0);
        rest.into_iter().try_for_each(|(count, name)| write!(f, ", {count} {name}"))
    }
}
