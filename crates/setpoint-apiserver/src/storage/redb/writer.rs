//! The one thread that writes: it makes many changes durable at once, then shows them and answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::super::state::State;
use super::super::view::View;
use super::super::write::Write;
use super::super::{Change, CommitError, Key, Limits, NotStored, Record, Revision};
use super::fault::Fault;
use super::file::File;
use super::medium::Medium;
use super::open_error::OpenError;
use super::retired::Retired;

/// How many changes may wait; who comes then waits to wait.
const QUEUE: usize = 1024;
/// How many changes share one sync at most.
const BATCH_CHANGES: usize = 512;
/// How many bytes of values share one sync, about.
const BATCH_BYTES: usize = 8 << 20;

type Outcome = Result<Arc<Record>, CommitError>;

enum Job {
    Commit(Change, oneshot::Sender<Outcome>),
    /// Something is retired, and nobody waits for it to be removed.
    Tidy,
    /// Nothing is taken after this; the answer comes when the file is closed.
    Close(oneshot::Sender<()>),
}

/// A handle on the thread. It ends, and closes the file, with the handle.
#[derive(Debug)]
pub(super) struct Writer {
    // None only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    view: View,
    retired: Arc<Mutex<Retired>>,
    failure: Failure,
}

/// Why the last commit failed, unless it has worked since.
type Failure = Arc<Mutex<Option<Arc<str>>>>;

impl Writer {
    /// Opens the store on a new thread, which then writes to it.
    pub(super) async fn start(medium: Box<dyn Medium>, limits: Limits) -> Result<(Writer, View), OpenError> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (opened, opening) = oneshot::channel();
        let path = medium.path().to_owned();
        let failure = Failure::default();
        let told = Arc::clone(&failure);
        let thread = spawn(move || match File::open(medium, limits) {
            Ok((file, state, retired)) => {
                let (view, retired) = (View::new(state), Arc::new(Mutex::new(retired)));
                let worker =
                    Worker { file, view: view.clone(), retired: Arc::clone(&retired), failure: told };
                if opened.send(Ok((view, retired))).is_ok() {
                    worker.run(queue);
                }
            }
            Err(fault) => drop(opened.send(Err(fault))),
        })
        .map_err(|source| OpenError::Thread { source })?;
        match opening.await {
            Ok(Ok((view, retired))) => {
                let jobs = Some(jobs);
                Ok((Writer { jobs, thread: Some(thread), view: view.clone(), retired, failure }, view))
            }
            Ok(Err(fault)) => {
                // The file is closed when the caller hears of it.
                let _ended = thread.join();
                Err(fault.at(&path))
            }
            Err(_) => Err(Fault::Damaged("contents that nobody can make sense of").at(&path)),
        }
    }

    /// Hands a change over, and waits until it is durable.
    pub(super) async fn commit(&self, change: Change) -> Outcome {
        let (sender, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("it is there until the writer is dropped");
        // Both fail only if the store is closed, or its thread has panicked.
        if jobs.send(Job::Commit(change, sender)).await.is_err() {
            return Err(ended());
        }
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Why changes cannot be made durable at the moment, if they cannot.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        if self.jobs.as_ref().is_none_or(mpsc::Sender::is_closed) {
            return Some("the store is closed".into());
        }
        self.failure.lock().clone()
    }

    /// Closes the file, once what was handed over before is settled.
    pub(super) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("it is there until the writer is dropped");
        // Both fail if it is closed already.
        let _closed = jobs.send(Job::Close(sender)).await;
        let _closed = closed.await;
    }

    /// Forgets history now, and in the file soon.
    pub(super) fn compact(&self, up_to: Revision) {
        self.view.write(|state| {
            let mut retired = self.retired.lock();
            state.compact(up_to, |collection, event| retired.add(collection, event));
            retired.compacted = Some(state.compacted());
        });
        if let Some(jobs) = &self.jobs {
            // If the queue is full, one of the jobs in it does the same.
            let _full = jobs.try_send(Job::Tidy);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // At most one commit is under way. A panic was told to those who waited for it.
            let _ended = thread.join();
        }
    }
}

fn ended() -> CommitError {
    CommitError::NotStored(NotStored { why: "the server's store is closed; start the server again".into() })
}

/// The exception to the rule that work is a task of the runtime: syncing a file blocks for milliseconds, and
/// there is no other way to do it. Nothing that the simulator runs comes here: it uses the memory engine.
fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("setpoint-store".to_owned()).spawn(work)
}

/// What runs on the thread.
struct Worker {
    file: File,
    view: View,
    retired: Arc<Mutex<Retired>>,
    failure: Failure,
}

