//! Stage 1: reads from the API server, feeds the DeltaFifo.
//!
//! Keeps one list and watch alive, whatever the server does.

mod backoff;
mod config;
mod decode;
mod error;
mod format;
mod json;
mod list;
mod metrics;
mod outline;
mod protobuf;
mod request;
mod scan;
mod stage;
mod stream;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use setpoint_env::Env;
use tokio::time::timeout;

pub use self::backoff::Backoff;
use self::backoff::BackoffState;
pub use self::config::ReflectorConfig;
use self::decode::{Decoded, Skipped};
pub(crate) use self::decode::{Decoder, Keep, is_json};
pub use self::error::{Failure, ReflectorError};
use self::format::Format;
pub(crate) use self::metrics::ReflectorMetrics;
pub(crate) use self::protobuf::{WireKind, metadata as protobuf_metadata};
use self::request::ListRange;
pub(crate) use self::request::Target;
use self::stage::Stage;
use self::stream::{ByteStream, EventStream, ItemStream};
use self::watch::Event;
use crate::{Deleted, Delta, DeltaFifo, Held, Indexer, Object, ResourceVersion};

type MakeDelta<T> = fn(Held<T>) -> Delta<T>;

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
    pub(crate) on_error: Option<ErrorHandler>,
    /// The last failure, until a list or watch works: for telling why a cache is not synced.
    pub(crate) trouble: Arc<Mutex<Option<String>>>,
}

/// A reflector at work.
struct Run<T> {
    parts: Reflector<T>,
    backoff: BackoffState,
    /// The newest version seen: where the next watch starts.
    last: Option<ResourceVersion>,
    /// The next list must be up to date, whatever was seen so far: the server said that it cannot serve
    /// what we have seen.
    forget_version: bool,
}

impl<T: Object> Reflector<T> {
    /// Lists and watches for ever. Failures are reported and retried.
    pub(crate) async fn run(self) {
        let backoff = BackoffState::new(self.config.backoff, self.env.clone());
        let mut run = Run { parts: self, backoff, last: None, forget_version: false };
        loop {
            match run.list().await {
                Ok(stream) => {
                    let reason = run.watch(stream).await;
                    run.parts.metrics.relist(reason);
                }
                Err(failure) => run.after_failed_list(failure).await,
            }
        }
    }

