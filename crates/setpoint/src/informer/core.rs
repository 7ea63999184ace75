//! The heart of an informer: applies batches to the cache and distributes what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_env::watch;
use setpoint_env::{Env, Task};
use tokio::sync::Notify;

use super::apply::{Change, apply};
use super::fold::FoldBuffer;
use super::handler::Owner;
use super::listener::{Listener, Teller};
use super::observer::{Applied, Observer};
use crate::facts::{CacheChanges, CacheName, Facts, HandlerState, LoopEvent};
use crate::metrics::{Gauge, names};
use crate::{
    Batch, DeltaFifo, EventHandler, HandlerOptions, Held, Indexer, Metrics, Object, Registration, Scope,
};

/// The cache and those who are told about it.
pub(super) struct Core<T> {
    pub(super) indexer: Arc<Indexer<T>>,
    pub(super) env: Env,
    pub(super) name: String,
    /// Its number among the caches of its facts.
    pub(super) id: u64,
    pub(super) metrics: Metrics,
    pub(super) facts: Facts,
    pub(super) resync: Option<Duration>,
    listeners: Mutex<Listeners<T>>,
    /// How far the cache has got; changes with every batch.
    progress: watch::Sender<Progress>,
    store_objects: Gauge,
}

/// Counts of what was applied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) batches: u64,
    pub(super) changes: u64,
}

struct Listeners<T> {
    next_id: u64,
    all: BTreeMap<u64, Entry<T>>,
    observers: Vec<Weak<dyn Observer<T>>>,
    /// Scopes whose first list has not been applied.
    unsynced: BTreeSet<Scope>,
    /// Scopes whose tasks panicked, until a list has been applied again.
    restarting: BTreeSet<Scope>,
}

struct Entry<T> {
    /// `None` for one that reads the cache by itself.
    listener: Option<Arc<Listener<T>>>,
    handler_name: String,
    task: Task<()>,
}

impl<T> std::fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Object> Core<T> {
    pub(super) fn new(
        indexer: Arc<Indexer<T>>,
        scopes: impl IntoIterator<Item = Scope>,
        (name, id): (String, u64),
        env: Env,
        metrics: Metrics,
        facts: Facts,
        resync: Option<Duration>,
    ) -> Core<T> {
        let unsynced = scopes.into_iter().collect();
        let store_objects = metrics.gauge(names::STORE_OBJECTS, &[&name]);
        Core {
            indexer,
            env,
            name,
            id,
            metrics,
            facts,
            resync,
            listeners: Mutex::new(Listeners {
                next_id: 0,
                all: BTreeMap::new(),
                observers: Vec::new(),
                unsynced,
                restarting: BTreeSet::new(),
            }),
            progress: watch::Sender::new(Progress::default()),
            store_objects,
        }
    }

    /// Applies what a reflector brings, for ever.
    pub(super) async fn run(self: Arc<Self>, scope: Scope, fifo: Arc<DeltaFifo<T>>) -> Infallible {
        let namespace = scope.to_string();
        let queued = self.metrics.gauge(names::QUEUED_ITEMS, &[&self.name, &namespace]);
        let version = self.metrics.gauge(names::STORE_VERSION, &[&self.name, &namespace]);
        loop {
            let batch = fifo.drain().await;
            self.apply(&scope, &batch);
            if let Some(watermark) = batch.version() {
                version.set(watermark.as_gauge());
            }
            drop(batch);
            queued.set(fifo.len() as u64);
            tokio::task::yield_now().await;
        }
    }

    /// One batch: one transaction, the watermark with it, then the handlers.
    fn apply(&self, scope: &Scope, batch: &Batch<'_, T>) {
        let mut listeners = self.listeners.lock();
        let is_first = listeners.unsynced.contains(scope);
        let changes = self.indexer.write(|writer| {
            let changes = apply(writer, batch, is_first);
            if let Some(version) = batch.version() {
                writer.set_watermark(scope, version.clone());
            }
            changes
        });
        self.store_objects.set(self.indexer.len() as u64);
        let is_first_list = is_first && batch.is_replace();
        if batch.is_replace() {
            listeners.restarting.remove(scope);
        }
        let is_heard = self.facts.is_heard();
        if is_heard {
            self.tell_applied(scope, batch, &changes);
        }
        let has_synced_now =
            batch.is_replace() && listeners.unsynced.remove(scope) && listeners.unsynced.is_empty();
        if !changes.is_empty() || has_synced_now {
            for entry in listeners.all.values() {
                let Some(listener) = &entry.listener else { continue };
                let mut buffer = listener.buffer.lock();
                let mut missed = Vec::new();
                if !is_first_list || !buffer.begin_with(&changes) {
                    for change in &changes {
                        if buffer.push(change)
                            && let Change::Deleted { deleted, .. } = change
                        {
                            missed.push(deleted);
                        }
                    }
                }
                if has_synced_now {
                    buffer.cache_has_synced();
                }
                let lag = buffer.lag();
                listener.lag.set(lag as u64);
                drop(buffer);
                listener.miss(missed);
                if is_heard {
                    self.facts.push(backlog(&self.name, &entry.handler_name, lag));
                }
                listener.news.notify_one();
            }
        }
        if !listeners.observers.is_empty() {
            let (version, is_list) = (batch.version(), batch.is_replace());
            listeners.observe(&Applied { scope, version, is_list, changes: &changes });
        }
        self.progress.send_modify(|progress| {
            progress.batches += 1;
            progress.changes += changes.len() as u64 + u64::from(has_synced_now);
        });
        drop(listeners);
        if is_heard {
            self.facts.wake();
        }
    }

