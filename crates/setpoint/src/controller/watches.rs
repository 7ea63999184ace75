//! Watches that come and go while a controller runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use setpoint_env::watch;

use super::enqueue::MapFn;
use super::sources::{Attached, Sources};
use super::{Key, owner_map};
use crate::watch::{IntoWatch, Watch, WatchId, Watchable};
use crate::{CacheSyncError, Held, IndexError, ObjectKey, ScopedResource};

/// The watches of a controller that runs, to add to and to take from: for operators of kinds that users make.
///
/// From [`Context::watches`](super::Context::watches) in a reconcile, or from
/// [`Controller::watches_handle`](super::Controller::watches_handle) before it runs. A cache starts with its first user,
/// and goes with the last one.
///
/// To add a watch takes until its first list is there, and a reconcile that waits keeps its worker. Let it wait for seconds
/// ([`Watches::sync_limit`]) where the kind may be one that cannot be listed, and try again later. If the wait is cut off,
/// as by [`Controller::time_limit`](super::Controller::time_limit), nothing is added.
///
/// ```
/// # use setpoint::kube::core::DynamicObject;
/// use std::time::Duration;
///
/// use setpoint::client::find_resource;
/// use setpoint::{Action, Context, ObjectKey, ReconcileError, Watch};
///
/// /// Each key names a kind (`widgets`) that users have made; its objects are watched from now on.
/// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Some(kind) = find_resource(&cx.client(), "example.com", "v1", key.name()).await? else {
///         return Ok(Action::done());
///     };
///     let all = Watch::dynamic(&kind);
///     let this = key.clone();
///     let watches = cx.watches()?.sync_limit(Duration::from_secs(5));
///     watches.watches(&all, move |_: &DynamicObject| vec![this.clone()]).await?;
///     println!("{} of them", cx.lister_of(&all)?.len());
///     Ok(Action::done())
/// }
/// ```
pub struct Watches<Q = ObjectKey> {
    sources: watch::Receiver<Weak<Sources<Q>>>,
    primary: Option<Arc<ScopedResource>>,
    sync_limit: Option<Duration>,
}

impl<Q> Clone for Watches<Q> {
    fn clone(&self) -> Watches<Q> {
        let (sources, primary) = (self.sources.clone(), self.primary.clone());
        Watches { sources, primary, sync_limit: self.sync_limit }
    }
}

impl<Q> std::fmt::Debug for Watches<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watches")
    }
}

/// Why a watch was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The first list did not come in time. Nothing was added.
    #[error("the watch was not added")]
    CacheSync(#[from] CacheSyncError),
    /// An index of it has the name of another one of the same cache. Nothing was added.
    #[error("the watch was not added")]
    Index(#[from] IndexError),
    /// Somebody [removed](Watches::remove) it before its first list came.
    #[error("the watch was removed while it was added")]
    Removed,
    /// The controller does not run any more.
    #[error("the controller has ended")]
    Ended,
    /// The controller has no kind of its own that could own something, or its keys are not those of objects.
    #[error(
        "the keys of this controller are not those of one kind: use `Controller::watches_handle`, and `watches`"
    )]
    Keys,
}

impl<Q: Key> Watches<Q> {
    pub(super) fn new(
        sources: watch::Receiver<Weak<Sources<Q>>>,
        primary: Option<ScopedResource>,
    ) -> Watches<Q> {
        Watches { sources, primary: primary.map(Arc::new), sync_limit: None }
    }

    /// The same, where the first list of what is added here may take this long, instead of what
    /// [`Controller::sync_limit`](super::Controller::sync_limit) says.
    #[must_use]
    pub fn sync_limit(mut self, limit: Duration) -> Watches<Q> {
        self.sync_limit = Some(limit);
        self
    }

    /// Reconciles the keys that `map` names when an object changes, as [`Controller::watches`](super::Controller::watches)
    /// does, from now on. Returns when the objects that are there are cached, and can be read.
    ///
    /// A watch that was added already stays as it is, with the `map` that it came with; the indices of this one are added
    /// to its cache.
    pub async fn watches<T: Watchable>(
        &self,
        watch: impl IntoWatch<T>,
        map: impl Fn(&T) -> Vec<Q> + Send + Sync + 'static,
    ) -> Result<(), WatchError> {
        self.add(watch.into_watch(), Some(Arc::new(move |object: &Held<T>| map(object)))).await
    }

