//! The memory engine: a state, and nothing behind it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use setpoint_env::Env;

use super::observer::Observer;
use super::state::State;
use super::view::View;
use super::write::Write;
use super::{
    Change, CommitError, Field, Found, Freshness, Key, Limits, ListQuery, ReadError, Record, Revision, Scan,
    Snapshot, Stats, Storage, Watch,
};

/// Keeps everything in memory; what it holds ends with it.
#[derive(Debug)]
pub(crate) struct Memory {
    env: Env,
    view: View,
    observer: Option<Observer>,
}

impl Memory {
    pub(crate) fn new(limits: Limits) -> Memory {
        Memory { env: Env::system(), view: View::new(State::new(limits)), observer: None }
    }

    /// The same, with another clock.
    pub(crate) fn timed(self, env: Env) -> Memory {
        Memory { env, ..self }
    }

    /// The same, with somebody who is told of every change.
    pub(crate) fn observed(self, observer: Option<Observer>) -> Memory {
        Memory { observer, ..self }
    }

    fn apply(&self, state: &mut State, change: Change) -> Result<Arc<Record>, CommitError> {
        let current = state.find(&change.key).cloned();
        let write = Write::new(change, current.as_ref(), state.revision() + 1, self.env.now())?;
        let record = Arc::clone(&write.record);
        if let Some(observer) = &self.observer {
            observer.tell(&write);
        }
        state.apply(write);
        state.trim(|_, _| {});
        Ok(record)
    }
}

impl Storage for Memory {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        self.view.get(key, fresh)
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        self.view.scan(query)
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.view.reached(revision)
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        ready(self.view.write(|state| self.apply(state, change))).boxed()
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        self.view.watch(collection, after)
    }

    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        self.view.watch_value(collection, after, field, value)
    }

    fn revision(&self) -> Revision {
        self.view.read(State::revision)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, usize> {
        let count = self.view.write(|state| {
            state.trim(|_, _| {});
            state.expired(now).into_iter().filter_map(|change| self.apply(state, change).ok()).count()
        });
        ready(count).boxed()
    }

    fn compact(&self, up_to: Revision) {
        self.view.write(|state| state.compact(up_to, |_, _| {}));
    }

    fn age(&self, up_to: Revision) {
        self.view.write(|state| state.age(up_to, |_, _| {}));
    }

    fn stats(&self) -> Stats {
        self.view.read(State::stats)
    }

    fn snapshot(&self) -> Snapshot {
        self.view.read(State::snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::storage::conformance::conformance!(async |limits| Memory::new(limits));
}
