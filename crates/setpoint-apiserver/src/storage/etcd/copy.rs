//! Copies between etcd and other stores.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use ring::digest;
use setpoint_env::{Env, Later};

use super::options::{EtcdError, EtcdOptions};
use super::{Etcd, Layout, Registry};
use crate::background::Background;
use crate::storage::{Action, Change, CommitError, Expect, Key, Limits, Record, Snapshot, Storage};

/// How many objects are written at the same time.
const AT_ONCE: usize = 32;
/// History is no part of a copy.
const NONE: Limits = Limits { events: 0, bytes: 0 };
/// Node ports in stores of older versions, which the services have, too.
const OLDER_PORTS: &str = "ranges/servicenodeports";

/// What a copy has written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// How many objects the target has now.
    pub objects: usize,
    /// How many of them it had already.
    pub skipped: usize,
    /// The hash of all keys and values in etcd, which is that of what was read.
    pub sha256: String,
}

/// One object, on its way.
struct Item {
    key: Key,
    record: Arc<Record>,
    expires: Option<Timestamp>,
    encoded: Vec<u8>,
}

/// Everything in an etcd at one revision. Each object has a revision of its own in it, as files of backups need it.
pub(crate) async fn read(options: &EtcdOptions, env: &Env) -> Result<Snapshot, EtcdError> {
    let store =
        Etcd::open(options, Box::new(Registry::new()), NONE, Duration::ZERO, env, &Background::default())
            .await?;
    if let Some((place, why)) = store.shared.damage.any() {
        return Err(EtcdError::Copy(format!("{place} cannot be decoded: {why}")));
    }
    let Snapshot { mut revision, mut records } = store.snapshot();
    let (mut last, layout) = (0, Registry::new());
    for (collection, record, expires) in &mut records {
        // etcd does not say when a lease ends, so it begins anew.
        *expires = layout.ttl(collection).map(|ttl| env.now().later(ttl));
        if record.revision <= last {
            *record = Arc::new(Record::new(record.path.clone(), last + 1, record.value.clone()));
        }
        last = record.revision;
    }
    revision = revision.max(last);
    Ok(Snapshot { revision, records })
}

/// Writes everything into an etcd that has nothing else, and reads it again. What is there already is left as it is, so a
/// copy that was interrupted can be repeated.
pub(crate) async fn write(
    options: &EtcdOptions,
    snapshot: Snapshot,
    env: &Env,
    mut progress: impl FnMut(usize, usize),
) -> Result<Copied, EtcdError> {
    let layout = Registry::new();
    let store =
        Etcd::open(options, Box::new(Registry::new()), NONE, Duration::ZERO, env, &Background::default())
            .await?;
    let items = encode(&layout, snapshot)?;
    let there = encode(&layout, store.snapshot())?;
    let skipped = check(&layout, &items, &there)?;
    let (total, mut written) = (items.len(), skipped);
    let sha256 = hash(&layout, &items);
    let missing =
        items.into_iter().filter(|item| store.shared.view.read(|state| state.find(&item.key).is_none()));
    let missing: Vec<Item> = missing.collect();
    let now = env.now();
    let mut commits = stream::iter(missing).map(|item| put(&store, item, now)).buffer_unordered(AT_ONCE);
    while commits.try_next().await?.is_some() {
        written += 1;
        progress(written, total);
    }
    drop(commits);
    let latest = store.latest().await.map_err(|error| EtcdError::Copy(error.to_string()))?;
    store.reached(latest).await;
    let found = encode(&layout, store.snapshot())?;
    let (objects, found) = (found.len(), hash(&layout, &found));
    if objects != total || found != sha256 {
        return Err(EtcdError::Copy(format!(
            "{objects} objects with the hash {found} are there, and {total} with the hash {sha256} should be; \
             does a server write to it meanwhile?"
        )));
    }
    Ok(Copied { objects, skipped, sha256 })
}

async fn put(store: &Etcd, item: Item, now: Timestamp) -> Result<(), EtcdError> {
    // What has expired on the way lives a second longer.
    let left = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
    let ttl = item.expires.map(|at| left(at).max(Duration::from_secs(1)));
    let place = store.shared.place(&item.key);
    let action = Action::Put { value: item.record.value.clone(), ttl };
    match store.commit(Change { key: item.key, expect: Expect::Absent, action }).await {
        Ok(_) => Ok(()),
        Err(CommitError::Conflict { .. }) => {
            Err(EtcdError::Copy(format!("somebody else has written {place}")))
        }
        Err(CommitError::NotStored(error)) => Err(EtcdError::Copy(format!("{place}: {error}"))),
    }
}

/// Everything as etcd has it, in the order of its keys.
fn encode(layout: &Registry, snapshot: Snapshot) -> Result<Vec<Item>, EtcdError> {
    let mut items = Vec::with_capacity(snapshot.records.len());
    for (collection, record, expires) in snapshot.records {
        if &*collection == OLDER_PORTS {
            continue;
        }
        let key = Key { collection, path: record.path.clone() };
        let encoded = layout.encode(&key, &record.value);
        let encoded = encoded.map_err(|why| EtcdError::Copy(format!("{}: {why}", layout.place(&key))))?;
        items.push(Item { key, record, expires, encoded });
    }
    items.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Ok(items)
}

/// How many are there already. Nothing else may be.
fn check(layout: &Registry, items: &[Item], there: &[Item]) -> Result<usize, EtcdError> {
    for found in there {
        let place = layout.place(&found.key);
        let at = items.binary_search_by(|item| item.key.cmp(&found.key));
        let is_same = at.is_ok_and(|at| items[at].encoded == found.encoded);
        if !is_same {
            return Err(EtcdError::Copy(format!(
                "the target has another {place}; copy to one that is empty, or to another prefix"
            )));
        }
    }
    Ok(there.len())
}

fn hash(layout: &Registry, items: &[Item]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for item in items {
        for part in [layout.place(&item.key).as_bytes(), &item.encoded] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
