//! The queue of Events that are to be written, and the task that writes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::{core, events};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use setpoint_env::Env;
use setpoint_env::watch;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::correlate::{Correlator, Series, SeriesKey};
use super::event::{Event, Reporter};
use super::object::{EventApi, core_v1, events_v1, namespace, patch};
use crate::Metrics;
use crate::metrics::{Counter, names};

/// How often the write of an Event is tried.
const TRIES: u32 = 12;
/// The first wait between two tries; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How many Events are written at the same time, unless something else is said. Of one Event there is one write at a time.
pub(super) const WRITERS: usize = 8;

/// Events that are to be written, each once however often it happened.
pub(super) struct Queue {
    env: Env,
    capacity: usize,
    state: Mutex<State>,
    /// How many Events are not written yet, those under way included.
    unsent: watch::Sender<usize>,
    /// Told when there is something to write.
    ready: Notify,
    counters: Counters,
}

struct State {
    correlator: Correlator,
    /// What is to be written, and is not being written.
    order: VecDeque<SeriesKey>,
    waiting: BTreeMap<SeriesKey, Series>,
    under_way: BTreeSet<SeriesKey>,
}

struct Counters {
    written: Counter,
    spam: Counter,
    full: Counter,
    failed: Counter,
}

impl Queue {
    pub(super) fn new(source: Reporter, env: Env, metrics: &Metrics, capacity: usize) -> Queue {
        let state = State {
            correlator: Correlator::new(),
            order: VecDeque::new(),
            waiting: BTreeMap::new(),
            under_way: BTreeSet::new(),
        };
        let counters = Counters::new(&source.controller, metrics);
        Queue {
            env,
            capacity,
            state: Mutex::new(state),
            unsent: watch::Sender::new(0),
            ready: Notify::new(),
            counters,
        }
    }

    /// Takes an event, folded into what is known. Never waits.
    pub(super) fn record(&self, regarding: ObjectReference, event: Event) {
        let (now, wall) = (self.env.instant(), self.env.now());
        let mut state = self.state.lock();
        let Some((key, series)) = state.correlator.observe(regarding, event, now, wall) else {
            self.counters.spam.inc();
            return;
        };
        if let Some(waiting) = state.waiting.get_mut(&key) {
            *waiting = series;
        } else if state.waiting.len() >= self.capacity {
            self.counters.full.inc();
        } else {
            state.waiting.insert(key.clone(), series);
            self.unsent.send_modify(|unsent| *unsent += 1);
            if !state.under_way.contains(&key) {
                state.order.push_back(key);
                self.ready.notify_one();
            }
        }
    }

    fn take(&self) -> Option<(UnderWay<'_>, Series)> {
        let mut state = self.state.lock();
        let key = state.order.pop_front()?;
        let series = state.waiting.remove(&key)?;
        state.under_way.insert(key.clone());
        Some((UnderWay { queue: self, key }, series))
    }

    /// Waits until half of the room is free, `limit` at most.
    pub(super) async fn has_room(&self, limit: Duration) {
        let enough = self.capacity.div_ceil(2);
        if *self.unsent.borrow() > enough {
            let mut unsent = self.unsent.subscribe();
            let _in_time = timeout(limit, unsent.wait_for(|unsent| *unsent <= enough)).await;
        }
    }

    pub(super) async fn flush(&self, limit: Duration) -> usize {
        let mut unsent = self.unsent.subscribe();
        let _in_time = timeout(limit, unsent.wait_for(|unsent| *unsent == 0)).await;
        *self.unsent.borrow()
    }
}

/// An Event that is being written. When this is dropped it is written, or given up, or its writer panicked. If it has happened
/// again meanwhile, its turn comes again.
struct UnderWay<'a> {
    queue: &'a Queue,
    key: SeriesKey,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.under_way.remove(&self.key);
        if state.waiting.contains_key(&self.key) {
            state.order.push_back(self.key.clone());
            self.queue.ready.notify_one();
        }
        self.queue.unsent.send_modify(|unsent| *unsent -= 1);
    }
}

impl Counters {
    fn new(controller: &str, metrics: &Metrics) -> Counters {
        let dropped = |reason| metrics.counter(names::EVENTS_DROPPED, &[controller, reason]);
        Counters {
            written: metrics.counter(names::EVENTS_WRITTEN, &[controller]),
            spam: dropped("spam"),
            full: dropped("queue_full"),
            failed: dropped("failed"),
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("unsent", &*self.unsent.borrow()).finish_non_exhaustive()
    }
}

/// Writes what is in the queue, so many Events at a time, forever.
pub(super) async fn run(queue: Arc<Queue>, writer: Arc<Writer>, writers: usize) {
    join_all((0..writers).map(|_| write_all(&queue, &writer))).await;
}

async fn write_all(queue: &Queue, writer: &Writer) {
    loop {
        while let Some((under_way, series)) = queue.take() {
            match writer.write(&under_way.key, &series).await {
                Ok(()) => _ = queue.counters.written.inc(),
                Err(error) => {
                    queue.counters.failed.inc();
                    let (name, namespace) = (&series.name, namespace(&series));
                    if error.is_of_ending_namespace() {
                        tracing::debug!(
                            name,
                            namespace,
                            "the namespace is being deleted; an event is dropped"
                        );
                    } else {
                        tracing::warn!(name, namespace, %error, "cannot write an event; it is dropped");
                    }
                }
            }
        }
        queue.ready.notified().await;
    }
}

/// Why an Event is not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the server did not answer in time")]
    Timeout,
    #[error(transparent)]
    Request(Box<Error>),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Request(Box::new(error))
    }
}

