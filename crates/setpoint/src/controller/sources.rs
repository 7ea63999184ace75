//! What makes a controller reconcile: watches, each with the keys that its objects concern. Some are there from the
//! beginning, others come and go while it runs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use setpoint_env::Later;
use setpoint_env::watch;
use tokio::time::Instant;

use super::Key;
use super::caches::{Cache, Caches, Watched};
use super::enqueue::{Enqueue, MapFn, Rule};
use super::intake::Intake;
use super::listers::Listers;
use super::live;
use super::numbers::{Numbered, Numbers};
use crate::factory::Lease;
use crate::facts::CacheName;
use crate::watch::{Change, Watch, WatchId, Watchable};
use crate::workqueue::SourceNames;
use crate::{
    CacheSyncError, HandlerOptions, IndexError, Lister, Object, ObjectKey, Registration, SharedInformer,
    SharedInformerFactory, WorkQueue,
};

/// After so many objects a replay lets others run.
const OBJECTS_A_TURN: usize = 64;

/// A watch of a controller that does not run yet.
pub(super) struct Declared<Q>(Box<Attach<Q>>);

/// Adds it to the watches of a controller.
type Attach<Q> = dyn FnOnce(&Sources<Q>) -> Result<Arc<Attached<Q>>, IndexError> + Send;

impl<Q: Key> Declared<Q> {
    /// Without a map, what changes causes no reconcile.
    pub(super) fn new<T: Watchable>(watch: Watch<T>, map: Option<MapFn<T, Q>>) -> Declared<Q> {
        Declared(Box::new(move |sources| {
            let informer = sources.factory.informer_of(&watch);
            sources.attach(&watch, map, informer, None)
        }))
    }

    pub(super) fn attach(self, sources: &Sources<Q>) -> Result<Arc<Attached<Q>>, IndexError> {
        (self.0)(sources)
    }
}

impl Declared<ObjectKey> {
    /// What changes concerns the objects of another watch of the controller that have its key in an index.
    pub(super) fn of_referred<T: Watchable>(
        watch: Watch<T>,
        by: WatchId,
        index: String,
    ) -> Declared<ObjectKey> {
        Declared(Box::new(move |sources| {
            let listers = sources.listers.clone();
            let map: MapFn<T, ObjectKey> =
                Arc::new(move |object| listers.index_keys(&by, &index, &object.key().to_string()));
            let informer = sources.factory.informer_of(&watch);
            sources.attach(&watch, Some(map), informer, None)
        }))
    }
}

/// All watches of a controller that runs.
pub(super) struct Sources<Q> {
    pub(super) controller: String,
    pub(super) factory: SharedInformerFactory,
    pub(super) queue: WorkQueue<Q>,
    pub(super) intake: Arc<Intake<Q>>,
    pub(super) resync: Option<Duration>,
    pub(super) sync_limit: Duration,
    pub(super) caches: Arc<Caches>,
    pub(super) listers: Arc<Listers>,
    pub(super) names: SourceNames,
    pub(super) numbers: Numbers,
    pub(super) attached: Mutex<Vec<Arc<Attached<Q>>>>,
    /// Those that came while it runs.
    pub(super) added: Mutex<BTreeMap<WatchId, Arc<Attached<Q>>>>,
}

/// A kind that is being watched.
pub(super) struct Attached<Q> {
    id: WatchId,
    cache: Arc<dyn Cache>,
    list_in: Box<dyn Fn(&Listers) + Send + Sync>,
    /// None for what is only read.
    handler: Mutex<Option<Registration>>,
    has_heard: Option<watch::Receiver<bool>>,
    replay: Option<Box<dyn Replay<Q>>>,
    /// Whether its cache was listing or watching before.
    was_there: bool,
    /// How many wait until it has synced.
    pub(super) waiting: AtomicUsize,
    /// Whether it can be read.
    pub(super) is_published: AtomicBool,
    /// Of one that came while the controller runs. It goes last; then the cache goes too, if nobody else has it.
    _lease: Option<Lease>,
}

