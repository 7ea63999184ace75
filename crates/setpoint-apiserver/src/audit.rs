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
use crate::user::User;

/// How many lines may wait to be written.
const QUEUE: usize = 4096;
/// How long a request waits for room in the queue.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many lines are written at once.
const BATCH: usize = 256;

/// Where and what to write.
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

    /// What to write.
    pub fn policy(self, policy: Policy) -> AuditLog {
        AuditLog { policy, ..self }
    }

    /// When to rotate, in bytes, and how many older files to keep.
    pub fn rotation(self, size: u64, files: usize) -> AuditLog {
        AuditLog { size, files, ..self }
    }

    /// Starts to write.
    pub(crate) fn start(self, env: &Env) -> std::io::Result<Audit> {
        let file = RotatedFile::open(self.path, self.size, self.files)?;
        let (lines, queue) = mpsc::channel(QUEUE);
        let writer = env.spawn(write(file, queue));
        Ok(Audit { env: env.clone(), policy: self.policy, lines, lost: AtomicU64::new(0), _writer: writer })
    }
}

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
    lost: AtomicU64,
    _writer: Task<()>,
}

async fn write(mut file: RotatedFile, mut queue: mpsc::Receiver<Line>) {
    let mut lines = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut lines, BATCH).await > 0 {
        let mut flushed = Vec::new();
        let mut text = Vec::new();
        for line in lines.drain(..) {
            match line {
                Line::Text(line) => text.extend_from_slice(&line),
                Line::Flush(sender) => flushed.push(sender),
            }
        }
        if let Err(error) = file.append(&text).await {
            tracing::error!(%error, "the audit log cannot be written");
        }
        for sender in flushed {
            // Who has stopped waiting needs no answer.
            let _gone = sender.send(());
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
        if let Err(mpsc::error::TrySendError::Full(line)) = self.lines.try_send(Line::Text(line)) {
            let sent = self.lines.send_timeout(line, PATIENCE).await;
            if sent.is_err() {
                self.count_lost();
            }
        }
    }

    /// The same where nobody can wait.
    pub(crate) fn stage_now(&self, pending: &Pending, stage: &'static str) {
        let Some(line) = pending.line(&self.env, stage) else { return };
        if self.lines.try_send(Line::Text(line)).is_err() {
            self.count_lost();
        }
    }

    fn count_lost(&self) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // Now and then, so that a long trouble does not fill the log.
        if lost.is_power_of_two() {
            tracing::error!(lost, "audit events were lost: the disk is too slow");
        }
    }

    /// Waits until everything so far is in the file.
    pub(crate) async fn flush(&self) {
        let (sender, flushed) = oneshot::channel();
        if self.lines.send(Line::Flush(sender)).await.is_ok() {
            let _ended = flushed.await;
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
