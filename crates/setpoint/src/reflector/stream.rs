//! The bytes of an answer, decoded on several cores and handed on in order.

mod events;
mod items;
mod pipeline;

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;

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
        ByteStream { body, format, received, heard, silence }
    }

    /// The next bytes; `None` at the end. Nothing for longer than allowed is a failure.
    async fn next(&mut self) -> Result<Option<Bytes>, ReflectorFailure> {
        // A timer only if there is something to wait for.
        match self.next_now() {
            Some(next) => next,
            None => {
                let silence = self.silence;
                let ends = self.heard.now(silence);
                let next = tokio::time::timeout_at(ends, self.wait_for_next()).await;
                next.unwrap_or(Err(ReflectorFailure::Silent(silence)))
            }
        }
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