    fn report(&self, failure: Failure) {
        let error = ReflectorError {
            resource: self.target.resource.clone(),
            scope: self.target.scope.clone(),
            failure,
        };
        self.metrics.count_failure(&error.failure);
        let words = error.to_string();
        let is_news = self.trouble.lock().replace(words.clone()).is_none_or(|before| before != words);
        if is_news {
            tracing::warn!(error = words, "the reflector has trouble and goes on trying");
        } else {
            tracing::debug!(error = words, "the reflector still has trouble");
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
    ) -> Result<ByteStream, Failure> {
        let bound = self.config.answer_timeout;
        let answer = timeout(bound, self.client.send(request)).await.map_err(|_| Failure::Silent(bound))?;
        let answer = answer.map_err(|error| Failure::Connection(words(&error)))?;
        let (head, body) = answer.into_parts();
        let format = if self.target.protobuf { Format::of(&head.headers) } else { Format::Json };
        if head.status.is_success() {
            return Ok(ByteStream::new(body, format, self.metrics.received.clone(), silence));
        }
        let retry_after = head.headers.get(http::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        let body = ByteStream::new(body, format, self.metrics.received.clone(), bound);
        let body = body.read_up_to(64 << 10).await;
        let mut status = format.status(&body).unwrap_or_default();
        status.code = Some(head.status.as_u16().into());
        if status.message.is_none() {
            status.message = Some(format.excerpt(&body));
        }
        Err(Failure::from_status(status, retry_after.map(Duration::from_secs)))
    }

    fn skip(&self, skipped: Skipped) {
        self.report(Failure::Object { key: skipped.key, message: skipped.message });
    }
}

impl<T: Object> Run<T> {
    /// Lists, and gives the stream to go on with if the list was a streaming one.
    async fn list(&mut self) -> Result<Option<EventStream<T>>, Failure> {
        if self.parts.config.streaming {
            match self.streaming_list().await {
                Err(failure) if failure.refuses_streaming() => {
                    tracing::debug!(%failure, "no streaming list; listing instead");
                    if !matches!(failure, Failure::Refused { .. }) {
                        self.parts.report(failure);
                    }
                }
                result => return result.map(Some),
            }
        }
        self.plain_list().await?;
        Ok(None)
    }

    /// Collects the initial events until the bookmark that ends them; then goes on watching.
    async fn streaming_list(&mut self) -> Result<EventStream<T>, Failure> {
        let parts = &self.parts;
        let asked = if self.forget_version { None } else { self.last.as_ref() };
        let watch_timeout = parts.config.random_watch_timeout(&parts.env);
        let patience = parts.config.initial_events_timeout;
        let bytes = parts.send(parts.target.streaming_list(asked, watch_timeout), patience).await?;
        let mut stream = EventStream::new(bytes, parts.decoder.clone(), parts.env.clone());
        let mut stage = Stage::new(parts.indexer.clone());
        // A server that ignores the question sends live events for ever: the bound is on the whole, too.
        let end = timeout(patience * 10, self.collect(&mut stream, &mut stage)).await;
        let (version, rest) = match end {
            Ok(Err(Failure::Silent(_))) | Err(_) => return Err(Failure::EndlessList(patience)),
            Ok(result) => result?,
        };
        self.replace(stage, version).await?;
        stream.set_silence(self.parts.config.silence(watch_timeout));
        // What is wrong with these is the business of the watch: the list is complete.
        stream.give_back(rest);
        Ok(stream)
    }

    /// The version at the end of the initial events, and the events that came after it in the same piece.
    async fn collect(
        &self,
        stream: &mut EventStream<T>,
        stage: &mut Stage<T>,
    ) -> Result<(ResourceVersion, Vec<Event<T>>), Failure> {
        while let Some(events) = stream.next().await? {
            let mut events = events.into_iter();
            while let Some(event) = events.next() {
                self.parts.metrics.count_event(&event);
                match event {
                    Event::Added(Decoded::Object(object)) | Event::Modified(Decoded::Object(object)) => {
                        stage.insert(object);
                    }
                    Event::Deleted(Decoded::Object(object)) => stage.remove(object.key()),
                    Event::Deleted(Decoded::Skipped(Skipped { key: Some(key), .. })) => stage.remove(&key),
                    Event::Added(Decoded::Skipped(skipped))
                    | Event::Modified(Decoded::Skipped(skipped))
                    | Event::Deleted(Decoded::Skipped(skipped)) => self.keep_known(stage, skipped),
                    Event::Bookmark { version, ends_initial_events: true } => {
                        return Ok((version, events.collect()));
                    }
                    Event::Bookmark { .. } => {}
                    Event::Error(status) => return Err(Failure::from_status(*status, None)),
                    Event::Malformed(words) => {
                        return Err(Failure::Malformed { expected: "a watch event", words });
                    }
                }
            }
        }
        // It closed before it was done: whatever the server did, it was no streaming list.
        Err(Failure::ShortWatch)
    }

    /// An object that cannot be decoded is still there: what the cache knows of it stays.
    fn keep_known(&self, stage: &mut Stage<T>, skipped: Skipped) {
        if let Some(key) = &skipped.key
            && let Some(known) = self.parts.fifo.known(key)
        {
            stage.insert(known);
        }
        self.parts.skip(skipped);
    }

    /// Lists without streaming. The newest state comes in pages; "at least as new as" comes whole, since
    /// asking for pages of it would make the server read them from its database.
    async fn plain_list(&mut self) -> Result<(), Failure> {
        let last = self.last.as_ref().filter(|_| !self.forget_version).map(ToString::to_string);
        let from_cache = self.parts.config.list_from_cache && self.last.is_none() && !self.forget_version;
        let asked = last.or_else(|| from_cache.then(|| "0".to_owned()));
        let (stage, version) = match asked {
            Some(version) => self.whole_list(Some(&version)).await?,
            None => match self.paged_list().await? {
                Some(list) => list,
                None => self.whole_list(None).await?,
            },
        };
        self.replace(stage, version).await
    }

    async fn whole_list(&self, version: Option<&str>) -> Result<(Stage<T>, ResourceVersion), Failure> {
        let mut stage = Stage::new(self.parts.indexer.clone());
        let (version, _) = self.page(&ListRange::Whole(version), &mut stage).await?;
        Ok((stage, version))
    }

    /// `None` if the server forgot the list before its last page.
    async fn paged_list(&self) -> Result<Option<(Stage<T>, ResourceVersion)>, Failure> {
        let limit = self.parts.config.page_size;
        let mut stage = Stage::new(self.parts.indexer.clone());
        let mut token: Option<String> = None;
        loop {
            let range = ListRange::Page { limit, continue_token: token.as_deref() };
            match self.page(&range, &mut stage).await {
                Ok((_, Some(next))) => token = Some(next),
                Ok((version, None)) => return Ok(Some((stage, version))),
                Err(failure) if failure.is_expired() && token.is_some() => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// One request of a list: its version, and the token for the next page.
    async fn page(
        &self,
        range: &ListRange<'_>,
        stage: &mut Stage<T>,
    ) -> Result<(ResourceVersion, Option<String>), Failure> {
        let parts = &self.parts;
        let bytes = parts.send(parts.target.list(range), parts.config.answer_timeout).await?;
        let mut items = ItemStream::new(bytes, parts.decoder.clone(), parts.env.clone());
        while let Some(items) = items.next().await? {
            for item in items {
                match item {
                    Decoded::Object(object) => stage.insert(object),
                    Decoded::Skipped(skipped) => self.keep_known(stage, skipped),
                }
            }
        }
        let list = items.finish()?;
        if !parts.target.accepts_list(&list.api_version, &list.kind) {
            let target = &parts.target;
            return Err(Failure::WrongKind {
                expected: format!("{} {}List", target.api_version, target.kind),
                found: format!("{} {}", list.api_version, list.kind),
            });
        }
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        let version = version.ok_or(Failure::NoResourceVersion)?;
        Ok((version.as_str().into(), list.metadata.continue_.filter(|token| !token.is_empty())))
    }

    /// Hands a complete list on.
    async fn replace(&mut self, stage: Stage<T>, version: ResourceVersion) -> Result<(), Failure> {
        if let Some(last) = &self.last
            && version.is_before(last)
        {
            let failure = Failure::WentBack { from: last.clone(), to: version.clone() };
            if !self.forget_version {
                return Err(failure);
            }
            // The newest state that there is, is older than what we saw: the server was restored.
            self.parts.report(failure);
        }
        self.parts.fifo.ready().await;
        self.parts.fifo.replace(stage.into_list(), version.clone());
        self.last = Some(version);
        self.forget_version = false;
        *self.parts.trouble.lock() = None;
        Ok(())
    }

    async fn after_failed_list(&mut self, failure: Failure) {
        let wants_newest =
            failure.is_expired() || failure.is_too_large() || matches!(failure, Failure::WentBack { .. });
        if wants_newest && !self.forget_version {
            tracing::debug!(%failure, "listing again without a version");
            self.forget_version = true;
            return;
        }
        self.wait_after(failure).await;
    }

    /// Watches until a list is needed, and says why.
    async fn watch(&mut self, mut stream: Option<EventStream<T>>) -> &'static str {
        loop {
            let started = self.parts.env.instant();
            let mut delivered = 0;
            let result = self.watch_once(stream.take(), &mut delivered).await;
            let failure = match result {
                Ok(()) if delivered == 0 && started.elapsed() < Duration::from_secs(1) => Failure::ShortWatch,
                Ok(()) => continue,
                Err(failure) => failure,
            };
            if failure.is_expired() {
                tracing::debug!(%failure, "the watch is too old");
                return failure.as_label();
            }
            self.forget_version |= failure.is_too_large() || matches!(failure, Failure::WentBack { .. });
            let (needs_list, reason) = (self.forget_version || !failure.is_passing(), failure.as_label());
            self.wait_after(failure).await;
            if needs_list {
                return reason;
            }
        }
    }

    /// One watch, until the server closes it.
    async fn watch_once(
        &mut self,
        stream: Option<EventStream<T>>,
        delivered: &mut usize,
    ) -> Result<(), Failure> {
        let mut stream = match stream {
            Some(stream) => stream,
            None => self.open_watch().await?,
        };
        while let Some(events) = stream.next().await? {
            *delivered += events.len();
            self.deliver(events).await?;
        }
        Ok(())
    }

    async fn open_watch(&self) -> Result<EventStream<T>, Failure> {
        let parts = &self.parts;
        let watch_timeout = parts.config.random_watch_timeout(&parts.env);
        // There is always a version: a watch follows a list.
        let last = self.last.as_ref().ok_or(Failure::NoResourceVersion)?;
        let request = parts.target.watch(last, watch_timeout);
        let bytes = parts.send(request, parts.config.silence(watch_timeout)).await?;
        Ok(EventStream::new(bytes, parts.decoder.clone(), parts.env.clone()))
    }

    /// Hands events on, with the version that they lead up to. Those before a bad one still count.
    async fn deliver(&mut self, events: Vec<Event<T>>) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        self.parts.fifo.ready().await;
        let mut deltas = Vec::with_capacity(events.len());
        let mut result = Ok(());
        for event in events {
            self.parts.metrics.count_event(&event);
            result = self.take(event, &mut deltas);
            if result.is_err() {
                break;
            }
        }
        if let Some(last) = &self.last {
            self.parts.fifo.push(deltas, last.clone());
        }
        if result.is_ok() {
            *self.parts.trouble.lock() = None;
        }
        result
    }

    fn take(&mut self, event: Event<T>, deltas: &mut Vec<Delta<T>>) -> Result<(), Failure> {
        let (decoded, delta): (_, MakeDelta<T>) = match event {
            Event::Added(decoded) => (decoded, Delta::Added),
            Event::Modified(decoded) => (decoded, Delta::Updated),
            Event::Deleted(decoded) => {
                (decoded, |object| Delta::Deleted(Deleted { object, is_tombstone: false }))
            }
            Event::Bookmark { version, .. } => return self.advance(version),
            Event::Error(status) => return Err(Failure::from_status(*status, None)),
            Event::Malformed(words) => return Err(Failure::Malformed { expected: "a watch event", words }),
        };
        match decoded {
            Decoded::Object(object) => match object.version() {
                Some(version) => {
                    self.advance(version.clone())?;
                    deltas.push(delta(object));
                }
                None => {
                    let message = "it has no resourceVersion".to_owned();
                    self.parts.skip(Skipped { key: Some(object.key().clone()), version: None, message });
                }
            },
            Decoded::Skipped(skipped) => self.take_skipped(skipped, delta, deltas)?,
        }
        Ok(())
    }

    /// Of an object that cannot be decoded, the version counts, and that it is gone.
    fn take_skipped(
        &mut self,
        skipped: Skipped,
        delta: MakeDelta<T>,
        deltas: &mut Vec<Delta<T>>,
    ) -> Result<(), Failure> {
        if let Some(version) = &skipped.version {
            self.advance(version.clone())?;
        }
        if let Some(key) = &skipped.key
            && let Some(object) = self.parts.fifo.known(key)
            && let Delta::Deleted(_) = delta(object.clone())
        {
            deltas.push(Delta::Deleted(Deleted { object, is_tombstone: true }));
        }
        self.parts.skip(skipped);
        Ok(())
    }

    fn advance(&mut self, version: ResourceVersion) -> Result<(), Failure> {
        if let Some(last) = &self.last
            && version.is_before(last)
        {
            return Err(Failure::WentBack { from: last.clone(), to: version });
        }
        self.last = Some(version);
        Ok(())
    }

    /// Reports a failure and waits: as long as the server asks, and at least as long as the back-off says.
    async fn wait_after(&mut self, failure: Failure) {
        let wait = self.backoff.next().max(failure.retry_after().unwrap_or_default());
        self.parts.report(failure);
        tokio::time::sleep(wait).await;
    }
}

/// An error and what caused it, in words, none twice.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        source = cause.source();
    }
    words
}
