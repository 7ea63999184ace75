//! Writes into the trace what the client sees of an answer.

use bytes::Bytes;
use futures::stream;
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use serde::Deserialize;
use tower::BoxError;

use super::layer::Body;
use crate::hash::Fnv;
use crate::request::Verb;
use crate::trace::{Call, Recorder, What};

/// Bodies up to this size are kept until their end to find the resourceVersion in them.
const KEPT: u64 = 256 * 1024;

/// Watches one request. When it goes away too early, the client has.
#[derive(Debug)]
pub(crate) struct Observer {
    recorder: Recorder,
    call: Call,
    answered: bool,
}

impl Observer {
    pub(crate) fn new(recorder: Recorder, call: Call) -> Observer {
        Observer { recorder, call, answered: false }
    }

    /// Follows an answer through its body.
    pub(crate) fn answer(
        mut self,
        answer: Result<Response<Body>, BoxError>,
    ) -> Result<Response<Body>, BoxError> {
        let (parts, body) = match answer {
            Ok(response) => response.into_parts(),
            Err(error) => {
                self.finish(What::Broken(describe(&*error)));
                return Err(error);
            }
        };
        let watch = self.call.request.verb == Verb::Watch && parts.status.is_success();
        if watch {
            self.recorder.record(&self.call, What::Watching);
        }
        let status = parts.status.as_u16();
        let length =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (hash, kept) = (Fnv::default(), Vec::new());
        let reading = Reading { observer: self, body, status, watch, length, hash, bytes: 0, kept };
        let frames = stream::unfold(Some(reading), |reading| async {
            let mut reading = reading?;
            let frame = reading.next().await?;
            let more = frame.is_ok().then_some(reading);
            Some((frame.map(http_body::Frame::data), more))
        });
        Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
    }

    fn finish(&mut self, what: What) {
        self.answered = true;
        self.recorder.record(&self.call, what);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if !self.answered {
            self.recorder.record(&self.call, What::Abandoned);
        }
    }
}

/// A body that the client is reading.
#[derive(Debug)]
struct Reading {
    observer: Observer,
    body: Body,
    status: u16,
    watch: bool,
    /// How long the body is, if the server has said so.
    length: Option<u64>,
    hash: Fnv,
    bytes: u64,
    kept: Vec<Bytes>,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.read(&data);
                    return Some(Ok(data));
                }
                Some(Err(error)) => {
                    self.observer.finish(What::Broken(describe(&*error)));
                    return Some(Err(error));
                }
                None => {
                    self.end();
                    return None;
                }
            }
        }
    }

    fn read(&mut self, data: &Bytes) {
        let bytes = data.len() as u64;
        if self.watch {
            let what = What::Event { bytes, body: Fnv::of(data) };
            return self.observer.recorder.record(&self.observer.call, what);
        }
        self.hash.bytes(data);
        self.bytes += bytes;
        if self.bytes <= KEPT {
            self.kept.push(data.clone());
        } else {
            self.kept.clear();
        }
    }

    fn end(&mut self) {
        let what = if self.watch {
            What::Ended
        } else {
            What::Answered {
                status: self.status,
                resource_version: resource_version(&self.kept),
                bytes: self.bytes,
                body: self.hash.finish(),
            }
        };
        self.observer.finish(what);
    }
}

/// Who knows how long an answer is does not wait for its end.
impl Drop for Reading {
    fn drop(&mut self) {
        if !self.observer.answered && !self.watch && self.length == Some(self.bytes) {
            self.end();
        }
    }
}

/// An error with its sources, in one line.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn resource_version(body: &[Bytes]) -> Option<String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: Option<String>,
    }
    let object: Object = match body {
        [whole] => serde_json::from_slice(whole).ok()?,
        parts => serde_json::from_slice(&parts.concat()).ok()?,
    };
    object.metadata.resource_version
}
