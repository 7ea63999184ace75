//! What goes back to the client.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use setpoint_kinds::protobuf::MEDIA_TYPE;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::answer::{finish, protobuf};
use crate::audit::Ending;
use crate::contention::Deadline;
use crate::lane::{Lane, Turns};
use crate::limits::Place;
use crate::negotiate::{Media, Representation};
use crate::status::Status;

/// The body of a response: all at once, or a stream that goes on until the watch ends.
pub struct Body {
    inner: Inner,
    /// A stream is work as well: it goes through the lane of its request.
    turns: Option<Turns>,
    /// When a stream is cut off.
    deadline: Option<Pin<Box<Sleep>>>,
    /// When a stream ends early, whatever is left of it: with the server, or with whoever sends it.
    ends: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Kept until all of it was taken.
    place: Option<Place>,
    /// What its sender has of such places.
    room: Option<OwnedSemaphorePermit>,
    ending: Option<Ending>,
}

enum Inner {
    Full(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// What somebody else sends, which may break off: another server, or the author of a subresource.
    Relay(UnsyncBoxBody<Bytes, io::Error>),
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Body {
        Body { inner, turns: None, deadline: None, ends: Vec::new(), place: None, room: None, ending: None }
    }
}

impl Body {
    /// A body that is known whole.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
        Inner::Full(bytes.into()).into()
    }

    /// A body that comes piece by piece.
    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Inner::Stream(Box::pin(stream)).into()
    }

    /// What somebody else sends. It is handed on when the client takes it: nothing is kept.
    pub(crate) fn relay(
        body: impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static,
    ) -> Body {
        Inner::Relay(body.boxed_unsync()).into()
    }

    /// Keeps the room that it takes at its sender until all of it was taken.
    #[must_use]
    pub(crate) fn with_room(self, room: OwnedSemaphorePermit) -> Body {
        Body { room: Some(room), ..self }
    }

    /// Goes on until somebody ends it, in a place of its own.
    #[must_use]
    pub(crate) fn ended_by(self, ends: impl IntoIterator<Item = CancellationToken>, place: Place) -> Body {
        let ends = ends.into_iter().map(|token| Box::pin(token.cancelled_owned())).collect();
        Body { ends, place: Some(place), ..self }
    }

    /// Keeps the place of its request until all of it was taken: it holds memory that long.
    #[must_use]
    pub(crate) fn with_place(self, place: Place) -> Body {
        let body = self.in_lane(place.lane());
        Body { place: Some(place), ..body }
    }

    /// Breaks off when the time of its request is up, so that the client does not take a part for the whole.
    #[must_use]
    pub(crate) fn until(self, deadline: Deadline) -> Body {
        let deadline = match self.inner {
            Inner::Full(_) => None,
            Inner::Stream(_) | Inner::Relay(_) => {
                Some(Box::pin(tokio::time::sleep_until(deadline.instant())))
            }
        };
        Body { deadline, ..self }
    }

    /// Lets the stream go through a lane.
    #[must_use]
    pub(crate) fn in_lane(self, lane: Option<&Lane>) -> Body {
        Body { turns: lane.map(Lane::turns), ..self }
    }

    /// Tells the log when it has ended, one way or the other.
    #[must_use]
    pub(crate) fn with_ending(self, ending: Ending) -> Body {
        Body { ending: Some(ending), ..self }
    }

    /// All of it, if it is not a stream.
    pub(crate) fn as_full(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Full(bytes) => Some(bytes),
            Inner::Stream(_) | Inner::Relay(_) => None,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Full(bytes) => f.debug_tuple("Body").field(&bytes.len()).finish(),
            Inner::Stream(_) | Inner::Relay(_) => f.write_str("Body(stream)"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = &mut *self;
        if let Some(deadline) = &mut body.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            *body = Body::full(Bytes::new());
            let why = "the response did not complete within the allotted timeout";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, why))));
        }
        if body.ends.iter_mut().any(|end| end.as_mut().poll(cx).is_ready()) {
            // Its sender is let go at once.
            body.inner = Inner::Full(Bytes::new());
            body.ends.clear();
        }
        let data = |bytes| Ok(Frame::data(bytes));
        let next = match &mut body.inner {
            Inner::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Full(bytes) => Poll::Ready(Some(data(std::mem::take(bytes)))),
            Inner::Stream(stream) => {
                let piece = match &mut body.turns {
                    Some(turns) => turns.poll(cx, |cx| stream.as_mut().poll_next(cx)),
                    None => stream.as_mut().poll_next(cx),
                };
                piece.map(|piece| piece.map(data))
            }
            Inner::Relay(relay) => Pin::new(relay).poll_frame(cx),
        };
        if matches!(next, Poll::Ready(None)) {
            self.place = None;
            self.room = None;
            self.ending = None;
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Stream(_) => false,
            Inner::Relay(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(_) => SizeHint::default(),
            Inner::Relay(relay) => relay.size_hint(),
        }
    }
}

/// A response with a body in one piece.
pub(crate) fn respond(code: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A failure as a response.
pub(crate) fn respond_status(status: &Status, form: &Representation) -> Response<Body> {
    let in_text = || {
        let mut json = status.to_json();
        json.push(b'\n');
        let json = Bytes::from(json);
        match finish(form, json.clone()) {
            Ok(body) => respond(status.code, form.media.text_type(), body),
            Err(_) => respond(status.code, Media::Json.text_type(), json),
        }
    };
    let in_protobuf = (form.media == Media::Protobuf).then(|| protobuf::status(status)).flatten();
    let mut response = match in_protobuf {
        Some(body) => respond(status.code, MEDIA_TYPE, body),
        None => in_text(),
    };
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// How many characters all warnings of an answer have together, and each of them if that is not enough.
const MAX_WARNINGS: usize = 4096;
const MAX_WARNING: usize = 256;

/// Adds `Warning: 299 - "…"` headers, which kubectl prints: as much of them as kube-apiserver would.
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    let length = |text: &str| text.chars().count();
    let mut seen = BTreeSet::new();
    let once: Vec<&String> = warnings.iter().filter(|warning| seen.insert(warning.as_str())).collect();
    let are_long = once.iter().map(|warning| length(warning)).sum::<usize>() > MAX_WARNINGS;
    let mut written = 0;
    for warning in once {
        if written >= MAX_WARNINGS {
            break;
        }
        let most = if are_long { MAX_WARNING } else { MAX_WARNINGS };
        let text: String = warning.chars().filter(|c| !c.is_control()).take(most).collect();
        written += length(&text);
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(warnings: &[String]) -> Vec<usize> {
        let mut response = respond(StatusCode::OK, "text/plain", "");
        add_warnings(&mut response, warnings);
        let lengths = response.headers().get_all(header::WARNING).iter().map(HeaderValue::len);
        lengths.map(|length| length - "299 - \"\"".len()).collect()
    }

    #[test]
    fn warnings_are_as_long_as_there_is_room() {
        let many = |length: usize, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{number:0length$}")).collect()
        };
        assert_eq!(written(&many(40, 100)), [40; 100]);
        assert_eq!(written(&many(1000, 4)), [1000; 4]);
        assert_eq!(
            written(&many(1000, 100)),
            [256; 16],
            "too much in all: each is cut, and some are left out"
        );
        assert_eq!(written(&["a".to_owned(), "a".to_owned()]), [1], "each is said once");
    }
}
