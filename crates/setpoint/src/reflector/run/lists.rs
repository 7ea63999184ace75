//! How a reflector lists.

use tokio::time::timeout;

use super::{Pages, Run};
use crate::facts::ReflectorState;
use crate::reflector::Reflector;
use crate::reflector::decode::{Decoded, Skipped};
use crate::reflector::error::ReflectorFailure;
use crate::reflector::recovery::{AsOf, State};
use crate::reflector::request::ListRange;
use crate::reflector::stage::Stage;
use crate::reflector::stream::{EventStream, Events, ItemStream};
use crate::reflector::watch::Event;
use crate::{Object, ResourceVersion};

impl<T: Object> Run<T> {
    /// Collects the initial events until the bookmark that ends them; then goes on watching.
    pub(super) async fn streaming_list(&mut self, as_of: AsOf) -> Result<State, ReflectorFailure> {
        let parts = &self.parts;
        let asked = self.last.as_ref().filter(|_| as_of == AsOf::Seen);
        let watch_timeout = parts.config.random_watch_timeout(&parts.env);
        let patience = parts.config.initial_events_timeout;
        let bytes = parts.send(parts.target.streaming_list(asked, watch_timeout), patience).await?;
        let mut stream = EventStream::new(bytes, parts.decoder.clone(), parts.env.clone());
        let mut stage = Stage::new(parts.indexer.clone());
        // A server that ignores the question sends live events for ever: the bound is on the whole, too.
        let end = timeout(patience.saturating_mul(10), parts.collect(&mut stream, &mut stage)).await;
        let (version, rest) = match end {
            Ok(Err(ReflectorFailure::Silent(_))) | Err(_) => {
                return Err(ReflectorFailure::EndlessList(patience));
            }
            Ok(result) => result?,
        };
        self.replace(stage, version, as_of).await?;
        stream.set_silence(self.parts.config.silence(watch_timeout));
        // What is wrong with these is the business of the watch: the list is complete.
        stream.give_back(rest);
        self.stream = Some(stream);
        Ok(State::Watch)
    }

    /// Lists without streaming. The newest state comes in pages; "at least as new as" comes whole, since
    /// asking for pages of it would make the server read them from its database.
    pub(super) async fn list(&mut self, as_of: AsOf) -> Result<State, ReflectorFailure> {
        self.pages = None;
        let seen = self.last.as_ref().map(ToString::to_string);
        let from_cache = self.parts.config.list_from_cache.then(|| "0".to_owned());
        match seen.or(from_cache).filter(|_| as_of == AsOf::Seen) {
            Some(version) => self.whole_list(Some(&version), as_of).await,
            None => self.page().await,
        }
    }

    /// Lists in one answer.
    pub(super) async fn whole_list(
        &mut self,
        version: Option<&str>,
        as_of: AsOf,
    ) -> Result<State, ReflectorFailure> {
        self.pages = None;
        let mut stage = Stage::new(self.parts.indexer.clone());
        let (version, _) = self.parts.list_into(&ListRange::Whole(version), &mut stage).await?;
        self.replace(stage, version, as_of).await?;
        Ok(State::Watch)
    }

    /// Lists the first page, or the one after those that have come.
    pub(super) async fn page(&mut self) -> Result<State, ReflectorFailure> {
        let first = || Pages { stage: Stage::new(self.parts.indexer.clone()), token: None };
        let mut pages = self.pages.take().unwrap_or_else(first);
        let limit = self.parts.config.page_size;
        let range = ListRange::Page { limit, continue_token: pages.token.as_deref() };
        match self.parts.list_into(&range, &mut pages.stage).await {
            Ok((version, None)) => {
                self.replace(pages.stage, version, AsOf::Newest).await?;
                Ok(State::Watch)
            }
            Ok((_, token)) => {
                self.pages = Some(Pages { token, ..pages });
                Ok(State::Page)
            }
            // It may be asked for again.
            Err(failure) => {
                self.pages = Some(pages);
                Err(failure)
            }
        }
    }

    /// Hands a complete list on.
    async fn replace(
        &mut self,
        stage: Stage<T>,
        version: ResourceVersion,
        as_of: AsOf,
    ) -> Result<(), ReflectorFailure> {
        if let Some(last) = &self.last
            && version.is_before(last)
        {
            let failure = ReflectorFailure::WentBack { from: last.clone(), to: version.clone() };
            if as_of == AsOf::Seen {
                return Err(failure);
            }
            // The newest state that there is, is older than what we saw: the server was restored.
            self.parts.report(failure);
        }
        self.parts.fifo.ready().await;
        let list = stage.into_list();
        self.parts.tell(|| ReflectorState::Listed { objects: list.len(), version: version.clone() });
        self.parts.fifo.replace(list, version.clone());
        self.last = Some(version);
        *self.parts.trouble.lock() = None;
        Ok(())
    }
}

impl<T: Object> Reflector<T> {
    /// The version at the end of the initial events, and the events that came after it in the same piece.
    async fn collect(
        &self,
        stream: &mut EventStream<T>,
        stage: &mut Stage<T>,
    ) -> Result<(ResourceVersion, Events<T>), ReflectorFailure> {
        while let Some(Events { events, bytes }) = stream.next().await? {
            let mut events = events.into_iter();
            while let Some(event) = events.next() {
                self.metrics.count_event(&event);
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
                        return Ok((version, Events { events: events.collect(), bytes }));
                    }
                    Event::Bookmark { .. } => {}
                    Event::Error(status) => return Err(ReflectorFailure::from_status(*status, None)),
                    Event::Malformed(words) => {
                        return Err(ReflectorFailure::Malformed { expected: "a watch event", words });
                    }
                }
            }
        }
        // It closed before it was done: whatever the server did, it was no streaming list.
        Err(ReflectorFailure::ShortWatch)
    }

    /// An object that cannot be decoded is still there: what the cache knows of it stays.
    fn keep_known(&self, stage: &mut Stage<T>, skipped: Skipped) {
        if let Some(key) = &skipped.key
            && let Some(known) = self.fifo.known(key)
        {
            stage.insert(known);
        }
        self.skip(skipped);
    }

    /// One request of a list: its version, and the token for the next page.
    async fn list_into(
        &self,
        range: &ListRange<'_>,
        stage: &mut Stage<T>,
    ) -> Result<(ResourceVersion, Option<String>), ReflectorFailure> {
        let bytes = self.send(self.target.list(range), self.config.answer_timeout).await?;
        let mut items = ItemStream::new(bytes, self.decoder.clone(), self.env.clone());
        while let Some(items) = items.next().await? {
            for item in items {
                match item {
                    Decoded::Object(object) => stage.insert(object),
                    Decoded::Skipped(skipped) => self.keep_known(stage, skipped),
                }
            }
        }
        let list = items.finish()?;
        if !self.target.accepts_list(&list.api_version, &list.kind) {
            let target = &self.target;
            return Err(ReflectorFailure::WrongKind {
                expected: format!("{} {}List", target.api_version, target.kind),
                found: format!("{} {}", list.api_version, list.kind),
            });
        }
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        let version = version.ok_or(ReflectorFailure::NoResourceVersion)?;
        Ok((version.as_str().into(), list.metadata.continue_.filter(|token| !token.is_empty())))
    }
}