impl<Q> Attached<Q> {
    /// Waits until the cache has synced, and the handler has heard of it all: what it hears later is news.
    pub(super) async fn wait_for_sync(&self) {
        self.cache.wait_for_sync().await;
        if let Some(has_heard) = &self.has_heard {
            // If the handler is taken away meanwhile, nobody waits for it.
            let mut has_heard = has_heard.clone();
            let _heard = has_heard.wait_for(|has_heard| *has_heard).await;
        }
    }
}

impl<Q: Key> Sources<Q> {
    /// Watches for as long as what comes back is attached.
    pub(super) fn lease<T: Watchable>(
        &self,
        watch: &Watch<T>,
        map: Option<MapFn<T, Q>>,
    ) -> Result<Arc<Attached<Q>>, IndexError> {
        let (informer, lease) = self.factory.lease(watch);
        self.attach(watch, map, informer, Some(lease))
    }

    /// Adds the indices of a watch to the cache that it has already.
    pub(super) fn add_indices<T: Watchable>(&self, watch: &Watch<T>) -> Result<(), IndexError> {
        let (informer, _lease) = self.factory.lease(watch);
        ensure_indices(watch, &informer)
    }

    /// Watches, and lets what is told come into the queue.
    fn attach<T: Watchable>(
        &self,
        watch: &Watch<T>,
        map: Option<MapFn<T, Q>>,
        informer: SharedInformer<T>,
        lease: Option<Lease>,
    ) -> Result<Arc<Attached<Q>>, IndexError> {
        ensure_indices(watch, &informer)?;
        let (lister, was_there) = (informer.lister(), informer.has_started());
        let rule = map.map(|map| Arc::new(Rule { map, predicate: watch.predicate().clone() }));
        let registration = rule.clone().map(|rule| self.add_handler(&informer, rule));
        let numbers = self.number(&informer);
        let (id, list_id, listed) = (watch.id(), (watch.id(), watch.to_string()), lister.clone());
        let attached = Attached {
            id,
            list_in: Box::new(move |listers| listers.add(list_id.clone(), listed.clone())),
            has_heard: registration.as_ref().map(Registration::synced),
            handler: Mutex::new(registration),
            replay: rule.map(|rule| -> Box<dyn Replay<Q>> { Box::new(Cached { rule, lister }) }),
            cache: Arc::new(Watched::new(informer, self.queue.clone(), numbers)),
            was_there,
            waiting: AtomicUsize::new(0),
            is_published: AtomicBool::new(false),
            _lease: lease,
        };
        attached.cache.start();
        let attached = Arc::new(attached);
        self.attached.lock().push(attached.clone());
        Ok(attached)
    }

    fn add_handler<T: Watchable>(&self, informer: &SharedInformer<T>, rule: Arc<Rule<T, Q>>) -> Registration {
        let options = HandlerOptions { resync: self.resync, name: Some(self.controller.clone()) };
        let handler = Enqueue {
            rule,
            intake: self.intake.clone(),
            resource: informer.name().into(),
            has_managers: informer.keeps_managed_fields(),
        };
        informer.add_handler_with(handler, options)
    }

    /// The numbers of an informer's scopes as sources of the queue.
    fn number<T: Object>(&self, informer: &SharedInformer<T>) -> Numbered {
        let new: Vec<CacheName> = informer.cache_names().collect();
        let numbers = self.numbers.take(new.len() as u32);
        let mut names = self.names.write();
        for (number, name) in numbers.range().zip(new) {
            match names.get_mut(number as usize) {
                Some(old) => *old = name,
                None => names.push(name),
            }
        }
        numbers
    }

    /// From now on its objects can be read, and what is written is looked for in its cache.
    pub(super) fn publish(&self, attached: &Attached<Q>) {
        attached.is_published.store(true, Ordering::Relaxed);
        if self.caches.add(&attached.cache) {
            (attached.list_in)(&self.listers);
        }
    }

    /// Waits until all of these have synced, and says which ones have not in time.
    pub(super) async fn sync(
        &self,
        these: &[Arc<Attached<Q>>],
        limit: Duration,
    ) -> Result<(), CacheSyncError> {
        let synced = join_all(these.iter().map(|attached| attached.wait_for_sync()));
        if tokio::time::timeout(limit, synced).await.is_ok() {
            return Ok(());
        }
        let late = these.iter().filter_map(|attached| {
            let trouble = attached.cache.sync_state().err()?;
            Some((attached.cache.resource().to_owned(), trouble))
        });
        Err(CacheSyncError { not_synced: late.collect() })
    }

