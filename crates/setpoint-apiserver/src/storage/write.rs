//! A change that has passed its check.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use setpoint_env::Later;

use super::{Action, Change, CommitError, Expect, Key, Record, Revision};

/// A change that will be committed: its expectation holds, and it has a revision.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub key: Key,
    pub record: Arc<Record>,
    pub effect: Effect,
}

/// What a write leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The record, until it expires.
    Put { expires: Option<Timestamp> },
    /// Nothing.
    Delete,
}

impl Write {
    /// Checks a change against the record that is there, and gives it its revision. `now` is when its time to live begins.
    pub(super) fn new(
        change: Change,
        current: Option<&Arc<Record>>,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Write, CommitError> {
        let holds = match change.expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.is_some_and(|record| record.revision == revision),
        };
        if !holds {
            return Err(CommitError::Conflict { current: current.cloned() });
        }
        let (value, effect) = match (change.action, current) {
            (Action::Put { value, ttl }, _) => {
                (value, Effect::Put { expires: ttl.map(|ttl| now.later(ttl)) })
            }
            (Action::Delete, Some(current)) => (current.value.clone(), Effect::Delete),
            // What is not there cannot be removed.
            (Action::Delete, None) => return Err(CommitError::Conflict { current: None }),
        };
        let record = Arc::new(Record::new(change.key.path.clone(), revision, value));
        Ok(Write { key: change.key, record, effect })
    }

    /// The same write with another value.
    pub(super) fn with_value(self, value: Bytes) -> Write {
        let record = Arc::new(Record::new(self.key.path.clone(), self.record.revision, value));
        Write { record, ..self }
    }

    /// The record that is there after this write.
    pub(super) fn remaining(&self) -> Option<&Arc<Record>> {
        (self.effect != Effect::Delete).then_some(&self.record)
    }
}
