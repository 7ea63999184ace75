//! What can go wrong between a server and a cache.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

use crate::{ObjectKey, ResourceVersion, Scope};

/// Something went wrong with a list or a watch. The cache stays readable as it is, and the reflector tries
/// again; this says what happened, to which resource, in the server's words where there are any.
#[derive(Debug, thiserror::Error)]
#[error("{resource}{}: {failure}", in_namespace(scope))]
pub struct ReflectorError {
    /// The resource, like `pods` or `deployments.apps`.
    pub resource: String,
    /// How much of it was listed or watched.
    pub scope: Scope,
    /// What happened.
    pub failure: Failure,
}

fn in_namespace(scope: &Scope) -> String {
    scope.namespace().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
}

/// What can go wrong with a list or a watch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The request did not reach a server, or the connection broke.
    #[error("no answer: {0}")]
    Connection(String),
    /// The server refused.
    #[error("the server answered {code} {reason}: {message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason of the server's Status, if it sent one.
        reason: String,
        /// What the server said.
        message: String,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The server sent something else than was asked for.
    #[error("the server sent something that is not {expected}: {words}")]
    Malformed {
        /// What was asked for.
        expected: &'static str,
        /// The beginning of what came.
        words: String,
    },
    /// The server sent a list of another kind.
    #[error(
        "the server sent a {found} where a {expected} was asked for; check the resource's group, version and plural name"
    )]
    WrongKind {
        /// The kind that was asked for.
        expected: String,
        /// The kind that came.
        found: String,
    },
    /// A list has no resourceVersion to watch from.
    #[error("the server sent a list without a resourceVersion")]
    NoResourceVersion,
    /// The server's history went back, as after a restore from a backup.
    #[error("the server's resourceVersion went back from {from} to {to}")]
    WentBack {
        /// The newest version seen.
        from: ResourceVersion,
        /// The version that came after it.
        to: ResourceVersion,
    },
    /// The connection ended in the middle of a line, of a frame or of a list.
    #[error("the connection ended in the middle of {0}")]
    CutOff(&'static str),
    /// Nothing came for longer than the server should have been silent.
    #[error("the connection was silent for {0:?}")]
    Silent(Duration),
    /// A watch ended in under a second without an event.
    #[error("the watch ended at once without an event")]
    ShortWatch,
    /// The initial events of a streaming list did not end.
    #[error("the streaming list did not end within {0:?}; listing without streaming")]
    EndlessList(Duration),
    /// One object could not be decoded, and was skipped.
    #[error("skipped {}: {message}", key.as_ref().map_or("an object".to_owned(), ToString::to_string))]
    Object {
        /// Which object, if that much could be read.
        key: Option<ObjectKey>,
        /// What is wrong with it.
        message: String,
    },
}

/// The beginning of what a server said, short enough for a log line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]);
    let text = text.trim();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Failure {
    /// The failure that a Status object reports.
    pub(super) fn from_status(status: Status, retry_after: Option<Duration>) -> Failure {
        let too_large = is_too_large(&status);
        let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
        let reason = if too_large { TOO_LARGE.to_owned() } else { status.reason.unwrap_or_default() };
        let asked = status.details.and_then(|details| details.retry_after_seconds);
        let asked = asked.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let retry_after = retry_after.or(asked.map(Duration::from_secs));
        Failure::Refused { code, reason, message: status.message.unwrap_or_default(), retry_after }
    }

    /// The history that was asked for is gone.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Failure::Refused { code, reason, .. } if *code == 410 || reason == "Expired" || reason == "Gone")
    }

    /// The server has not got as far as the version that was asked for.
    pub(super) fn is_too_large(&self) -> bool {
        matches!(self, Failure::Refused { reason, .. } if reason == TOO_LARGE)
    }

    /// The server does not do streaming lists, or does them wrong.
    pub(super) fn refuses_streaming(&self) -> bool {
        match self {
            Failure::Refused { code, .. } => matches!(code, 400 | 405 | 406 | 415 | 422 | 501),
            Failure::EndlessList(_) | Failure::Malformed { .. } | Failure::ShortWatch => true,
            _ => false,
        }
    }

    /// The server or the way to it is in trouble, but what was seen so far still holds: watch again.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Failure::Refused { code, .. } => *code == 429 || *code >= 500,
            Failure::WentBack { .. } => false,
            _ => true,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The reason in the metric of relists.
    pub(super) fn as_label(&self) -> &'static str {
        match self {
            failure if failure.is_expired() => "expired",
            failure if failure.is_too_large() => "too_large",
            Failure::WentBack { .. } => "went_back",
            Failure::Refused { .. } => "refused",
            _ => "failure",
        }
    }
}

const TOO_LARGE: &str = "ResourceVersionTooLarge";

fn is_too_large(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let named = causes.into_iter().any(|cause| cause.reason.as_deref() == Some(TOO_LARGE));
    // Servers before 1.17 say it in words only.
    named || status.message.as_deref().is_some_and(|message| message.contains("Too large resource version"))
}