    /// The same for one that came while the controller runs: it is as new as the server was, also if its cache is an old
    /// one that others have. Keys are not held for what they wrote before it came.
    pub(super) async fn catch_up(
        &self,
        attached: &Arc<Attached<Q>>,
        limit: Duration,
    ) -> Result<(), CacheSyncError> {
        let ends = Instant::now().later(limit);
        self.sync(std::slice::from_ref(attached), limit).await?;
        if !attached.was_there || attached.is_published.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cache = &*attached.cache;
        let caught_up = tokio::time::timeout_at(ends, live::catch_up(cache, self.factory.client())).await;
        caught_up.map_err(|_| {
            let trouble = vec!["it is behind the server".to_owned()];
            CacheSyncError { not_synced: [(cache.resource().to_owned(), trouble)].into() }
        })
    }

    /// Stops watching: when this returns, nothing of it comes into the queue any more, and no key is held for it.
    pub(super) async fn detach(&self, attached: Arc<Attached<Q>>) {
        // Also if nobody waits until the end.
        let _released = Released(&attached);
        if let Some(handler) = self.hide(&attached) {
            handler.remove().await;
        }
    }

    /// The same at once, where nobody can wait: what the handler is about to queue may still come.
    pub(super) fn forget(&self, attached: &Attached<Q>) {
        let _released = Released(attached);
        drop(self.hide(attached));
    }

    /// Nobody can read it any more. Gives back its handler.
    fn hide(&self, attached: &Attached<Q>) -> Option<Registration> {
        self.attached.lock().retain(|other| !std::ptr::eq(&**other, attached));
        if self.caches.remove(&attached.cache) {
            self.listers.remove(&attached.id);
        }
        attached.handler.lock().take()
    }

    /// The keys that the cached objects concern, watch by watch.
    pub(super) async fn replay(&self, mut queue: impl FnMut(Q)) {
        let all = self.attached.lock().clone();
        for replay in all.iter().filter_map(|attached| attached.replay.as_deref()) {
            replay.keys().await.into_iter().for_each(&mut queue);
        }
    }
}

fn ensure_indices<T: Watchable>(watch: &Watch<T>, informer: &SharedInformer<T>) -> Result<(), IndexError> {
    watch.indices().try_for_each(|(name, function)| informer.ensure_index(name, function))
}

/// A watch for which no key is held any more when this goes.
struct Released<'a, Q>(&'a Attached<Q>);

impl<Q> Drop for Released<'_, Q> {
    fn drop(&mut self) {
        self.0.cache.release();
    }
}

/// A kind whose objects can be gone through again.
trait Replay<Q>: Send + Sync {
    /// The keys that the cached objects concern, in order, as if they all came now.
    fn keys(&self) -> BoxFuture<'_, Vec<Q>>;
}

struct Cached<T, Q> {
    rule: Arc<Rule<T, Q>>,
    lister: Lister<T>,
}

impl<T: Object, Q: Key> Replay<Q> for Cached<T, Q> {
    fn keys(&self) -> BoxFuture<'_, Vec<Q>> {
        Box::pin(async {
            let mut keys = Vec::new();
            for (n, object) in self.lister.view(|view| view.all()).into_iter().enumerate() {
                // A panic is the user's, and costs no other object its turn.
                let call = || match self.rule.predicate.passes(|| Change::Added(&object)) {
                    true => (self.rule.map)(&object),
                    false => Vec::new(),
                };
                match catch_unwind(AssertUnwindSafe(call)) {
                    Ok(concerned) => keys.extend(concerned),
                    Err(_) => {
                        tracing::error!(key = %object.key(), "a filter or a mapping panicked; the object is skipped");
                    }
                }
                if n % OBJECTS_A_TURN == OBJECTS_A_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
            keys.sort_unstable();
            keys.dedup();
            keys
        })
    }
}
