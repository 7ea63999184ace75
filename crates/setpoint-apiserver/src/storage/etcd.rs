//! The etcd engine: a cluster that several servers may write to, and a copy of it in memory.
//!
//! Writes are transactions on the revision of their key. Reads come from the copy, which one watch of the whole prefix keeps
//! up to date; a read of the newest state asks etcd for its revision, and waits until the copy is there. Where keys are and
//! what the values look like is the [`Layout`]'s business.

mod cache;
mod commit;
mod compaction;
mod connection;
pub(crate) mod copy;
mod damage;
mod layout;
mod lease;
mod options;
mod past;
mod registry;
mod stats;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use setpoint_env::watch;
use setpoint_env::{Env, Task};
use tokio::sync::Notify;

use self::connection::Failed;
use self::damage::Damage;
pub(crate) use self::layout::Layout;
use self::lease::Leases;
pub use self::options::{EtcdError, EtcdOptions};
use self::past::PastScan;
pub(crate) use self::registry::Registry;
use self::stats::{Measured, Operation};
use super::state::State;
use super::view::View;
use super::{
    Change, CommitError, Field, Found, Freshness, Key, Limits, ListQuery, ReadError, Record, Revision, Scan,
    Snapshot, Stats, Storage, Watch,
};
use crate::background::Background;

/// How long it takes until a request that was not sent is tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long one request may take.
const CALL: Duration = Duration::from_secs(10);
/// How long a read waits for the copy before it reads from etcd itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// A change usually comes by itself sooner than this.
const USUAL: Duration = Duration::from_millis(10);
/// How often etcd is asked how far the watch is, while somebody waits for it.
const PROGRESS: Duration = Duration::from_millis(100);
/// How long a server that starts waits for etcd.
const START: Duration = Duration::from_secs(20);

/// Keeps everything in etcd.
pub(crate) struct Etcd {
    shared: Arc<Shared>,
    /// These end with the engine.
    _tasks: Vec<Task<()>>,
}

/// What the engine and its tasks share.
struct Shared {
    env: Env,
    client: Client,
    layout: Box<dyn Layout>,
    /// What all keys begin with: `/registry/`.
    root: String,
    endpoints: String,
    view: View,
    leases: Leases,
    damage: Damage,
    /// Told by who waits for the copy to get on.
    progress: Notify,
    health: watch::Sender<Health>,
    measured: Measured,
}

/// Whether the copy follows etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Health {
    Following,
    /// It does not; why.
    Lost(Arc<str>),
}

impl Etcd {
    /// Connects to a cluster, reads everything in it, and follows it from then on. `compaction` is how often old revisions
    /// are given up; never if it is zero.
    pub(crate) async fn open(
        options: &EtcdOptions,
        layout: Box<dyn Layout>,
        limits: Limits,
        compaction: Duration,
        env: &Env,
        background: &Background,
    ) -> Result<Etcd, EtcdError> {
        let endpoints = options.endpoints().join(",");
        let unreachable =
            |why: &str| EtcdError::Unreachable { endpoints: endpoints.clone(), why: why.to_owned() };
        let connecting = tokio::time::timeout(START, connection::connect(options));
        let client = connecting.await.map_err(|_| unreachable("it does not answer"))??;
        let shared = Arc::new(Shared::new(client, options, layout, limits, env));
        if tokio::time::timeout(START, cache::load_patiently(&shared)).await.is_err() {
            return Err(match &*shared.health.borrow() {
                Health::Lost(why) => unreachable(why),
                Health::Following => unreachable("it does not answer"),
            });
        }
        let mut tasks = vec![follow_with(&shared, background, cache::follow)];
        if !compaction.is_zero() {
            let shared = Arc::clone(&shared);
            let compact = move || compaction::run(Arc::clone(&shared), compaction);
            tasks.push(background.run(env, "etcd-compaction", compact));
        }
        Ok(Etcd { shared, _tasks: tasks })
    }
}

