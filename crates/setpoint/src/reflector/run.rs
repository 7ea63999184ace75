//! A reflector at work: one request after the other, each as its state says.

mod lists;
mod watches;

use std::convert::Infallible;
use std::sync::Arc;

use super::Reflector;
use super::backoff::BackoffState;
use super::error::ReflectorFailure;
use super::recovery::{AsOf, Recovery, State, Step};
use super::stage::Stage;
use super::stream::EventStream;
use crate::facts::ReflectorState;
use crate::{Object, ResourceVersion};

pub(super) struct Run<T> {
    parts: Arc<Reflector<T>>,
    state: State,
    recovery: Recovery,
    /// The newest version seen: where the next watch starts.
    last: Option<ResourceVersion>,
    /// The pages of a list so far.
    pages: Option<Pages<T>>,
    /// The watch that a streaming list has become.
    stream: Option<EventStream<T>>,
}

/// A list that comes in pages.
struct Pages<T> {
    stage: Stage<T>,
    /// Names the next page.
    token: Option<String>,
}

impl<T: Object> Run<T> {
    /// Begins with a list, which must not be older than what the cache has.
    pub(super) fn new(parts: Arc<Reflector<T>>) -> Run<T> {
        let backoff = BackoffState::new(parts.config.backoff, parts.env.clone());
        let recovery = Recovery::new(backoff, parts.config.streaming);
        let last = parts.indexer.watermark(&parts.target.scope);
        Run { state: recovery.list(AsOf::Seen), parts, recovery, last, pages: None, stream: None }
    }

    /// Makes requests for ever. Which one comes next is what the last one says if it worked, and what the table
    /// of recoveries says if it did not.
    pub(super) async fn forever(mut self) -> Infallible {
        loop {
            let before = self.last.clone();
            self.parts.tell(|| self.told());
            let result = self.request().await;
            if result.is_ok() || self.last != before {
                self.recovery.worked();
            }
            self.state = match result {
                Ok(next) => next,
                Err(failure) => self.recover(failure).await,
            };
        }
    }

    /// The request that comes now, as a fact.
    fn told(&self) -> ReflectorState {
        match self.state {
            State::StreamingList(_) => ReflectorState::Listing { is_streaming: true },
            State::List(_) | State::Page | State::WholeList => {
                ReflectorState::Listing { is_streaming: false }
            }
            State::Watch => ReflectorState::Watching { from: self.last.clone() },
        }
    }

    async fn request(&mut self) -> Result<State, ReflectorFailure> {
        match self.state {
            State::StreamingList(as_of) => self.streaming_list(as_of).await,
            State::List(as_of) => self.list(as_of).await,
            State::Page => self.page().await,
            State::WholeList => self.whole_list(None, AsOf::Newest).await,
            State::Watch => self.watch().await,
        }
    }

    async fn recover(&mut self, failure: ReflectorFailure) -> State {
        let Step { next, pause } = self.recovery.after(self.state, &failure);
        if self.state == State::Watch && next != State::Watch {
            self.parts.metrics.relist(failure.as_label());
        }
        self.parts.tell(|| ReflectorState::Failed {
            error: failure.to_string(),
            pause,
            lists_next: next != State::Watch,
        });
        if pause.is_zero() && matches!(failure, ReflectorFailure::Refused { .. }) {
            // A server that says what it can do instead is not in trouble.
            tracing::debug!(%failure, ?next, "the server refused a request; sending another kind of request");
        } else {
            self.parts.report(failure);
            tokio::select! {
                biased;
                // Whoever asks has just had an answer from the server.
                () = self.parts.target.again.notified() => return self.recovery.list(AsOf::Newest),
                () = tokio::time::sleep(pause) => {}
            }
        }
        next
    }
}

#[cfg(test)]
mod tests;