    #[cold]
    fn tell_applied(&self, scope: &Scope, batch: &Batch<'_, T>, changes: &[Change<T>]) {
        self.facts.push(LoopEvent::Applied {
            cache: CacheName::new(self.id, &self.name, scope),
            version: batch.version().cloned(),
            is_list: batch.is_replace(),
            changes: CacheChanges::new(changes.iter().map(Change::told)),
        });
    }

    /// Adds an observer, as long as it lives. It learns first where the cache is now.
    pub(super) fn add_observer(&self, observer: &Arc<impl Observer<T> + 'static>, scopes: &[Scope]) {
        let mut listeners = self.listeners.lock();
        for scope in scopes {
            let version = self.indexer.watermark(scope);
            observer.applied(&Applied { scope, version: version.as_ref(), is_list: false, changes: &[] });
        }
        let weak: Weak<dyn Observer<T>> = Arc::downgrade(&(observer.clone() as Arc<dyn Observer<T>>));
        listeners.observers.push(weak);
    }

    /// Gives `read` the cached objects while no batch is being applied or distributed.
    pub(super) fn between_batches(&self, read: impl FnOnce(Vec<Held<T>>)) {
        let _no_batch = self.listeners.lock();
        read(self.indexer.view(|view| view.all()));
    }

    /// Adds a handler: it is told what is cached now, and then every change after that.
    pub(super) fn add_handler(
        self: &Arc<Self>,
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
    ) -> Registration {
        let mut listeners = self.listeners.lock();
        let id = listeners.take_id();
        let handler_name = options.name.unwrap_or_else(|| id.to_string());
        let listener = Arc::new(Listener {
            handler,
            buffer: Mutex::new(FoldBuffer::new(
                self.indexer.view(|view| view.all()),
                listeners.unsynced.is_empty(),
            )),
            news: Notify::new(),
            lag: self.metrics.gauge(names::HANDLER_LAG, &[&self.name, &handler_name]),
            panics: self.metrics.counter(names::HANDLER_PANICS, &[&self.name, &handler_name]),
        });
        let (synced, synced_receiver) = watch::channel(false);
        let teller = Teller {
            listener: listener.clone(),
            synced,
            resync: options.resync.or(self.resync),
            core: Arc::downgrade(self),
            env: self.env.clone(),
            facts: self.facts.clone(),
            names: (self.name.clone(), handler_name.clone()),
        };
        let task = self.env.spawn(teller.run());
        listeners.all.insert(id, Entry { listener: Some(listener), handler_name, task });
        self.registration(id, synced_receiver)
    }

    /// Adds a task that ends when it is unregistered, or with the informer.
    pub(super) fn add_task(
        self: &Arc<Self>,
        synced: watch::Receiver<bool>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Registration {
        let mut listeners = self.listeners.lock();
        let id = listeners.take_id();
        let entry = Entry { listener: None, handler_name: id.to_string(), task: self.env.spawn(task) };
        listeners.all.insert(id, entry);
        self.registration(id, synced)
    }

    fn registration(self: &Arc<Self>, id: u64, synced: watch::Receiver<bool>) -> Registration {
        let owner: Arc<dyn Owner> = self.clone();
        Registration::new(id, synced, Arc::downgrade(&owner))
    }

    /// Who is told, and how far each is behind.
    pub(super) fn handlers(&self) -> Vec<HandlerState> {
        let listeners = self.listeners.lock();
        let handlers = listeners.all.values().filter_map(|entry| {
            let backlog = entry.listener.as_ref()?.buffer.lock().lag();
            Some(HandlerState { handler: entry.handler_name.as_str().into(), backlog })
        });
        handlers.collect()
    }

    /// Takes every handler away.
    pub(super) fn take_all(&self) -> Vec<Task<()>> {
        let all = std::mem::take(&mut self.listeners.lock().all);
        all.into_values().map(|entry| entry.task).collect()
    }

    /// Whether every scope has a list in the cache, and follows the server since.
    pub(super) fn has_synced(&self) -> bool {
        let listeners = self.listeners.lock();
        listeners.unsynced.is_empty() && listeners.restarting.is_empty()
    }

    /// Whether a scope begins again after a panic.
    pub(super) fn is_restarting(&self) -> bool {
        !self.listeners.lock().restarting.is_empty()
    }

    /// The tasks of a scope panicked. It has not synced until a list has been applied again.
    pub(super) fn restart(&self, scope: &Scope) {
        self.listeners.lock().restarting.insert(scope.clone());
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

impl<T> Listeners<T> {
    fn observe(&mut self, batch: &Applied<'_, T>) {
        self.observers.retain(|observer| {
            let lives = observer.upgrade();
            lives.inspect(|observer| observer.applied(batch)).is_some()
        });
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

/// How far a handler is behind.
pub(super) fn backlog(resource: &str, handler: &str, backlog: usize) -> LoopEvent {
    LoopEvent::Handler { resource: resource.into(), handler: handler.into(), backlog }
}

impl<T: Object> Owner for Core<T> {
    fn backlog(&self, id: u64) -> usize {
        let listeners = self.listeners.lock();
        let listener = listeners.all.get(&id).and_then(|entry| entry.listener.as_ref());
        listener.map_or(0, |listener| listener.buffer.lock().len())
    }

    fn unregister(&self, id: u64) -> Option<Task<()>> {
        let entry = self.listeners.lock().all.remove(&id)?;
        self.metrics.remove(names::HANDLER_LAG, &[&self.name, &entry.handler_name]);
        Some(entry.task)
    }
}
