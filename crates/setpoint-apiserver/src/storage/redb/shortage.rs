//! What is done while the disk is full.
//!
//! The reserve is given up, so that there is room for changes that make room. The file gives up its history (memory keeps
//! it, so watches go on): then a delete frees the object at once, and needs a few pages only.

use std::slice;

use super::super::Record;
use super::super::write::{Effect, Write};
use super::fault::Fault;
use super::health::Health;
use super::reserve;
use super::retired::Retired;
use super::worker::{Trouble, Worker};

/// How much larger an update may make an object: enough to mark it for deletion, or to renew a lease.
const GROWTH: usize = 256;
/// How much larger all of them together may make the store.
const TOTAL_GROWTH: usize = 256 << 10;
/// What an update may have at most: all of it is written again.
const LARGEST: usize = 64 << 10;
/// How many rows are removed at once. Each of them may be in a page that is written again.
const STEP: usize = 512;

/// The disk is full.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// Whether the file has given up its history.
    pub(super) is_stripped: bool,
    /// What was freed within the file since it was last made shorter, about.
    freed: u64,
    /// How often that was in vain.
    attempts: u32,
    grown: usize,
}

impl Shortage {
    /// Whether a write makes room, or needs next to none.
    pub(super) fn allows(&self, write: &Write, current: Option<&Record>) -> bool {
        let size = write.record.value.len();
        match (write.effect, current) {
            (Effect::Delete, _) => true,
            (Effect::Put { .. }, Some(current)) => {
                let growth = size.saturating_sub(current.value.len());
                size <= LARGEST && growth <= GROWTH && self.grown + growth <= TOTAL_GROWTH
            }
            (Effect::Put { .. }, None) => false,
        }
    }

    /// Notes what a write has done.
    pub(super) fn stored(&mut self, write: &Write, current: Option<&Record>) {
        let before = current.map_or(0, |record| record.value.len());
        match write.effect {
            Effect::Delete => self.freed(before),
            Effect::Put { .. } => self.grown += write.record.value.len().saturating_sub(before),
        }
    }

    fn freed(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes as u64);
    }

    /// Whether making the file shorter could be enough to go on as usual. It takes its time, so it is tried after twice
    /// as much each time.
    fn is_worth_shrinking(&mut self) -> bool {
        let is_worth = self.freed >= reserve::MARGIN << self.attempts.min(10);
        if is_worth {
            (self.freed, self.attempts) = (0, self.attempts + 1);
        }
        is_worth
    }
}

impl Worker {
    /// The disk is full.
    pub(super) fn run_short(&mut self) {
        self.file.release();
        if self.shortage.is_none() {
            tracing::error!(
                "the disk of the store is full; until there is room, only deletes and small updates are accepted"
            );
            self.shortage = Some(Shortage::default());
            self.health.send_replace(Health::Full);
        }
    }

    /// Makes one write durable in a file that has no history.
    pub(super) fn store_bare(&mut self, write: &Write, current: Option<&Record>) -> Result<(), Trouble> {
        let retired = Retired::at_once(write, current.map(|record| record.revision));
        let rows = if write.effect == Effect::Delete { &[] } else { slice::from_ref(write) };
        self.commit(rows, Some(write.record.revision), &retired)?;
        if let Some(shortage) = &mut self.shortage {
            shortage.stored(write, current);
        }
        Ok(())
    }

    /// Takes history out of the file, step by step. False if there was no room for a step.
    pub(super) fn strip(&mut self) -> Result<bool, Fault> {
        let mut gone = std::mem::take(&mut *self.retired.lock());
        let mut freed = 0;
        self.view.read(|state| {
            state.each_event(|collection, event| {
                gone.add(collection, event);
                freed += event.previous.as_ref().map_or(0, |record| record.value.len());
            });
        });
        let rows = std::mem::take(&mut gone.rows);
        let mut steps = vec![gone];
        steps.extend(rows.chunks(STEP).map(|rows| Retired { rows: rows.to_vec(), ..Retired::default() }));
        let mut steps = steps.into_iter();
        while let Some(step) = steps.next() {
            match self.commit(&[], None, &step) {
                Ok(()) => {}
                Err(Trouble::Lost(fault)) => return Err(fault),
                Err(_) => {
                    let mut retired = self.retired.lock();
                    retired.put_back(step);
                    steps.for_each(|step| retired.put_back(step));
                    return Ok(false);
                }
            }
        }
        if let Some(shortage) = &mut self.shortage {
            shortage.is_stripped = true;
            shortage.freed(freed);
        }
        Ok(true)
    }

    /// Goes on as usual if there is room again.
    pub(super) fn ease(&mut self) -> Result<(), Fault> {
        let Some(shortage) = &mut self.shortage else { return Ok(()) };
        let mut has_room = self.file.reserve().is_ok();
        if !has_room && shortage.is_worth_shrinking() {
            if let Err(fault) = self.file.shrink() {
                return match self.judge(fault) {
                    Trouble::Lost(fault) => Err(fault),
                    _ => Ok(()),
                };
            }
            has_room = self.file.reserve().is_ok();
        }
        if has_room {
            tracing::warn!("the disk of the store has room again");
            self.shortage = None;
            self.health.send_replace(Health::Well);
        }
        Ok(())
    }
}
