//! Responses that go out as fast as the client takes them, and no slower than it must.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::Instant;

/// What is handed over at once. Of a client that takes nothing, the connection holds about this much.
const PIECE: usize = 64 * 1024;

/// What the responses of one connection have handed over and the client has not taken yet.
#[derive(Debug)]
pub(super) struct Outstanding {
    env: Env,
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    next: u64,
    /// In the order of their numbers, which is the order of time. The next one is nearly always the only one.
    since: Vec<(u64, Instant)>,
}

impl Outstanding {
    pub(super) fn new(env: &Env) -> Arc<Outstanding> {
        Arc::new(Outstanding { env: env.clone(), pieces: Mutex::default() })
    }

    /// Whether a response has been waiting for its client for so long.
    pub(super) fn is_stalled(&self, limit: Duration) -> bool {
        let oldest = self.pieces.lock().since.first().map(|(_, since)| *since);
        oldest.is_some_and(|since| self.env.instant().duration_since(since) >= limit)
    }

    fn add(&self) -> u64 {
        let now = self.env.instant();
        let mut pieces = self.pieces.lock();
        pieces.next += 1;
        let id = pieces.next;
        pieces.since.push((id, now));
        id
    }

    fn remove(&self, id: u64) {
        let since = &mut self.pieces.lock().since;
        if let Ok(at) = since.binary_search_by_key(&id, |(id, _)| *id) {
            since.remove(at);
        }
    }
}

/// A body in pieces, each of which is known to be outstanding until the next one is asked for.
pub(super) struct Paced<B> {
    body: B,
    rest: Bytes,
    id: Option<u64>,
    outstanding: Arc<Outstanding>,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, outstanding: Arc<Outstanding>) -> Paced<B> {
        Paced { body, rest: Bytes::new(), id: None, outstanding }
    }

    fn settle(&mut self) {
        if let Some(id) = self.id.take() {
            self.outstanding.remove(id);
        }
    }
}

impl<B> Drop for Paced<B> {
    fn drop(&mut self) {
        self.settle();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.settle();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.id = Some(self.outstanding.add());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
