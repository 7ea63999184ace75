//! The bytes of an answer, decoded on several cores and handed on in order.

mod events;
mod items;
mod pipeline;

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::Instant;

pub(super) use self::events::{EventStream, Events};
pub(super) use self::items::ItemStream;
use self::pipeline::Pipeline;
use super::ReflectorMetrics;
use super::error::ReflectorFailure;
use super::format::Format;
use super::heard::Heard;
use crate::metrics::Counter;

/// How many bytes are decoded in one piece of work, if that many have come.
const BLOCK: usize = 128 << 10;

/// The longest line or list item that is taken. Kubernetes refuses objects above 3 MiB.
const LONGEST: usize = 64 << 20;

/// The body of an answer, watched for silence.
pub(super) struct ByteStream {
    body: Body,
    format: Format,
    received: Counter,
    heard: Heard,
    /// Whether something has come of which that was not told.
    has_come: bool,
    /// Whether the server refuses: then nothing that it says is about objects.
    is_refusal: bool,
    silence: Duration,
}

impl ByteStream {
    pub(super) fn new(
        body: Body,
        format: Format,
        metrics: &ReflectorMetrics,
        silence: Duration,
    ) -> ByteStream {
        let (received, heard) = (metrics.received.clone(), metrics.heard.clone());
        ByteStream { body, format, received, heard, has_come: false, is_refusal: false, silence }
    }

    /// The body of a refusal.
    pub(super) fn of_refusal(self) -> ByteStream {
        ByteStream { is_refusal: true, ..self }
    }

    /// The next bytes; `None` at the end. Nothing for longer than allowed is a failure.
    async fn next(&mut self) -> Result<Option<Bytes>, ReflectorFailure> {
        // A timer only if there is something to wait for.
        match self.next_now() {
            Some(next) => {
                if !matches!(next, Ok(Some(_))) {
                    self.pause();
                }
                next
            }
            None => {
                let (silence, ends) = (self.silence, self.pause());
                let next = tokio::time::timeout_at(ends, self.wait_for_next()).await;
                next.unwrap_or(Err(ReflectorFailure::Silent(silence)))
            }
        }
    }

    /// All that has come was taken. Says when a wait from now on has been too long.
    fn pause(&mut self) -> Instant {
        let has_come = std::mem::take(&mut self.has_come) && !self.is_refusal;
        self.heard.now(has_come, self.silence)
    }

    /// The next bytes, if they are there without waiting.
    fn next_now(&mut self) -> Option<Result<Option<Bytes>, ReflectorFailure>> {
        self.wait_for_next().now_or_never()
    }

    async fn wait_for_next(&mut self) -> Result<Option<Bytes>, ReflectorFailure> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ReflectorFailure::Broken(crate::in_words(&error))),
                Some(Ok(frame)) => {
                    // Anything but data is trailers, which say nothing here.
                    if let Ok(bytes) = frame.into_data() {
                        self.has_come = true;
                        self.received.inc_by(bytes.len() as u64);
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Up to `most` bytes of the body, for telling what the server said.
    pub(super) async fn read_up_to(mut self, most: usize) -> Vec<u8> {
        let mut words = Vec::new();
        while words.len() < most
            && let Ok(Some(chunk)) = self.next().await
        {
            words.extend_from_slice(&chunk);
        }
        words.truncate(most);
        words
    }
}
