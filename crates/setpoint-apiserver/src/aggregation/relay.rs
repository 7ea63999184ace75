//! The body of a backend's answer on its way to the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::limits::Place;

/// Hands on what comes when the client takes it: nothing is kept. Its connection to the backend ends with it.
pub(super) struct Relay {
    /// None once it was told to end.
    running: Option<Running>,
    /// When it is to end early: with the server, or with the backend.
    ends: Option<[Pin<Box<WaitForCancellationFutureOwned>>; 2]>,
    _place: Option<Place>,
}

/// What the backend still sends.
struct Running {
    body: Incoming,
    _room: OwnedSemaphorePermit,
}

impl Relay {
    pub(super) fn new(body: Incoming, room: OwnedSemaphorePermit) -> Relay {
        Relay { running: Some(Running { body, _room: room }), ends: None, _place: None }
    }

    /// One that goes on until somebody ends it.
    pub(super) fn until(self, ends: [CancellationToken; 2], place: Place) -> Relay {
        let ends = ends.map(|token| Box::pin(token.cancelled_owned()));
        Relay { ends: Some(ends), _place: Some(place), ..self }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let relay = &mut *self;
        if let Some(ends) = &mut relay.ends
            && ends.iter_mut().any(|end| end.as_mut().poll(cx).is_ready())
        {
            relay.running = None;
            relay.ends = None;
        }
        let Some(running) = &mut relay.running else { return Poll::Ready(None) };
        let frame = Pin::new(&mut running.body).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.running.as_ref().map_or_else(SizeHint::default, |running| running.body.size_hint())
    }
}