impl Worker {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(job) = queue.blocking_recv() {
            // Where processors are few, those who are about to hand over a change do so first: a commit costs more than
            // the changes in it. Where nobody waits for a processor, this is nothing.
            std::thread::yield_now();
            // Before the batch is checked: what the file has to tell may change the outcome.
            let usable = self.recover();
            let mut batch = Batch::new(&self.view);
            batch.add(job);
            while batch.has_room()
                && let Ok(job) = queue.try_recv()
            {
                batch.add(job);
            }
            let Batch { writes, answers, closing, .. } = batch;
            let outcome = usable.and_then(|()| self.settle(writes));
            *self.failure.lock() = answer(answers, outcome);
            if !closing.is_empty() {
                drop(queue);
                drop(self.file);
                for closed in closing {
                    // Who has stopped waiting needs no answer.
                    let _gone = closed.send(());
                }
                return;
            }
        }
    }

    /// Makes writes durable, then shows them.
    fn settle(&mut self, writes: Vec<Write>) -> Result<(), Fault> {
        let retired = std::mem::take(&mut *self.retired.lock());
        if writes.is_empty() && retired.is_empty() {
            return Ok(());
        }
        let last = writes.last().map(|write| write.record.revision);
        let Err(fault) = self.file.commit(&writes, &retired) else {
            self.publish(writes);
            return Ok(());
        };
        self.retired.lock().put_back(retired);
        // A commit that fails at its end may be durable all the same. Only the file knows.
        match self.recover() {
            Ok(()) if last.is_some_and(|last| self.view.read(State::revision) >= last) => Ok(()),
            _ => Err(fault),
        }
    }

    /// Opens the file again if a failure has closed it, and shows what turns out to be durable: memory and
    /// file are the same afterwards.
    fn recover(&mut self) -> Result<(), Fault> {
        if self.file.is_open() {
            return Ok(());
        }
        let known = self.view.read(State::revision);
        let writes = self.file.reopen(known)?;
        self.publish(writes);
        Ok(())
    }

    fn publish(&self, writes: Vec<Write>) {
        self.view.write(|state| {
            for write in writes {
                state.apply(write);
            }
            let mut retired = self.retired.lock();
            state.trim(|collection, event| retired.add(collection, event));
        });
    }
}

/// Tells everybody how it went; why it did not work, if so.
fn answer(answers: Vec<(oneshot::Sender<Outcome>, Outcome)>, settled: Result<(), Fault>) -> Option<Arc<str>> {
    let failure: Option<Arc<str>> = settled.err().map(|fault| {
        let why = fault.explain();
        tracing::error!(why, "a commit failed");
        why.into()
    });
    for (sender, outcome) in answers {
        let outcome = match &failure {
            Some(why) => Err(CommitError::NotStored(NotStored { why: Arc::clone(why) })),
            None => outcome,
        };
        // Who has stopped waiting needs no answer.
        let _gone = sender.send(outcome);
    }
    failure
}

/// Changes that share a sync, checked in order as if each of them were there already.
struct Batch<'a> {
    view: &'a View,
    revision: Revision,
    writes: Vec<Write>,
    /// What the writes leave of the records that they change.
    changed: HashMap<Key, Option<Arc<Record>>>,
    answers: Vec<(oneshot::Sender<Outcome>, Outcome)>,
    closing: Vec<oneshot::Sender<()>>,
    bytes: usize,
}

impl Batch<'_> {
    fn new(view: &View) -> Batch<'_> {
        Batch {
            view,
            revision: view.read(State::revision),
            writes: Vec::new(),
            changed: HashMap::new(),
            answers: Vec::new(),
            closing: Vec::new(),
            bytes: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.answers.len() < BATCH_CHANGES && self.bytes < BATCH_BYTES && self.closing.is_empty()
    }

    fn add(&mut self, job: Job) {
        match job {
            Job::Commit(change, sender) => {
                let outcome = self.check(change);
                self.answers.push((sender, outcome));
            }
            Job::Close(sender) => self.closing.push(sender),
            Job::Tidy => {}
        }
    }

    fn check(&mut self, change: Change) -> Outcome {
        let current = match self.changed.get(&change.key) {
            Some(changed) => changed.clone(),
            None => self.view.read(|state| state.find(&change.key).cloned()),
        };
        let write = Write::new(change, current.as_ref(), self.revision + 1)?;
        let record = Arc::clone(&write.record);
        self.revision = record.revision;
        self.bytes += record.value.len();
        self.changed.insert(write.key.clone(), write.remaining().cloned());
        self.writes.push(write);
        Ok(record)
    }
}
