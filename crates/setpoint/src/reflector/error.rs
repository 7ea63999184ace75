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
    pub failure: ReflectorFailure,
}

fn in_namespace(scope: &Scope) -> String {
    scope.namespace().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
}

/// What can go wrong with a list or a watch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReflectorFailure {
    /// The request did not reach a server, or came back without an answer.
    #[error("no answer: {0}")]
    Connection(String),
    /// The connection broke in the middle of an answer.
    #[error("the connection broke: {0}")]
    Broken(String),
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

impl ReflectorFailure {
    /// The failure that a Status object reports.
    pub(super) fn from_status(status: Status, retry_after: Option<Duration>) -> ReflectorFailure {
        let too_large = is_too_large(&status);
        let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
        let reason = if too_large { TOO_LARGE.to_owned() } else { status.reason.unwrap_or_default() };
        let asked = status.details.and_then(|details| details.retry_after_seconds);
        let asked = asked.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let retry_after = retry_after.or(asked.map(Duration::from_secs));
        ReflectorFailure::Refused { code, reason, message: status.message.unwrap_or_default(), retry_after }
    }

    /// What the table of recoveries needs to know of it.
    pub(super) fn class(&self) -> Class {
        match self {
            ReflectorFailure::Connection(_) => Class::Unreachable,
            ReflectorFailure::Broken(_) | ReflectorFailure::CutOff(_) => Class::Broken,
            ReflectorFailure::Refused { code, reason, .. } => class_of_refusal(*code, reason),
            ReflectorFailure::Malformed { .. } | ReflectorFailure::Object { .. } => Class::Malformed,
            ReflectorFailure::WrongKind { .. } | ReflectorFailure::NoResourceVersion => Class::BadList,
            ReflectorFailure::WentBack { .. } => Class::WentBack,
            ReflectorFailure::Silent(_) => Class::Silent,
            ReflectorFailure::ShortWatch => Class::EndedEarly,
            ReflectorFailure::EndlessList(_) => Class::Endless,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            ReflectorFailure::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The reason in the metric of relists.
    pub(super) fn as_label(&self) -> &'static str {
        match self.class() {
            Class::Expired => "expired",
            Class::TooLarge => "too_large",
            Class::WentBack => "went_back",
            _ if matches!(self, ReflectorFailure::Refused { .. }) => "refused",
            _ => "failure",
        }
    }
}

/// The kinds of failures that a reflector tells apart when it decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// There was no answer: no connection, no TLS, a name that does not resolve.
    Unreachable,
    /// 429: the server asks to be left alone for a while.
    Throttled,
    /// 401: the credentials may have run out.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404: the resource may come yet.
    NotFound,
    /// Another refusal of what was asked: 400, 405, 406, 415, 422, 501 and the like.
    Refused,
    /// 410: the history that was asked for is gone.
    Expired,
    /// The server has not got as far as the version that was asked for.
    TooLarge,
    /// The server's history went back.
    WentBack,
    /// 500, 502, 503, 504.
    ServerError,
    /// The connection ended in the middle of an answer.
    Broken,
    /// The server was silent for too long.
    Silent,
    /// The server sent something else than was asked for.
    Malformed,
    /// A watch ended at once, or a streaming list before its end.
    EndedEarly,
    /// A streaming list did not end.
    Endless,
    /// A list of another kind, or without a version.
    BadList,
}

fn class_of_refusal(code: u16, reason: &str) -> Class {
    match (code, reason) {
        (_, TOO_LARGE) => Class::TooLarge,
        (410, _) | (_, "Expired" | "Gone") => Class::Expired,
        (429, _) => Class::Throttled,
        (401, _) => Class::Unauthorized,
        (403, _) => Class::Forbidden,
        (404, _) => Class::NotFound,
        (501, _) => Class::Refused,
        (500.., _) => Class::ServerError,
        _ => Class::Refused,
    }
}

const TOO_LARGE: &str = "ResourceVersionTooLarge";

fn is_too_large(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let named = causes.into_iter().any(|cause| cause.reason.as_deref() == Some(TOO_LARGE));
    // Servers before 1.17 say it in words only.
    named || status.message.as_deref().is_some_and(|message| message.contains("Too large resource version"))
}
