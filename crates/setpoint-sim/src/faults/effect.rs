//! What a fault does to a request.

use std::time::Duration;

use bytes::Bytes;

use super::refusal::Refusal;
use crate::request::{RequestInfo, Verb};

/// What a fault does to the request that it meets.
///
/// "After n events" counts the lines of a watch that the client has been given: bookmarks and the first
/// ADDED events count too.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// The request reaches the server later.
    DelayRequest(Duration),
    /// The server acts at once, and its answer arrives later.
    DelayResponse(Duration),
    /// Connection refused: the server never sees the request, and the client knows it.
    RefuseConnection,
    /// Connection reset: the server never sees the request, and the client cannot know it.
    DropRequest,
    /// An error Status in the server's place; the server never sees the request.
    Refuse(Refusal),
    /// Any answer in the server's place, also one that no legal server gives; the server never sees the request.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The Content-Type header.
        content_type: String,
        /// The body.
        body: Bytes,
    },
    /// Connection reset after the server has acted: a write is committed and the client cannot know it.
    LoseResponse,
    /// The server acts, and a proxy on the way answers 502: a write is committed and the client cannot know it.
    BadGateway,
    /// The server acts, and the client sees nothing but a time-out after this long.
    TimeOut(Duration),
    /// The server acts, and the client never hears of the request again.
    Silence,
    /// Connection reset after this many bytes of the answer's body, of a watch or of any other answer.
    CutAfterBytes(u64),
    /// Connection reset in a watch after n events.
    CutAfterEvents(u64),
    /// Connection reset in a watch in the middle of the line that follows event n.
    CutInsideEvent(u64),
    /// The watch ends in good order after n events, as at its time limit.
    EndAfterEvents(u64),
    /// An ERROR event after n events; then the watch ends.
    ErrorAfterEvents(u64, Refusal),
    /// Bytes written into a watch after n events, also such that no legal server writes; the watch goes on.
    InsertAfterEvents(u64, Bytes),
    /// Every event of a watch arrives later; their order stays.
    DelayEvents(Duration),
    /// After n events a watch is silent until the rule is released; then everything arrives.
    HoldAfterEvents(u64),
    /// After n events a watch is silent for this long; then everything arrives.
    StallAfterEvents(u64, Duration),
    /// From event n on, each event of a watch is held back until so many later ones have arrived, or the rule is released.
    LagAfterEvents(u64, u64),
    /// After n events a watch is silent until the rule is released; then it expires, so that the client lists again and
    /// never sees what was in between.
    HideAfterEvents(u64),
    /// The client's process dies before the request leaves it.
    CrashBefore,
    /// The server acts, and the client's process dies before the answer reaches it.
    CrashAfterCommit,
    /// The client's process dies when it has the answer, before it sends anything else.
    CrashAfterAnswer,
    /// The client's process stands still for this long when the answer arrives, and then goes on.
    PauseAfterAnswer(Duration),
    /// From the answer on, no request of the client that is about leases reaches the server, until all faults end.
    LoseLease,
    /// The server acts and restarts: this answer is lost, and every watch breaks.
    RestartServer,
    /// Somebody else does something just before the server sees the request.
    Interfere(Interference),
}

/// What somebody else does to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interference {
    /// What.
    pub act: Act,
    /// The path of the object in the API; none is the object of the request.
    pub object: Option<String>,
}

/// The things that somebody else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Act {
    /// Writes an annotation, so that the object has another resourceVersion.
    Touch,
    /// Deletes the object.
    Delete,
    /// Deletes the object and creates it again, with another uid.
    Recreate,
    /// Creates the object that the request is about to create, with the same content.
    Create,
}

