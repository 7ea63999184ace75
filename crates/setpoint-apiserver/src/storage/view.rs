//! How the engines read their state.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::RwLock;

use super::state::State;
use super::watch::Feed;
use super::{Batch, Found, Key, ListQuery, Page, ReadError, Revision, Watch};

/// A state that its engine changes and everybody reads, behind one lock that is held for microseconds.
#[derive(Clone, Debug)]
pub(super) struct View {
    state: Arc<RwLock<State>>,
}

impl View {
    pub(super) fn new(state: State) -> View {
        View { state: Arc::new(RwLock::new(state)) }
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write())
    }

    pub(super) fn get(&self, key: &Key) -> BoxFuture<'static, Result<Found, ReadError>> {
        let record = self.read(|state| state.find(key).cloned());
        ready(Ok(Found { record })).boxed()
    }

    pub(super) fn list(&self, query: &ListQuery) -> BoxFuture<'static, Result<Page, ReadError>> {
        ready(self.read(|state| state.list(query))).boxed()
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