/// Runs what keeps the copy up to date. If it panics, nobody knows how much of the last change is in the copy: everything is
/// read again, and until then the copy counts as lost.
fn follow_with<F>(
    shared: &Arc<Shared>,
    background: &Background,
    follow: impl Fn(Arc<Shared>) -> F + Clone + Send + 'static,
) -> Task<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (of_task, mut is_restart) = (Arc::clone(shared), false);
    background.run(&shared.env, "etcd-watch", move || {
        let (shared, follow) = (Arc::clone(&of_task), follow.clone());
        let is_restart = std::mem::replace(&mut is_restart, true);
        async move {
            let _lost = LostByPanic(&shared);
            if is_restart {
                cache::load_patiently(&shared).await;
            }
            follow(Arc::clone(&shared)).await;
        }
    })
}

/// Nobody follows etcd between a panic and the restart.
struct LostByPanic<'a>(&'a Shared);

impl Drop for LostByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lost("the task that follows it has panicked and will be restarted");
        }
    }
}

impl Shared {
    fn new(
        client: Client,
        options: &EtcdOptions,
        layout: Box<dyn Layout>,
        limits: Limits,
        env: &Env,
    ) -> Shared {
        Shared {
            env: env.clone(),
            leases: Leases::new(env.clone(), client.clone()),
            client,
            layout,
            root: options.root(),
            endpoints: options.endpoints().join(","),
            view: View::new(State::new(limits)),
            damage: Damage::default(),
            progress: Notify::new(),
            health: watch::Sender::new(Health::Following),
            measured: Measured::default(),
        }
    }

    /// The key of a record in etcd.
    fn place(&self, key: &Key) -> String {
        format!("{}{}", self.root, self.layout.place(key))
    }

    /// Whose record is at a key, if it is one.
    fn key_at(&self, place: &[u8]) -> Option<Key> {
        let place = std::str::from_utf8(place).ok()?.strip_prefix(&self.root)?;
        self.layout.key(place)
    }

    /// Makes a request, and counts it. It is made again for as long as [`CALL`] if that can do no harm: if it was not sent, or
    /// only reads.
    async fn call<T, F>(&self, operation: Operation, mut request: impl FnMut() -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let began = self.env.instant();
        let mut last = None;
        let attempts = async {
            loop {
                match request().await {
                    Err(error) if connection::may_try_again(&error, operation.is_read()) => {
                        last = Some(connection::explain(&error));
                        tokio::time::sleep(AGAIN).await;
                    }
                    outcome => return outcome.map_err(|error| Failed::from(&error)),
                }
            }
        };
        let outcome = tokio::time::timeout(CALL, attempts).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let why = last.unwrap_or_else(|| format!("it has not answered in {CALL:?}"));
            Err(Failed { why: why.into(), is_compacted: false })
        });
        self.measured.request(operation, self.env.instant().duration_since(began), outcome.is_ok());
        outcome
    }

    /// The newest revision, as a majority of the cluster knows it.
    async fn latest(&self) -> Result<Revision, ReadError> {
        // A key that is never there is the cheapest to ask for.
        let options = GetOptions::new().with_limit(1).with_keys_only();
        let answer = self.call(Operation::Revision, || {
            let (mut kv, options) = (self.client.kv_client(), options.clone());
            async move { kv.get(self.root.clone(), Some(options)).await }
        });
        let answer = answer.await.map_err(|failed| self.unavailable(&failed.why))?;
        Ok(revision_of(answer.header()))
    }

    /// Returns once the copy is at this revision.
    async fn reached(&self, revision: Revision) {
        let reached = self.view.reached(revision);
        tokio::pin!(reached);
        let mut pause = USUAL;
        while tokio::time::timeout(pause, &mut reached).await.is_err() {
            self.progress.notify_one();
            pause = PROGRESS;
        }
    }

    /// Reads one record from etcd, as it is now or was at a revision.
    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<Found, ReadError> {
        let options = at.map(|at| GetOptions::new().with_revision(at.cast_signed()));
        let answer = self.call(Operation::Get, || {
            let mut kv = self.client.kv_client().max_decoding_message_size(connection::LONGEST);
            let options = options.clone();
            async move { kv.get(self.place(key), options).await }
        });
        let answer = answer.await.map_err(|failed| match at {
            Some(at) if failed.is_compacted => ReadError::Compacted { asked: at, floor: at },
            _ => self.unavailable(&failed.why),
        })?;
        let Some(found) = answer.kvs().first() else { return Ok(Found { record: None }) };
        let revision = found.mod_revision().cast_unsigned();
        // The copy has it most of the time, and need not be decoded.
        let known = self.view.read(|state| state.find(key).cloned());
        if let Some(record) = known.filter(|record| record.revision == revision) {
            return Ok(Found { record: Some(record) });
        }
        match self.layout.decode(key, found.value()) {
            Ok(value) => Ok(Found { record: Some(Arc::new(Record::new(key.path.clone(), revision, value))) }),
            Err(why) => Err(ReadError::Undecodable { place: self.place(key), why }),
        }
    }

    fn unavailable(&self, why: &str) -> ReadError {
        ReadError::Unavailable { why: format!("etcd at {}: {why}", self.endpoints).into() }
    }
}