/// The kinds of faults that a seed may choose: everything that a legal server and network can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// [`Effect::DelayRequest`].
    DelayRequest,
    /// [`Effect::DelayResponse`].
    DelayResponse,
    /// [`Effect::RefuseConnection`].
    RefuseConnection,
    /// [`Effect::DropRequest`].
    DropRequest,
    /// [`Refusal::Conflict`] of an update or patch, without a concurrent writer.
    Conflict,
    /// [`Refusal::TooManyRequests`].
    TooManyRequests,
    /// [`Refusal::InternalError`].
    InternalError,
    /// [`Refusal::ServiceUnavailable`].
    ServiceUnavailable,
    /// [`Refusal::Expired`] at the start of a watch from a resourceVersion, or for a later page of a list.
    Expired,
    /// [`Effect::LoseResponse`].
    LoseResponse,
    /// [`Effect::TimeOut`].
    TimeOut,
    /// [`Effect::CutAfterBytes`] of an answer that is not a watch.
    CutResponse,
    /// [`Effect::CutAfterEvents`] or [`Effect::CutInsideEvent`].
    CutWatch,
    /// [`Effect::EndAfterEvents`].
    EndWatch,
    /// [`Effect::ErrorAfterEvents`] with [`Refusal::Expired`].
    ExpireWatch,
    /// [`Effect::DelayEvents`].
    DelayEvents,
    /// [`Effect::BadGateway`].
    BadGateway,
    /// [`Effect::CrashBefore`], [`Effect::CrashAfterCommit`] or [`Effect::CrashAfterAnswer`] of a write. Not among
    /// [`FaultKind::ALL`], since few clients are processes that are started again.
    Crash,
    /// [`Effect::StallAfterEvents`]. Not among [`FaultKind::ALL`]: [`FaultKind::DelayEvents`] is much the same.
    StallWatch,
    /// [`Effect::LagAfterEvents`]. Not among [`FaultKind::ALL`], since it lasts until all faults end.
    LagWatch,
}

impl FaultKind {
    /// All kinds that can happen to any client and end by themselves.
    pub const ALL: [FaultKind; 17] = [
        FaultKind::DelayRequest,
        FaultKind::DelayResponse,
        FaultKind::RefuseConnection,
        FaultKind::DropRequest,
        FaultKind::Conflict,
        FaultKind::TooManyRequests,
        FaultKind::InternalError,
        FaultKind::ServiceUnavailable,
        FaultKind::Expired,
        FaultKind::LoseResponse,
        FaultKind::TimeOut,
        FaultKind::CutResponse,
        FaultKind::CutWatch,
        FaultKind::EndWatch,
        FaultKind::ExpireWatch,
        FaultKind::DelayEvents,
        FaultKind::BadGateway,
    ];

    /// Whether a legal server or network can do this to `request`.
    pub fn is_legal_for(self, request: &RequestInfo) -> bool {
        let watch = request.verb == Verb::Watch;
        match self {
            FaultKind::DelayRequest
            | FaultKind::RefuseConnection
            | FaultKind::DropRequest
            | FaultKind::TooManyRequests
            | FaultKind::InternalError
            | FaultKind::ServiceUnavailable => true,
            FaultKind::DelayResponse
            | FaultKind::LoseResponse
            | FaultKind::TimeOut
            | FaultKind::BadGateway
            | FaultKind::CutResponse => !watch,
            // Of a deletion it says that the object is another one than was meant, and is never spurious.
            FaultKind::Conflict => matches!(request.verb, Verb::Update | Verb::Patch),
            FaultKind::Expired if watch => resumes(request),
            FaultKind::Expired => request.verb == Verb::List && request.query("continue").is_some(),
            FaultKind::CutWatch
            | FaultKind::EndWatch
            | FaultKind::ExpireWatch
            | FaultKind::DelayEvents
            | FaultKind::StallWatch
            | FaultKind::LagWatch => watch,
            FaultKind::Crash => request.verb.is_write(),
        }
    }
}

/// Whether a watch starts at a resourceVersion that the server may have forgotten.
fn resumes(watch: &RequestInfo) -> bool {
    !matches!(watch.query("resourceVersion"), None | Some("" | "0"))
}

