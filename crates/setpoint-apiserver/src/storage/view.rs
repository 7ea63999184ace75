//! How the engines read their state.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::RwLock;

use setpoint_env::watch;

use super::cursor::Cursor;
use super::state::State;
use super::watch::Feed;
use super::{Batch, Chunk, Field, Found, Freshness, Key, ListQuery, ReadError, Revision, Scan, Watch};

/// A state that its engine changes and everybody reads, behind one lock that is held for microseconds.
#[derive(Clone, Debug)]
pub(super) struct View {
    state: Arc<RwLock<State>>,
    /// Tells who waits for a revision; nobody does most of the time.
    moved: watch::Sender<Revision>,
}

impl View {
    pub(super) fn new(state: State) -> View {
        View { state: Arc::new(RwLock::new(state)), moved: watch::Sender::new(0) }
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.write();
        let outcome = change(&mut state);
        // Who waits has subscribed before looking at the revision, under the lock that is held here.
        if self.moved.receiver_count() > 0 {
            self.moved.send_replace(state.revision());
        }
        outcome
    }

    pub(super) fn get(&self, key: &Key, fresh: Freshness) -> BoxFuture<'static, Result<Found, ReadError>> {
        ready(self.read(|state| state.get(key, fresh)).map(|record| Found { record })).boxed()
    }

    pub(super) fn scan(&self, query: &ListQuery) -> BoxFuture<'static, Result<Box<dyn Scan>, ReadError>> {
        let cursor = self.read(|state| state.open(query));
        let view = self.clone();
        ready(cursor.map(|cursor| Box::new(ViewScan { view, cursor }) as Box<dyn Scan>)).boxed()
    }

    pub(super) fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        async move {
            let mut moved = self.moved.subscribe();
            while self.read(State::revision) < revision {
                if moved.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
        .boxed()
    }

    pub(super) fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        let changed = self.write(|state| state.subscribe(collection, after, None))?;
        let feed = ViewFeed { view: self.clone(), collection: Arc::clone(collection), value: None };
        Ok(Watch::new(Arc::new(feed), changed, after))
    }

    /// The same for the records whose field has a value, or had it.
    pub(super) fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        self.work_out(collection, after, field)?;
        let changed = self.write(|state| state.subscribe(collection, after, Some((field, value))))?;
        let value = Some((field, value.into()));
        let feed = ViewFeed { view: self.clone(), collection: Arc::clone(collection), value };
        Ok(Watch::new(Arc::new(feed), changed, after))
    }

    /// Reads a field of all that has happened since a revision. It is kept with the records: who needs it under the lock
    /// does not have to look for it there.
    fn work_out(&self, collection: &Arc<str>, mut after: Revision, field: Field) -> Result<(), ReadError> {
        loop {
            let batch = self.read(|state| state.some_events(collection, after, STEP))?;
            for event in &batch.events {
                field.value(&event.record);
                event.previous.as_deref().map(|previous| field.value(previous));
            }
            if !batch.more {
                return Ok(());
            }
            after = batch.complete_to;
        }
    }
}

/// How many events are read at once.
const STEP: usize = 256;

struct ViewFeed {
    view: View,
    collection: Arc<str>,
    value: Option<(Field, Box<str>)>,
}

impl Feed for ViewFeed {
    fn read(&self, after: Revision, limit: usize) -> Result<Batch, ReadError> {
        self.view.read(|state| match &self.value {
            Some((field, value)) => state.events_of(&self.collection, after, limit, (*field, value)),
            None => state.events(&self.collection, after, limit),
        })
    }
}

/// A scan of a state: the lock is held for one chunk.
struct ViewScan {
    view: View,
    cursor: Cursor,
}

impl Scan for ViewScan {
    fn revision(&self) -> Revision {
        self.cursor.revision()
    }

    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Chunk, ReadError>> {
        let cursor = &mut self.cursor;
        ready(self.view.read(|state| state.advance(cursor, limit))).boxed()
    }

    fn visited(&self) -> usize {
        self.cursor.visited()
    }
}
