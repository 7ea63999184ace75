//! Stage 1: reads from the API server, feeds the DeltaFifo.
//!
//! Keeps one list and watch alive, whatever the server does.

mod backoff;
mod config;
mod decode;
mod error;
mod format;
mod heard;
mod json;
mod list;
mod metrics;
mod outline;
mod protobuf;
mod recovery;
mod request;
mod run;
mod scan;
mod stage;
mod stream;
mod watch;

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::timeout;

pub use self::backoff::Backoff;
pub(crate) use self::backoff::BackoffState;
pub use self::config::ReflectorConfig;
use self::decode::Skipped;
pub(crate) use self::decode::{Decoder, Keep, is_json};
pub use self::error::{ReflectorError, ReflectorFailure};
use self::format::Format;
pub(crate) use self::metrics::ReflectorMetrics;
pub(crate) use self::protobuf::{WireKind, metadata as protobuf_metadata};
pub(crate) use self::request::Target;
use self::run::Run;
use self::stream::ByteStream;
use crate::facts::{CacheName, Facts, LoopEvent, ReflectorState};
use crate::{DeltaFifo, Indexer, Object, in_words};

pub(crate) type ErrorHandler = Arc<dyn Fn(&ReflectorError) + Send + Sync>;

/// Everything that a reflector is given.
pub(crate) struct Reflector<T> {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) decoder: Decoder<T>,
    pub(crate) indexer: Arc<Indexer<T>>,
    pub(crate) fifo: Arc<DeltaFifo<T>>,
    pub(crate) config: ReflectorConfig,
    pub(crate) env: Env,
    pub(crate) metrics: ReflectorMetrics,
    pub(crate) facts: Facts,
    /// The number of its cache among those of these facts.
    pub(crate) cache: u64,
    pub(crate) on_error: Option<ErrorHandler>,
    /// The last failure, until a list or watch works: for telling why a cache is not synced.
    pub(crate) trouble: Arc<Mutex<Option<String>>>,
}

impl<T: Object> Reflector<T> {
    /// Lists and watches for ever. Failures are reported and retried.
    pub(crate) async fn run(self: Arc<Self>) -> Infallible {
        Run::new(self).forever().await
    }

    /// Tells what it does now, if somebody listens.
    pub(crate) fn tell(&self, state: impl FnOnce() -> ReflectorState) {
        self.facts.tell(|| LoopEvent::Reflector { cache: self.cache_name(), state: state() });
    }

    fn cache_name(&self) -> CacheName {
        CacheName::new(self.cache, &self.target.resource, &self.target.scope)
    }

    fn report(&self, failure: ReflectorFailure) {
        let error = ReflectorError {
            resource: self.target.resource.clone(),
            scope: self.target.scope.clone(),
            failure,
        };
        self.metrics.count_failure(&error.failure);
        let words = error.to_string();
        let is_news = self.trouble.lock().replace(words.clone()).is_none_or(|before| before != words);
        if is_news {
            tracing::warn!(error = words, "a list or watch failed; retrying with backoff");
        } else {
            tracing::debug!(error = words, "lists or watches still fail; retrying with backoff");
        }
        if let Some(on_error) = &self.on_error
            && catch_unwind(AssertUnwindSafe(|| on_error(&error))).is_err()
        {
            tracing::error!("the error handler panicked");
        }
    }

    /// Sends a request; an answer that is no success is a failure with the server's words.
    async fn send(
        &self,
        request: http::Request<kube::client::Body>,
        silence: Duration,
    ) -> Result<ByteStream, ReflectorFailure> {
        let bound = self.config.answer_timeout;
        let answer =
            timeout(bound, self.client.send(request)).await.map_err(|_| ReflectorFailure::Silent(bound))?;
        let answer = answer.map_err(|error| ReflectorFailure::Connection(in_words(&error)))?;
        let (head, body) = answer.into_parts();
        let format = if self.target.protobuf { Format::of(&head.headers) } else { Format::Json };
        if head.status.is_success() {
            return Ok(ByteStream::new(body, format, &self.metrics, silence));
        }
        let retry_after = head.headers.get(http::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        let body = ByteStream::new(body, format, &self.metrics, bound).of_refusal();
        let body = body.read_up_to(64 << 10).await;
        let mut status = format.status(&body).unwrap_or_default();
        status.code = Some(head.status.as_u16().into());
        if status.message.is_none() {
            status.message = Some(format.excerpt(&body));
        }
        Err(ReflectorFailure::from_status(status, retry_after.map(Duration::from_secs)))
    }

    fn skip(&self, skipped: Skipped) {
        self.report(ReflectorFailure::Object { key: skipped.key, message: skipped.message });
    }
}
