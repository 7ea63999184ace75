//! How a reflector watches.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use crate::facts::{CacheChange, CacheChanges, LoopEvent};
use crate::reflector::Reflector;
use crate::reflector::decode::{Decoded, Skipped};
use crate::reflector::error::ReflectorFailure;
use crate::reflector::recovery::{AsOf, State};
use crate::reflector::stream::{EventStream, Events};
use crate::reflector::watch::Event;
use crate::{Cause, Deleted, Delta, Held, Object, ResourceVersion};

type MakeDelta<T> = fn(Held<T>) -> Delta<T>;

/// A watch that ends sooner and brought nothing new was none.
const SHORT: Duration = Duration::from_secs(1);

impl<T: Object> Run<T> {
    /// One watch, until the server closes it.
    pub(super) async fn watch(&mut self) -> Result<State, ReflectorFailure> {
        let (started, before) = (self.parts.env.instant(), self.last.clone());
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            // There is always a version: a watch follows a list.
            None => {
                self.parts.open_watch(before.as_ref().ok_or(ReflectorFailure::NoResourceVersion)?).await?
            }
        };
        let parts = Arc::clone(&self.parts);
        let mut again = pin!(parts.target.again.notified());
        loop {
            let events = tokio::select! {
                biased;
                events = stream.next() => events?,
                () = &mut again => {
                    self.parts.metrics.relist("asked");
                    return Ok(self.recovery.list(AsOf::Newest));
                }
            };
            let Some(events) = events else { break };
            self.deliver(events).await?;
        }
        if self.last == before && started.elapsed() < SHORT {
            return Err(ReflectorFailure::ShortWatch);
        }
        Ok(State::Watch)
    }

    /// Hands events on, with the version that they lead up to. Those before a bad one still count.
    ///
    /// While the fifo is full, nothing is read. If that takes so long that the server ends the watch, the next one
    /// starts where this one stopped, or with a list if the server has forgotten by then.
    async fn deliver(&mut self, Events { events, bytes }: Events<T>) -> Result<(), ReflectorFailure> {
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
            let parts = &self.parts;
            let told = parts.facts.is_heard().then(|| CacheChanges::new(deltas.iter().map(told)));
            parts.fifo.push_received(deltas, last.clone(), bytes);
            if let Some(changes) = told {
                let (cache, pending) = (parts.cache_name(), parts.fifo.len());
                parts.facts.tell(|| LoopEvent::Received {
                    cache,
                    version: Some(last.clone()),
                    changes,
                    pending,
                });
            }
        }
        if result.is_ok() {
            *self.parts.trouble.lock() = None;
        }
        result
    }

    fn take(&mut self, event: Event<T>, deltas: &mut Vec<Delta<T>>) -> Result<(), ReflectorFailure> {
        let (decoded, delta): (_, MakeDelta<T>) = match event {
            Event::Added(decoded) => (decoded, Delta::Added),
            Event::Modified(decoded) => (decoded, Delta::Updated),
            Event::Deleted(decoded) => {
                (decoded, |object| Delta::Deleted(Deleted { object, is_tombstone: false }))
            }
            Event::Bookmark { version, .. } => return self.advance(version),
            Event::Error(status) => return Err(ReflectorFailure::from_status(*status, None)),
            Event::Malformed(words) => {
                return Err(ReflectorFailure::Malformed { expected: "a watch event", words });
            }
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
    ) -> Result<(), ReflectorFailure> {
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

    fn advance(&mut self, version: ResourceVersion) -> Result<(), ReflectorFailure> {
        if let Some(last) = &self.last
            && version.is_before(last)
        {
            return Err(ReflectorFailure::WentBack { from: last.clone(), to: version });
        }
        self.last = Some(version);
        Ok(())
    }
}

/// A change that a watch brought, as a fact.
#[cold]
fn told<T: Object>(delta: &Delta<T>) -> CacheChange {
    let (cause, object) = match delta {
        Delta::Added(object) => (Cause::Added, object),
        Delta::Updated(object) | Delta::Replaced(object) => (Cause::Updated, object),
        Delta::Deleted(deleted) => (Cause::Deleted, &deleted.object),
        Delta::Sync(object) => (Cause::Resync, object),
    };
    CacheChange { key: object.key().clone(), cause, version: object.version().cloned() }
}

impl<T: Object> Reflector<T> {
    /// Begins a watch after a version.
    async fn open_watch(&self, last: &ResourceVersion) -> Result<EventStream<T>, ReflectorFailure> {
        let watch_timeout = self.config.random_watch_timeout(&self.env);
        let request = self.target.watch(last, watch_timeout);
        let bytes = self.send(request, self.config.silence(watch_timeout)).await?;
        Ok(EventStream::new(bytes, self.decoder.clone(), self.env.clone()))
    }
}
