//! Changes that share a sync.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jiff::Timestamp;
use setpoint_env::panic_text;
use tokio::sync::oneshot;

use super::super::state::State;
use super::super::view::View;
use super::super::write::Write;
use super::super::{Change, CommitError, Key, NotStored, Record, Revision};
use super::{health, row};

/// How many changes share one sync at most.
pub(super) const CHANGES: usize = 512;
/// How many bytes of values share one sync, about.
const BYTES: usize = 8 << 20;

pub(super) type Outcome = Result<Arc<Record>, CommitError>;

/// Something for the writer to do.
pub(super) enum Job {
    Commit(Change, Timestamp, oneshot::Sender<Outcome>),
    /// Something is retired, and nobody waits for it to be removed.
    Tidy,
    /// Nothing is taken after this; the answer comes when the file is closed.
    Close(oneshot::Sender<()>),
}

/// Who waits for a change, and what to tell them once it is durable.
pub(super) struct Answer {
    sender: oneshot::Sender<Outcome>,
    outcome: Outcome,
}

impl Answer {
    pub(super) fn send(self) {
        // Who has stopped waiting needs no answer.
        let _gone = self.sender.send(self.outcome);
    }

    /// Tells that this write was not stored after all, also to those who were refused because of it.
    pub(super) fn refuse(answers: &mut [Answer], write: &Write, why: &NotStored) {
        for Answer { outcome, .. } in answers {
            let is_concerned = match outcome {
                Ok(record) => Arc::ptr_eq(record, &write.record),
                Err(CommitError::Conflict { current: Some(record) }) => Arc::ptr_eq(record, &write.record),
                Err(CommitError::Conflict { current: None }) => write.remaining().is_none(),
                Err(CommitError::NotStored(_)) => false,
            };
            if is_concerned {
                *outcome = Err(CommitError::NotStored(why.clone()));
            }
        }
    }
}

/// Changes that share a sync, checked in order as if each of them were there already.
pub(super) struct Batch<'a> {
    view: &'a View,
    revision: Revision,
    pub(super) writes: Vec<Write>,
    /// What the writes leave of the records that they change.
    changed: HashMap<Key, Option<Arc<Record>>>,
    pub(super) answers: Vec<Answer>,
    pub(super) closing: Vec<oneshot::Sender<()>>,
    bytes: usize,
    pub(super) panics: u64,
}

impl Batch<'_> {
    pub(super) fn new(view: &View) -> Batch<'_> {
        Batch {
            view,
            revision: view.read(State::revision),
            writes: Vec::new(),
            changed: HashMap::new(),
            answers: Vec::new(),
            closing: Vec::new(),
            bytes: 0,
            panics: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.answers.len() < CHANGES && self.bytes < BYTES && self.closing.is_empty()
    }

    pub(super) fn add(&mut self, job: Job) {
        match job {
            Job::Commit(change, now, sender) => {
                // Safe to go on after a panic: a change is taken in by the last thing that its check does.
                let checked = catch_unwind(AssertUnwindSafe(|| self.check(change, now)));
                let outcome = checked.unwrap_or_else(|panic| {
                    self.panics += 1;
                    tracing::error!(panic = panic_text(&*panic), "the storage writer panicked over a change");
                    Err(health::refused("the server panicked while it checked this change").into())
                });
                self.answers.push(Answer { sender, outcome });
            }
            Job::Close(sender) => self.closing.push(sender),
            Job::Tidy => {}
        }
    }

    fn check(&mut self, change: Change, now: Timestamp) -> Outcome {
        row::check(&change.key).map_err(|error| health::refused(error.to_string()))?;
        let current = match self.changed.get(&change.key) {
            Some(changed) => changed.clone(),
            None => self.view.read(|state| state.find(&change.key).cloned()),
        };
        let write = Write::new(change, current.as_ref(), self.revision + 1, now)?;
        let record = Arc::clone(&write.record);
        self.revision = record.revision;
        self.bytes += record.value.len();
        self.changed.insert(write.key.clone(), write.remaining().cloned());
        self.writes.push(write);
        Ok(record)
    }
}
