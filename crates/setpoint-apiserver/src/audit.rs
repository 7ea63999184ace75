//! Who did what, and when: one line of JSON (`audit.k8s.io/v1` Event) for each stage of a request.
//!
//! A [`Policy`] says how much of which request is written. Lines wait in a queue of a bounded size for one task that
//! writes them; if the disk cannot keep up, a request waits a moment for room, and its line is lost after that, which
//! is counted and logged. So a full disk never stops the server.

mod event;
mod file;
mod policy;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use serde_json::Value;
use setpoint_env::{Env, Task};
use tokio::sync::{mpsc, oneshot};

pub(crate) use event::{Ending, Pending};
use file::RotatedFile;
use policy::{Decision, Level};
pub use policy::{Policy, PolicyError};

use crate::authorize::Attributes;
use crate::background::Background;
use crate::user::User;

/// How many lines may wait to be written.
const QUEUE: usize = 4096;
/// How long a request waits for room in the queue.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a server that closes waits for its lines.
const FLUSH: Duration = Duration::from_secs(5);
/// How many lines are written at once.
const BATCH: usize = 256;

/// The file of an audit log, and what is written to it.
#[derive(Clone, Debug)]
#[must_use]
pub struct AuditLog {
    path: PathBuf,
    policy: Policy,
    size: u64,
    files: usize,
}

impl AuditLog {
    /// A log in a file: the metadata of every request, once it is answered.
    ///
    /// The file is rotated at 100 MiB; of older ones five are kept (`FILE.1` is the youngest).
    pub fn new(path: impl Into<PathBuf>) -> AuditLog {
        AuditLog { path: path.into(), policy: Policy::default(), size: 100 << 20, files: 5 }
    }

    /// The audit policy: what is written.
    pub fn policy(self, policy: Policy) -> AuditLog {
        AuditLog { policy, ..self }
    }

    /// When to rotate, in bytes, and how many older files to keep.
    pub fn rotation(self, size: u64, files: usize) -> AuditLog {
        AuditLog { size, files, ..self }
    }

    /// Opens the file.
    pub(crate) fn open(self) -> std::io::Result<OpenLog> {
        let file = RotatedFile::open(self.path, self.size, self.files)?;
        Ok(OpenLog { file, policy: self.policy })
    }
}

/// A log that nobody writes yet.
#[derive(Debug)]
pub(crate) struct OpenLog {
    file: RotatedFile,
    policy: Policy,
}

impl OpenLog {
    /// Starts to write.
    pub(crate) fn start(self, env: &Env, background: &Background) -> Audit {
        let (lines, queue) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let writer = Writer { file: self.file, queue, batch: Vec::new(), counts: Arc::clone(&counts) };
        // Outside of the task: what waits in the queue outlives a panic.
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let task = background.run(env, "audit", move || {
            let writer = Arc::clone(&writer);
            async move { writer.lock().await.run().await }
        });
        Audit { env: env.clone(), policy: self.policy, lines, counts, _writer: task }
    }
}

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    /// Everything before this is in the file when it is answered.
    Flush(oneshot::Sender<()>),
}

/// A running log.
#[derive(Debug)]
pub(crate) struct Audit {
    env: Env,
    policy: Policy,
    lines: mpsc::Sender<Line>,
    counts: Arc<Counts>,
    _writer: Task<()>,
}

/// How many events there were.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    all: AtomicU64,
    lost: AtomicU64,
}

impl Counts {
    /// All events, and how many of them are not in the file.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.all.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    fn lose(&self, events: usize) {
        let events = u64::try_from(events).unwrap_or(u64::MAX);
        let before = self.lost.fetch_add(events, Ordering::Relaxed);
        let lost = before.saturating_add(events);
        // Now and then, so that a long trouble does not fill the log.
        if events > 0 && lost.checked_ilog2() != before.checked_ilog2() {
            tracing::error!(lost, "audit events were lost: the disk is full, broken or too slow");
        }
    }
}

/// What writes the lines.
struct Writer {
    file: RotatedFile,
    queue: mpsc::Receiver<Line>,
    /// Lines that are being written.
    batch: Vec<Line>,
    counts: Arc<Counts>,
}

