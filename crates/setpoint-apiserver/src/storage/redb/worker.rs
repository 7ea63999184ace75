//! What the writing thread does with each batch.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use setpoint_env::{panic_text, watch};
use tokio::sync::mpsc;

use super::super::state::State;
use super::super::view::View;
use super::super::write::Write;
use super::super::{Field, Key, NotStored};
use super::batch::{Answer, Batch, Job};
use super::fault::Fault;
use super::file::File;
use super::health::{self, Health};
use super::retired::Retired;
use super::shortage::Shortage;

/// What runs on the thread.
pub(super) struct Worker {
    pub(super) file: File,
    pub(super) view: View,
    pub(super) retired: Arc<Mutex<Retired>>,
    pub(super) shortage: Option<Shortage>,
    /// What the last commit wrote, if it failed and the file could not be asked yet whether it came through.
    pub(super) undecided: Vec<Write>,
    pub(super) health: watch::Sender<Health>,
    pub(super) panics: Arc<AtomicU64>,
}

/// Why a commit failed.
pub(super) enum Trouble {
    /// There was no room for it.
    Full,
    /// It made us panic.
    Panic(String),
    /// The file cannot be trusted any more.
    Lost(Fault),
}

impl Worker {
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        if self.file.reserve().is_err() {
            self.run_short();
        }
        while let Some(job) = queue.blocking_recv() {
            // Where processors are few, those who are about to hand over a change do so first: a commit costs more than
            // the changes in it. Where nobody waits for a processor, this is nothing.
            std::thread::yield_now();
            // What panics here is no single change: those are guarded one by one.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.turn(job, &mut queue)));
            let lost = |panic: Box<_>| Err(Fault::Panicked(panic_text(&*panic).to_owned()));
            match outcome.unwrap_or_else(lost) {
                Ok(false) => {}
                Ok(true) => break,
                Err(fault) => {
                    self.stop(&fault);
                    break;
                }
            }
        }
        // Who was about to hand over a change when it ended must not wait for an answer.
        queue.close();
        while queue.blocking_recv().is_some() {}
    }

    /// Settles one batch. True if it was the last one.
    fn turn(&mut self, job: Job, queue: &mut mpsc::Receiver<Job>) -> Result<bool, Fault> {
        // Before the batch is checked: what the file has to tell may change the outcome.
        let usable = match self.prepare() {
            Ok(usable) => usable,
            Err(fault) => return Err(self.announced(fault)),
        };
        let view = self.view.clone();
        let mut batch = Batch::new(&view);
        batch.add(job);
        while self.shortage.is_none()
            && batch.has_room()
            && let Ok(job) = queue.try_recv()
        {
            batch.add(job);
        }
        let Batch { writes, mut answers, closing, panics, .. } = batch;
        self.panics.fetch_add(panics, Ordering::Relaxed);
        let settled = if usable {
            self.settle(writes, &mut answers)
        } else {
            writes.iter().for_each(|write| Answer::refuse(&mut answers, write, &health::full()));
            Ok(())
        };
        if let Err(fault) = settled {
            return Err(self.announced(fault));
        }
        answers.into_iter().for_each(Answer::send);
        if closing.is_empty() {
            return Ok(false);
        }
        queue.close();
        self.file.close();
        for closed in closing {
            // Who has stopped waiting needs no answer.
            let _gone = closed.send(());
        }
        Ok(true)
    }

    /// Tells why it ends before anybody who waits hears that it does.
    fn announced(&self, fault: Fault) -> Fault {
        self.health.send_replace(Health::Stopped(self.explain(&fault)));
        fault
    }

    /// Ends writing for good: the file may say what the disk does not have.
    fn stop(self, fault: &Fault) {
        let why = self.explain(fault);
        tracing::error!(why = &*why, "the store has stopped");
        self.file.abandon();
        self.health.send_replace(Health::Stopped(why));
    }

    fn explain(&self, fault: &Fault) -> Arc<str> {
        let path = self.file.path().display();
        match self.file.lost_sync() {
            Some(why) => format!(
                "the disk of {path} failed to keep what was written ({why}); everything answered before is safe. Check \
                 the disk, then start the server again, or restore a backup on another disk (setpoint store restore)"
            ),
            None => format!(
                "{path} cannot be used any more ({fault}); everything answered before is safe. Check the disk, then \
                 start the server again, or restore a backup (setpoint store restore)"
            ),
        }
        .into()
    }

    /// Makes writes durable, then shows them. What could not be stored is told in the answers; an error ends it all.
    fn settle(&mut self, writes: Vec<Write>, answers: &mut [Answer]) -> Result<(), Fault> {
        if self.shortage.is_none() {
            let Err(trouble) = self.store(&writes) else {
                self.publish(writes);
                return Ok(());
            };
            let last = writes.last().map(|write| write.record.revision);
            self.undecided.clone_from(&writes);
            let is_panic = matches!(trouble, Trouble::Panic(_));
            let usable = self.mend(trouble)?;
            if last.is_some_and(|last| self.view.read(State::revision) >= last) {
                return Ok(());
            }
            if let [write] = &writes[..]
                && is_panic
            {
                self.count_panic(write, answers);
                return Ok(());
            }
            if !usable {
                writes.iter().for_each(|write| Answer::refuse(answers, write, &health::full()));
                return Ok(());
            }
        }
        self.settle_each(writes, answers)
    }

    /// One at a time, so that each one fares as it deserves.
    fn settle_each(&mut self, writes: Vec<Write>, answers: &mut [Answer]) -> Result<(), Fault> {
        let mut refused: HashSet<Key> = HashSet::new();
        for write in writes {
            let outcome = if refused.contains(&write.key) {
                Err(health::refused("a change of the same object just before was not stored"))
            } else {
                self.settle_one(&write)?
            };
            match outcome {
                // One that came through although its commit failed has been shown already.
                Ok(()) if self.view.read(State::revision) >= write.record.revision => {}
                Ok(()) => self.publish(vec![write]),
                Err(why) => {
                    Answer::refuse(answers, &write, &why);
                    refused.insert(write.key);
                }
            }
        }
        Ok(())
    }

    fn settle_one(&mut self, write: &Write) -> Result<Result<(), NotStored>, Fault> {
        if !self.file.is_open() && !self.recover()? {
            return Ok(Err(health::full()));
        }
        let current = self.view.read(|state| state.find(&write.key).cloned());
        let stored = match &self.shortage {
            Some(shortage) if !shortage.allows(write, current.as_deref()) => return Ok(Err(health::full())),
            Some(_) => self.store_bare(write, current.as_deref()),
            None => self.store(slice::from_ref(write)),
        };
        let Err(trouble) = stored else { return Ok(Ok(())) };
        let why = match &trouble {
            Trouble::Panic(_) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                health::refused("the server panicked while it stored this change")
            }
            _ => health::full(),
        };
        self.undecided = vec![write.clone()];
        self.mend(trouble)?;
        // It came through, for all that.
        if self.view.read(State::revision) >= write.record.revision {
            return Ok(Ok(()));
        }
        Ok(Err(why))
    }

    fn count_panic(&self, write: &Write, answers: &mut [Answer]) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        Answer::refuse(answers, write, &health::refused("the server panicked while it stored this change"));
    }

    /// Makes writes durable, and removes what is retired.
    fn store(&mut self, writes: &[Write]) -> Result<(), Trouble> {
        let retired = std::mem::take(&mut *self.retired.lock());
        if writes.is_empty() && retired.is_empty() {
            return Ok(());
        }
        let revision = writes.last().map(|write| write.record.revision);
        let outcome = self.commit(writes, revision, &retired);
        if outcome.is_err() {
            self.retired.lock().put_back(retired);
        }
        outcome
    }

    pub(super) fn commit(
        &mut self,
        rows: &[Write],
        revision: Option<u64>,
        retired: &Retired,
    ) -> Result<(), Trouble> {
        // Safe to go on after a panic: the file is opened again, and is as if nothing had happened.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.file.commit(rows, revision, retired)));
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(fault)) => Err(self.judge(fault)),
            Err(panic) => {
                let text = panic_text(&*panic).to_owned();
                tracing::error!(panic = text, "the storage writer panicked");
                Err(Trouble::Panic(text))
            }
        }
    }

    pub(super) fn judge(&self, fault: Fault) -> Trouble {
        let is_passing = fault.is_full() && self.file.lost_sync().is_none();
        if is_passing { Trouble::Full } else { Trouble::Lost(fault) }
    }

    /// Does what can be done about a failure. Whether the file can be used.
    fn mend(&mut self, trouble: Trouble) -> Result<bool, Fault> {
        match trouble {
            Trouble::Lost(fault) => return Err(fault),
            Trouble::Full => self.run_short(),
            Trouble::Panic(text) if self.file.lost_sync().is_some() => return Err(Fault::Panicked(text)),
            Trouble::Panic(_) => {}
        }
        self.prepare()
    }

    /// Makes the file usable, if it is not. Whether it is.
    fn prepare(&mut self) -> Result<bool, Fault> {
        if !self.recover()? {
            return Ok(false);
        }
        if self.shortage.as_ref().is_some_and(|shortage| !shortage.is_stripped) && !self.strip()? {
            return self.recover();
        }
        self.ease()?;
        self.recover()
    }

    /// Opens the file again if a failure has closed it, and shows what turns out to be durable: memory and file are the
    /// same afterwards. False if there is no room even for that.
    fn recover(&mut self) -> Result<bool, Fault> {
        if self.file.is_open() {
            return Ok(true);
        }
        let found = match self.file.reopen() {
            Ok(found) => found,
            Err(fault) => match self.judge(fault) {
                Trouble::Lost(fault) => return Err(fault),
                _ => {
                    self.run_short();
                    return Ok(false);
                }
            },
        };
        let known = self.view.read(State::revision);
        let undecided = std::mem::take(&mut self.undecided);
        if found == known {
            return Ok(true);
        }
        if undecided.last().is_none_or(|last| last.record.revision != found) {
            return Err(Fault::Damaged("another revision than it had"));
        }
        self.publish(undecided);
        Ok(true)
    }

    fn publish(&self, writes: Vec<Write>) {
        self.work_out(&writes);
        self.view.write(|state| {
            for write in writes {
                state.apply(write);
            }
            let mut retired = self.retired.lock();
            state.trim(|collection, event| retired.add(collection, event));
        });
    }

    /// Reads the fields that watchers are told apart by, while nobody waits for the lock.
    fn work_out(&self, writes: &[Write]) {
        for write in writes {
            let fields: Vec<Field> =
                self.view.read(|state| state.watched_fields(&write.key.collection).collect());
            for field in fields {
                field.value(&write.record);
            }
        }
    }
}
