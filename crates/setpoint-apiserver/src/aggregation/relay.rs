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
    body: Incoming,
    /// When it is to end early: with the server, or with the backend.
    ends: Option<[Pin<Box<WaitForCancellationFutureOwned>>; 2]>,
    _room: OwnedSemaphorePermit,
    _place: Option<Place>,
}

impl Relay {
    pub(super) fn new(body: Incoming, room: OwnedSemaphorePermit) -> Relay {
        Relay { body, ends: None, _room: room, _place: None }
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
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut relay.body).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