impl Writer {
    async fn run(&mut self) {
        // Whatever is left was being written when the task panicked. To try it again might panic again.
        self.counts.lose(self.batch.drain(..).filter(|line| matches!(line, Line::Text(_))).count());
        while self.queue.recv_many(&mut self.batch, BATCH).await > 0 {
            let mut text = Vec::new();
            let mut events = 0;
            for line in &self.batch {
                if let Line::Text(line) = line {
                    text.extend_from_slice(line);
                    events += 1;
                }
            }
            if let Err(error) = self.file.append(&text).await {
                tracing::error!(%error, "the audit log cannot be written");
                self.counts.lose(events);
            }
            for line in self.batch.drain(..) {
                if let Line::Flush(sender) = line {
                    // Who has stopped waiting needs no answer.
                    let _gone = sender.send(());
                }
            }
        }
    }
}

impl Audit {
    /// A request has come.
    pub(crate) fn begin(&self, parts: &Parts) -> Pending {
        Pending::new(&self.env, parts)
    }

    /// It is known who asks and for what: the policy decides.
    pub(crate) async fn received(
        &self,
        pending: &mut Pending,
        user: &User,
        attributes: &Attributes,
        version: &str,
    ) {
        let Decision { level, omitted, omit_managed_fields } = self.policy.decide(Some(user), attributes);
        pending.identify(user, attributes, version, level, omitted, omit_managed_fields);
        self.stage(pending, "RequestReceived").await;
    }

    /// It is not known who asks.
    pub(crate) async fn unauthorized(&self, pending: &mut Pending, attributes: &Attributes, version: &str) {
        let Decision { level, omitted, omit_managed_fields } = self.policy.decide(None, attributes);
        pending.identify(&User::default(), attributes, version, level, omitted, omit_managed_fields);
        pending.answered(401, Some("Authentication failed"));
        self.stage(pending, "ResponseStarted").await;
    }

    /// Writes the event of a stage, unless the policy leaves it out.
    pub(crate) async fn stage(&self, pending: &Pending, stage: &'static str) {
        let Some(line) = pending.line(&self.env, stage) else { return };
        self.counts.all.fetch_add(1, Ordering::Relaxed);
        if let Err(mpsc::error::TrySendError::Full(line) | mpsc::error::TrySendError::Closed(line)) =
            self.lines.try_send(Line::Text(line))
            && self.lines.send_timeout(line, PATIENCE).await.is_err()
        {
            self.counts.lose(1);
        }
    }

    /// The same where nobody can wait.
    pub(crate) fn stage_now(&self, pending: &Pending, stage: &'static str) {
        let Some(line) = pending.line(&self.env, stage) else { return };
        self.counts.all.fetch_add(1, Ordering::Relaxed);
        if self.lines.try_send(Line::Text(line)).is_err() {
            self.counts.lose(1);
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Waits until everything so far is in the file, but not for ever.
    pub(crate) async fn flush(&self) {
        let flushed = async {
            let (sender, flushed) = oneshot::channel();
            if self.lines.send(Line::Flush(sender)).await.is_ok() {
                let _ended = flushed.await;
            }
        };
        if tokio::time::timeout(FLUSH, flushed).await.is_err() {
            tracing::error!("the audit log was not flushed in time: the disk is too slow");
        }
    }
}

/// The address that a request comes from, as an extension of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub SocketAddr);

/// How much of a request is written.
impl Level {
    pub(crate) fn has_request(self) -> bool {
        self >= Level::Request
    }

    pub(crate) fn has_response(self) -> bool {
        self >= Level::RequestResponse
    }
}

/// An object without what nobody reads.
fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_panics_loses_what_it_was_writing_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let env = Env::seeded(1);
        let background = Background::default();
        let mut log = AuditLog::new(&path).open().unwrap();
        log.file.panics = 1;
        let audit = log.start(&env, &background);
        let (parts, ()) = http::Request::new(()).into_parts();
        let mut pending = audit.begin(&parts);
        audit.received(&mut pending, &User::admin(), &Attributes::default(), "v1").await;
        audit.stage(&pending, "ResponseComplete").await;
        while background.down().is_empty() {
            tokio::task::yield_now().await;
        }
        // It is down, and what comes meanwhile waits for it.
        audit.stage(&pending, "ResponseComplete").await;
        audit.flush().await;
        assert_eq!(background.panics(), [("audit", 1)]);
        let written = std::fs::read_to_string(path).unwrap().lines().count() as u64;
        let (all, lost) = audit.counts().read();
        assert_eq!((all, written, lost > 0), (written + lost, written, true));
        assert!(written > 0);
    }
}