/// The revision that an answer is of.
fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> Revision {
    header.map_or(0, |header| header.revision().cast_unsigned())
}

impl Storage for Etcd {
    fn get<'a>(&'a self, key: &'a Key, fresh: Freshness) -> BoxFuture<'a, Result<Found, ReadError>> {
        let shared = &self.shared;
        async move {
            match fresh {
                Freshness::Any | Freshness::AtLeast(_) => match shared.damage.of(key) {
                    Some(why) => Err(ReadError::Undecodable { place: shared.place(key), why }),
                    None => shared.view.get(key, fresh).await,
                },
                Freshness::Latest => shared.get(key, None).await,
                Freshness::Exact(revision) => match shared.view.get(key, fresh).await {
                    Err(ReadError::Compacted { .. }) => shared.get(key, Some(revision)).await,
                    found => found,
                },
            }
        }
        .boxed()
    }

    fn scan<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Box<dyn Scan>, ReadError>> {
        let shared = &self.shared;
        async move {
            match query.fresh {
                Freshness::Any | Freshness::AtLeast(_) => shared.view.scan(query).await,
                Freshness::Latest => {
                    let latest = shared.latest().await?;
                    if tokio::time::timeout(PATIENCE, shared.reached(latest)).await.is_ok() {
                        return shared.view.scan(query).await;
                    }
                    PastScan::open(Arc::clone(shared), query, latest).await
                }
                Freshness::Exact(revision) => match shared.view.scan(query).await {
                    Err(ReadError::Compacted { .. }) => {
                        PastScan::open(Arc::clone(shared), query, revision).await
                    }
                    scan => scan,
                },
            }
        }
        .boxed()
    }

    fn reached(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.shared.reached(revision).boxed()
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Arc<Record>, CommitError>> {
        self.shared.commit(change).boxed()
    }

    fn watch(&self, collection: &Arc<str>, after: Revision) -> Result<Watch, ReadError> {
        self.shared.view.watch(collection, after)
    }

    fn watch_value(
        &self,
        collection: &Arc<str>,
        after: Revision,
        field: Field,
        value: &str,
    ) -> Result<Watch, ReadError> {
        self.shared.view.watch_value(collection, after, field, value)
    }

    fn revision(&self) -> Revision {
        self.shared.view.read(State::revision)
    }

    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.shared.latest().boxed()
    }

    /// Leases do it.
    fn expire(&self, _now: Timestamp) -> BoxFuture<'_, usize> {
        self.shared.view.write(|state| state.trim(|_, _| {}));
        ready(0).boxed()
    }

    fn compact(&self, up_to: Revision) {
        self.shared.view.write(|state| state.compact(up_to, |_, _| {}));
    }

    fn age(&self, up_to: Revision) {
        self.shared.view.write(|state| state.age(up_to, |_, _| {}));
    }

    fn stats(&self) -> Stats {
        let stats = self.shared.view.read(State::stats);
        Stats { remote: Some(self.shared.measured.stats(&self.shared.leases)), ..stats }
    }

    fn snapshot(&self) -> Snapshot {
        self.shared.view.read(State::snapshot)
    }

    fn damaged(&self, collection: &str) -> Vec<(String, Arc<str>)> {
        self.shared.damage.in_collection(collection)
    }

    fn name(&self) -> &'static str {
        "etcd"
    }

    fn failure(&self) -> Option<Arc<str>> {
        match &*self.shared.health.borrow() {
            Health::Following => None,
            Health::Lost(why) => {
                Some(format!("etcd at {} is not followed: {why}", self.shared.endpoints).into())
            }
        }
    }
}
