//! The requests of a connection that are not answered yet, and whether their client takes what it is sent.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use setpoint_env::Later;
use tokio::time::Instant;

/// The most that is handed over at once. HTTP/2 asks for more when the client has room for it.
const PIECE: usize = 16 << 10;

/// What is open on a connection. Clones are the same.
#[derive(Clone)]
pub(super) struct Open(Arc<Mutex<State>>);

struct State {
    /// How many requests there were.
    begun: u64,
    /// Since when the client has not taken what there is for it; none while there is nothing.
    answers: BTreeMap<u64, Option<Instant>>,
    /// When the last one ended.
    idle_since: Instant,
}

/// Whether a connection keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again then.
    Keep(Instant),
    /// There was no request at all.
    NeverAsked,
    /// No request is open.
    Idle,
    /// An answer makes no progress.
    Stalled,
}

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) first_request: Duration,
    pub(super) idle: Duration,
    pub(super) stall: Duration,
}

impl Open {
    pub(super) fn new() -> Open {
        let state = State { begun: 0, answers: BTreeMap::new(), idle_since: Instant::now() };
        Open(Arc::new(Mutex::new(state)))
    }

    /// A request came. It is open until what comes back, or the answer's body that it goes into, is dropped.
    pub(super) fn begin(&self) -> OpenRequest {
        let mut state = self.0.lock();
        state.begun += 1;
        let number = state.begun;
        state.answers.insert(number, None);
        OpenRequest { number, open: self.clone() }
    }

    pub(super) fn judge(&self, patience: Patience) -> Verdict {
        let (state, now) = (self.0.lock(), Instant::now());
        let first = state.answers.values().flatten().min();
        let (ends, verdict) = match first {
            Some(&since) => (since.later(patience.stall), Verdict::Stalled),
            // Nothing is to be taken; that can change at once.
            None if !state.answers.is_empty() => return Verdict::Keep(now.later(patience.stall)),
            None if state.begun == 0 => (state.idle_since.later(patience.first_request), Verdict::NeverAsked),
            None => (state.idle_since.later(patience.idle), Verdict::Idle),
        };
        if ends <= now { verdict } else { Verdict::Keep(ends.min(now.later(patience.stall))) }
    }
}

/// A request that is being answered.
pub(super) struct OpenRequest {
    number: u64,
    open: Open,
}

impl OpenRequest {
    /// The client can take something, or there is nothing for it.
    fn is_offered(&self, offered: bool) {
        let since = offered.then(Instant::now);
        self.open.0.lock().answers.insert(self.number, since);
    }

    /// The body of its answer.
    pub(super) fn body<B: Body>(self, body: B) -> Answer<B> {
        self.is_offered(true);
        Answer { body: Box::pin(body), rest: None, request: self }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.open.0.lock();
        state.answers.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

/// A body that is handed over in pieces, and says when the last one was taken.
pub(super) struct Answer<B: Body> {
    body: Pin<Box<B>>,
    rest: Option<B::Data>,
    request: OpenRequest,
}

impl<B: Body> Answer<B> {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_none() {
            match ready!(self.body.as_mut().poll_frame(cx)?) {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.rest = Some(data),
                    Err(frame) => {
                        return Poll::Ready(
                            frame.into_trailers().ok().map(|trailers| Ok(Frame::trailers(trailers))),
                        );
                    }
                },
            }
        }
        let piece = self.rest.as_mut().map(|data| data.copy_to_bytes(data.remaining().min(PIECE)));
        self.rest = self.rest.take().filter(Buf::has_remaining);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

// The body is pinned in a box of its own.
impl<B: Body> Unpin for Answer<B> {}

impl<B: Body> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = self.next(cx);
        // Who asks has room. What it gets is to be taken before it asks again.
        self.request.is_offered(next.is_ready());
        next
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.as_ref().map_or(0, Buf::remaining) as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