impl Failure {
    fn code(&self) -> Option<u16> {
        match self {
            Failure::Request(error) => match &**error {
                Error::Api(status) => Some(status.code),
                _ => None,
            },
            Failure::Timeout => None,
        }
    }

    /// Whether the namespace of the object takes nothing new, since it is going or gone: that happens to the last
    /// events about what was in it, and nobody could read them.
    fn is_of_ending_namespace(&self) -> bool {
        let Failure::Request(error) = self else { return false };
        let Error::Api(status) = &**error else { return false };
        let Some(details) = &status.details else { return false };
        let is_going = details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
        is_going || (status.code == 404 && details.kind == "namespaces")
    }

    /// Whether another try may help: nobody answered, or the server is in trouble.
    fn is_transient(&self) -> bool {
        self.code().is_none_or(|code| code == 429 || code >= 500)
    }
}

/// Writes Events.
pub(super) struct Writer {
    client: Client,
    api: EventApi,
    source: Reporter,
    env: Env,
    /// Which Events the server has, as far as we know.
    stored: Mutex<BTreeSet<SeriesKey>>,
}

impl Writer {
    pub(super) fn new(client: Client, api: EventApi, source: Reporter, env: Env) -> Writer {
        Writer { client, api, source, env, stored: Mutex::default() }
    }

    /// Writes an Event, with retries.
    async fn write(&self, key: &SeriesKey, series: &Series) -> Result<(), Failure> {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match self.try_write(key, series).await {
                Err(failure) if failure.is_transient() => {
                    tokio::time::sleep(self.env.jitter(wait, 0.5)).await;
                    wait = wait.saturating_mul(2).min(LONGEST_WAIT);
                }
                settled => return settled,
            }
        }
        self.try_write(key, series).await
    }

    async fn try_write(&self, key: &SeriesKey, series: &Series) -> Result<(), Failure> {
        match self.api {
            EventApi::EventsV1 => self.put(key, series, events_v1(series, &self.source)).await,
            EventApi::CoreV1 => self.put(key, series, core_v1(series, &self.source)).await,
        }
    }

    /// Creates an Event, or patches it if it is there.
    async fn put<K: EventKind>(&self, key: &SeriesKey, series: &Series, event: K) -> Result<(), Failure> {
        if series.count > 1 && self.stored.lock().contains(key) {
            match self.patch::<K>(series).await {
                // It has expired, or somebody deleted it.
                Err(failure) if failure.code() == Some(404) => drop(self.stored.lock().remove(key)),
                settled => return settled,
            }
        }
        match self.create(&event, namespace(series)).await {
            // An earlier try got through.
            Err(failure) if failure.code() == Some(409) && series.count > 1 => {
                self.patch::<K>(series).await?
            }
            Err(failure) if failure.code() == Some(409) => {}
            settled => settled?,
        }
        self.remember(key);
        Ok(())
    }

    async fn create<K: EventKind>(&self, event: &K, namespace: &str) -> Result<(), Failure> {
        let body = serde_json::to_vec(event).map_err(Error::SerdeError)?;
        self.send(requests::<K>(namespace).create(&PostParams::default(), body)).await
    }

    async fn patch<K: EventKind>(&self, series: &Series) -> Result<(), Failure> {
        let patch = Patch::Merge(patch(self.api, series));
        self.send(requests::<K>(namespace(series)).patch(&series.name, &PatchParams::default(), &patch)).await
    }

    /// Sends a request. Nobody reads what was stored, so it is not decoded.
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), Failure> {
        let request = request.map_err(Error::BuildRequest)?;
        match timeout(REQUEST, self.client.request_text(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Failure::Timeout),
        }
    }

    /// A set that has grown too large starts anew: the price is a create that is answered "already there".
    fn remember(&self, key: &SeriesKey) {
        let mut stored = self.stored.lock();
        if stored.len() >= 4096 {
            stored.clear();
        }
        stored.insert(key.clone());
    }
}

/// The Events of both APIs.
trait EventKind: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize {}

impl EventKind for events::v1::Event {}
impl EventKind for core::v1::Event {}

/// Requests about the Events of a namespace.
fn requests<K: EventKind>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}