/// How a failure report tells the fault. `status` is the server's, where it has answered.
pub(crate) fn prose(effect: &Effect, request: &RequestInfo, status: Option<u16>) -> String {
    let served = match status {
        Some(200..=299) if request.verb.is_write() => "it was committed".to_owned(),
        Some(status) => format!("the server had answered {status}"),
        None => "the server had answered".to_owned(),
    };
    match effect {
        Effect::DelayRequest(time) => format!("delayed {request} by {time:?} on its way to the server"),
        Effect::DelayResponse(time) => format!("delayed the response of {request} by {time:?}"),
        Effect::RefuseConnection => format!("refused the connection of {request}"),
        Effect::DropRequest => format!("dropped {request} before it reached the server"),
        Effect::Refuse(refusal) => format!("answered {request} with {refusal} in the server's place"),
        Effect::Answer { status, content_type, .. } => {
            format!("answered {request} with {status} {content_type} in the server's place")
        }
        Effect::LoseResponse => format!("lost the response of {request} after {served}"),
        Effect::BadGateway => format!("answered {request} with 502 in a proxy's place after {served}"),
        Effect::TimeOut(time) => format!("timed out {request} for {time:?} after {served}"),
        Effect::Silence => format!("never answered {request} after {served}"),
        Effect::CutAfterBytes(n) => format!("cut the response of {request} after {n} bytes"),
        Effect::CutAfterEvents(n) => format!("cut {request} after {}", events(*n)),
        Effect::CutInsideEvent(n) => format!("cut {request} after {} and half a line", events(*n)),
        Effect::EndAfterEvents(n) => format!("ended {request} after {}", events(*n)),
        Effect::ErrorAfterEvents(n, refusal) => {
            format!("sent an ERROR event {refusal} into {request} after {}", events(*n))
        }
        Effect::InsertAfterEvents(n, bytes) => {
            format!("wrote {} bytes into {request} after {}", bytes.len(), events(*n))
        }
        Effect::DelayEvents(time) => format!("delayed the events of {request} by {time:?}"),
        Effect::HoldAfterEvents(n) => format!("held {request} back after {}", events(*n)),
        Effect::StallAfterEvents(n, time) => format!("held {request} back after {} for {time:?}", events(*n)),
        Effect::LagAfterEvents(n, k) => {
            format!("held {request} back by {} after {}", events(*k), events(*n))
        }
        Effect::HideAfterEvents(n) => {
            format!("held {request} back after {}, and let it expire", events(*n))
        }
        Effect::CrashBefore => format!("crashed the client before it sent {request}"),
        Effect::CrashAfterCommit => {
            format!("crashed the client after {request}, when {served}, before the answer")
        }
        Effect::CrashAfterAnswer => format!("crashed the client after the answer to {request}"),
        Effect::PauseAfterAnswer(time) => format!("paused the client for {time:?} after {request}"),
        Effect::LoseLease => format!("cut the client off from its lease after {request}"),
        Effect::RestartServer => format!("restarted the server after {request}, when {served}"),
        Effect::Interfere(interference) => {
            let object = interference.object.as_deref().unwrap_or("its object");
            let did = match interference.act {
                Act::Touch => "wrote to",
                Act::Delete => "deleted",
                Act::Recreate => "deleted and created again",
                Act::Create => "created",
            };
            format!("somebody {did} {object} just before {request}")
        }
    }
}

fn events(n: u64) -> String {
    if n == 1 { "1 event".to_owned() } else { format!("{n} events") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap(), br#"{"metadata":{"name":"a"}}"#)
    }

    #[test]
    fn a_lost_response_says_whether_something_was_committed() {
        let post = request("POST", "/api/v1/namespaces/default/configmaps");
        assert_eq!(
            prose(&Effect::LoseResponse, &post, Some(201)),
            "lost the response of POST configmaps/default/a after it was committed"
        );
        assert_eq!(
            prose(&Effect::LoseResponse, &post, Some(409)),
            "lost the response of POST configmaps/default/a after the server had answered 409"
        );
    }

    #[test]
    fn a_seed_never_chooses_what_a_legal_server_would_not_do() {
        let (expired, conflict) = (FaultKind::Expired, FaultKind::Conflict);
        assert!(expired.is_legal_for(&request("GET", "/api/v1/pods?watch=1&resourceVersion=7")));
        assert!(!expired.is_legal_for(&request("GET", "/api/v1/pods?watch=1&resourceVersion=0")));
        assert!(!expired.is_legal_for(&request("GET", "/api/v1/pods?watch=1")));
        assert!(!expired.is_legal_for(&request("GET", "/api/v1/pods")));
        assert!(expired.is_legal_for(&request("GET", "/api/v1/pods?limit=5&continue=abc")));
        assert!(conflict.is_legal_for(&request("PUT", "/api/v1/namespaces/default/pods/a")));
        assert!(!conflict.is_legal_for(&request("POST", "/api/v1/namespaces/default/pods")));
        assert!(!FaultKind::CutWatch.is_legal_for(&request("GET", "/api/v1/pods")));
    }
}
