//! A reconcile that runs, for those who listen.

use tokio::time::Instant;

use super::{Facts, LoopEvent, Name, ReconcileResult};
use crate::{ObjectKey, Reasons};

/// Tells the start and the end of a reconcile; the end also if it is dropped halfway.
pub(crate) struct Reconciling<'a> {
    facts: &'a Facts,
    controller: &'a Name,
    key: ObjectKey,
    id: u64,
    started: Instant,
    is_over: bool,
}

impl<'a> Reconciling<'a> {
    pub(crate) fn begin(
        (facts, controller, key): (&'a Facts, &'a Name, ObjectKey),
        id: u64,
        reasons: &Reasons,
        retries: u32,
    ) -> Reconciling<'a> {
        facts.tell(|| LoopEvent::ReconcileStarted {
            controller: controller.clone(),
            key: key.clone(),
            id,
            reasons: reasons.clone(),
            retries,
        });
        Reconciling { facts, controller, key, id, started: Instant::now(), is_over: false }
    }

    pub(crate) fn end(mut self, result: impl FnOnce() -> ReconcileResult) {
        self.is_over = true;
        self.tell(result);
    }

    fn tell(&self, result: impl FnOnce() -> ReconcileResult) {
        self.facts.tell(|| LoopEvent::ReconcileEnded {
            controller: self.controller.clone(),
            key: self.key.clone(),
            id: self.id,
            result: result(),
            took: self.started.elapsed(),
        });
    }
}

impl Drop for Reconciling<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.tell(|| ReconcileResult::CutOff);
        }
    }
}