    /// Caches objects that cause no reconcile, as [`Controller::reads`](super::Controller::reads) does.
    pub async fn reads<T: Watchable>(&self, watch: impl IntoWatch<T>) -> Result<(), WatchError> {
        self.add(watch.into_watch(), None).await
    }

    /// Takes away a watch that was added here. Says whether there was one. When this returns, nothing of it comes into the
    /// queue any more.
    pub async fn remove<T: Watchable>(&self, watch: &Watch<T>) -> Result<bool, WatchError> {
        let sources = self.sources().await?;
        let added = sources.added.lock().remove(&watch.id());
        match added {
            Some(attached) => {
                sources.detach(attached).await;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn add<T: Watchable>(&self, watch: Watch<T>, map: Option<MapFn<T, Q>>) -> Result<(), WatchError> {
        let sources = self.sources().await?;
        let mut waiting = {
            let mut added = sources.added.lock();
            let attached = match added.entry(watch.id()) {
                Entry::Occupied(there) => {
                    sources.add_indices(&watch)?;
                    there.get().clone()
                }
                Entry::Vacant(place) => place.insert(sources.lease(&watch, map)?).clone(),
            };
            Waiting::new(sources.clone(), watch.id(), attached)
        };
        let limit = self.sync_limit.unwrap_or(sources.sync_limit);
        let synced = sources.catch_up(&waiting.attached, limit).await;
        if synced.is_ok() && waiting.publish() {
            return Ok(());
        }
        if let Some(attached) = waiting.give_up() {
            sources.detach(attached).await;
        }
        synced?;
        Err(WatchError::Removed)
    }

    /// The sources of the controller, when it runs.
    async fn sources(&self) -> Result<Arc<Sources<Q>>, WatchError> {
        let mut sources = self.sources.clone();
        let begun = sources.wait_for(|sources| sources.strong_count() > 0).await;
        begun.ok().and_then(|sources| sources.upgrade()).ok_or(WatchError::Ended)
    }
}

/// Somebody who waits until a watch has synced. If nobody does any more, also because a reconcile was cut off, it goes.
struct Waiting<Q: Key> {
    sources: Arc<Sources<Q>>,
    id: WatchId,
    attached: Arc<Attached<Q>>,
    has_ended: bool,
}

impl<Q: Key> Waiting<Q> {
    /// Call it while nobody else can add or remove watches.
    fn new(sources: Arc<Sources<Q>>, id: WatchId, attached: Arc<Attached<Q>>) -> Waiting<Q> {
        attached.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { sources, id, attached, has_ended: false }
    }

    fn is_there(&self, added: &BTreeMap<WatchId, Arc<Attached<Q>>>) -> bool {
        added.get(&self.id).is_some_and(|other| Arc::ptr_eq(other, &self.attached))
    }

    /// Lets the watch be read, unless it was removed.
    fn publish(&self) -> bool {
        let added = self.sources.added.lock();
        let is_there = self.is_there(&added);
        if is_there {
            self.sources.publish(&self.attached);
        }
        is_there
    }

    /// Waits no longer. Takes the watch away, and gives it back, if it is not read and nobody else waits for it.
    fn give_up(&mut self) -> Option<Arc<Attached<Q>>> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        let mut added = self.sources.added.lock();
        let is_last = self.attached.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
        let is_kept = self.attached.is_published.load(Ordering::Relaxed);
        if is_last && !is_kept && self.is_there(&added) { added.remove(&self.id) } else { None }
    }
}

impl<Q: Key> Drop for Waiting<Q> {
    fn drop(&mut self) {
        if let Some(attached) = self.give_up() {
            self.sources.forget(&attached);
        }
    }
}

impl Watches<ObjectKey> {
    /// Reconciles the owner of an object when that changes, as [`Controller::owns`](super::Controller::owns) does.
    pub async fn owns<T: Watchable>(&self, watch: impl IntoWatch<T>) -> Result<(), WatchError> {
        let primary = self.primary.clone().ok_or(WatchError::Keys)?;
        self.add(watch.into_watch(), Some(owner_map(Some(primary)))).await
    }
}
