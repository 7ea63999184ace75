//! How the engines read their state.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::RwLock;

use tokio::sync::watch;

use super::cursor::Cursor;
use super::state::State;
use super::watch::Feed;
use super::{Batch, Chunk, Found, Freshness, Key, ListQuery, ReadError, Revision, Scan, Watch};

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
        let changed = self.write(|state| state.subscribe(collection, after))?;
        let feed = ViewFeed { view: self.clone(), collection: Arc::clone(collection) };
        Ok(Watch::new(Arc::new(feed), changed, after))
    }
}

struct ViewFeed {
    view: View,
    collection: Arc<str>,
}

impl Feed for ViewFeed {
    fn read(&self, after: Revision, limit: usize) -> Result<Batch, ReadError> {
        self.view.read(|state| state.events(&self.collection, after, limit))
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
