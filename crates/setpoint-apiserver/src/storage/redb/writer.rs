//! A handle on the one thread that writes: it makes many changes durable at once, then shows them and answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_env::watch;
use tokio::sync::{mpsc, oneshot};

use super::super::view::View;
use super::super::{Change, CommitError, Limits, Revision, Stats};
use super::batch::{Job, Outcome};
use super::fault::Fault;
use super::file::File;
use super::health::{self, Health};
use super::medium::Medium;
use super::open_error::OpenError;
use super::retired::Retired;
use super::worker::Worker;

/// How many changes may wait; who comes then waits to wait.
const QUEUE: usize = 1024;

/// A handle on the thread. It ends, and closes the file, with the handle.
#[derive(Debug)]
pub(super) struct Writer {
    // None only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    view: View,
    retired: Arc<Mutex<Retired>>,
    health: watch::Receiver<Health>,
    panics: Arc<AtomicU64>,
}

impl Writer {
    /// Opens the store on a new thread, which then writes to it.
    pub(super) async fn start(medium: Box<dyn Medium>, limits: Limits) -> Result<(Writer, View), OpenError> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (opened, opening) = oneshot::channel();
        let path = medium.path().to_owned();
        let (told, health) = watch::channel(Health::Well);
        let panics = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&panics);
        let thread = spawn(move || match File::open(medium, limits) {
            Ok((file, state, retired)) => {
                let (view, retired) = (View::new(state), Arc::new(Mutex::new(retired)));
                let worker = Worker {
                    file,
                    view: view.clone(),
                    retired: Arc::clone(&retired),
                    shortage: None,
                    undecided: Vec::new(),
                    health: told,
                    panics: counter,
                };
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
                Ok((Writer { jobs, thread: Some(thread), view: view.clone(), retired, health, panics }, view))
            }
            Ok(Err(fault)) => {
                // The file is closed when the caller hears of it.
                let _ended = thread.join();
                Err(fault.at(&path))
            }
            Err(_) => Err(Fault::Damaged("contents that nobody can make sense of").at(&path)),
        }
    }

    /// Hands a change over, and waits until it is durable. Its time to live begins now.
    pub(super) async fn commit(&self, change: Change, now: Timestamp) -> Outcome {
        let (sender, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("it is there until the writer is dropped");
        // Both fail only if the store is closed, or has stopped.
        if jobs.send(Job::Commit(change, now, sender)).await.is_err() {
            return Err(self.ended());
        }
        answer.await.unwrap_or_else(|_| Err(self.ended()))
    }

    fn ended(&self) -> CommitError {
        health::refused(self.stopped().unwrap_or("the store is closed".into())).into()
    }

    fn stopped(&self) -> Option<Arc<str>> {
        match &*self.health.borrow() {
            Health::Stopped(why) => Some(Arc::clone(why)),
            Health::Well | Health::Full => None,
        }
    }

    /// Why changes cannot be made durable, if they cannot.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        let is_closed = || self.jobs.as_ref().is_none_or(mpsc::Sender::is_closed);
        self.stopped().or_else(|| is_closed().then(|| "the store is closed".into()))
    }

    /// Waits until the store has stopped by itself; why.
    pub(super) fn failed(&self) -> BoxFuture<'static, Arc<str>> {
        let mut health = self.health.clone();
        async move {
            let is_over = |health: &Health| matches!(health, Health::Stopped(_));
            if let Ok(health) = health.wait_for(is_over).await
                && let Health::Stopped(why) = &*health
            {
                return Arc::clone(why);
            }
            // It was closed on purpose, and will not fail any more.
            std::future::pending().await
        }
        .boxed()
    }

    /// Adds what only the writer knows.
    pub(super) fn add_stats(&self, stats: &mut Stats) {
        stats.is_full = matches!(*self.health.borrow(), Health::Full);
        stats.writer_panics = self.panics.load(Ordering::Relaxed);
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
        self.tidy();
    }

    /// The same for what is old. The file need not know how old it was: the rows go.
    pub(super) fn age(&self, up_to: Revision) {
        let is_tidy = self.view.write(|state| {
            let mut retired = self.retired.lock();
            state.age(up_to, |collection, event| retired.add(collection, event));
            retired.is_empty()
        });
        if !is_tidy {
            self.tidy();
        }
    }

    /// Forgets what is more than the bounds allow: watchers may have added to history since the last write.
    pub(super) fn trim(&self) {
        let has_forgotten = self.view.write(|state| {
            let mut retired = self.retired.lock();
            state.trim(|collection, event| retired.add(collection, event));
            !retired.is_empty()
        });
        if has_forgotten {
            self.tidy();
        }
    }

    fn tidy(&self) {
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

/// The exception to the rule that work is a task of the runtime: syncing a file blocks for milliseconds, and
/// there is no other way to do it. Nothing that the simulator runs comes here: it uses the memory engine.
fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("setpoint-store".to_owned()).spawn(work)
}
