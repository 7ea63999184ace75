//! Sees every change at the moment it is committed, and who made it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint_apiserver::Committed;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::normal::{Aliases, Normal, State, normal_path};
use super::object::ObjectId;
use super::run::held;
use super::scenario::{Check, Look, Scenario};
use super::view::View;
use crate::faults::caller;
use crate::world::DIRECT;

/// Whoever is not a client of the world: its own hand, and the server itself.
pub(crate) const NOBODY: &str = "-";

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) at: Duration,
    pub(crate) client: Arc<str>,
    pub(crate) id: ObjectId,
    pub(crate) revision: u64,
    pub(crate) change: Change,
    pub(crate) value: Arc<Value>,
    /// What it is called in every run.
    pub(crate) called: Arc<str>,
    /// Whether it changed something that counts.
    pub(crate) counts: bool,
    /// Whether it changed what is not compared, such as a time.
    pub(crate) is_rewrite: bool,
    /// A number for the object as it is compared.
    pub(crate) hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Created,
    Updated,
    Deleted,
}

/// Clones are the same witness.
#[derive(Clone)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    /// Something may have no owner any more, or never had one that lives.
    pub(crate) orphans: Arc<Notify>,
    start: Instant,
    normal: Arc<Normal>,
    always: Arc<[(String, Check)]>,
    outside: Arc<[(String, Look)]>,
}

#[derive(Default)]
struct Seen {
    broken: Vec<(Duration, String)>,
    live: BTreeMap<ObjectId, Arc<Value>>,
    commits: Vec<Commit>,
    aliases: Aliases,
    counted: u64,
}

impl Witness {
    pub(crate) fn new(scenario: &Scenario) -> Witness {
        Witness {
            seen: Arc::default(),
            orphans: Arc::default(),
            start: Instant::now(),
            normal: Arc::new(scenario.normal.clone()),
            always: scenario.always.clone().into(),
            outside: scenario.outside.clone().into(),
        }
    }

    pub(crate) fn see(&self, committed: &Committed) {
        let id = ObjectId::of(committed);
        let Ok(value) = serde_json::from_slice::<Value>(&committed.value) else { return };
        let value = Arc::new(value);
        let normal = &self.normal;
        let mut seen = self.seen.lock();
        let seen = &mut *seen;
        let before = seen.live.get(&id).cloned();
        let change = match &before {
            _ if committed.is_deleted => Change::Deleted,
            Some(_) => Change::Updated,
            None => Change::Created,
        };
        if change == Change::Created {
            Normal::learn(&mut seen.aliases, &id, &value);
        }
        let is_judged = !normal.ignores(&id);
        let hash = if is_judged { normal.hash(&id, &value, &seen.aliases) } else { 0 };
        let counts = is_judged
            && (change != Change::Updated
                || before.as_ref().is_none_or(|before| normal.hash(&id, before, &seen.aliases) != hash));
        let is_rewrite = is_judged
            && !counts
            && before
                .as_ref()
                .is_some_and(|before| normal.as_written(&id, before) != normal.as_written(&id, &value));
        let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
        if committed.is_deleted {
            seen.live.remove(&id);
            self.orphans.notify_one();
        } else {
            // Who makes an object late, or adopts it, may do it for an owner that is gone.
            let has_owners = owners(&value).as_array().is_some_and(|owners| !owners.is_empty());
            if has_owners && before.as_ref().is_none_or(|before| owners(before) != owners(&value)) {
                self.orphans.notify_one();
            }
            seen.live.insert(id.clone(), value.clone());
        }
        seen.counted += u64::from(counts);
        let called = format!("{}/{}", id.group_resource(), normal_path(&id, &value, &seen.aliases)).into();
        let client = caller(&id.group, &id.resource, &id.path).filter(|client| **client != *DIRECT);
        let client = client.unwrap_or_else(|| NOBODY.into());
        let at = self.start.elapsed();
        seen.commits.push(Commit {
            at,
            client,
            id,
            revision: committed.revision,
            change,
            value,
            called,
            counts,
            is_rewrite,
            hash,
        });
        if self.always.is_empty() {
            return;
        }
        let view = View { objects: seen.live.clone() };
        let broken = self
            .always
            .iter()
            .filter_map(|(name, check)| Some(format!("{name}: {}", held(|| check(&view)).err()?)));
        seen.broken.extend(broken.map(|what| (at, what)));
    }

    /// What should always hold and did not, and when.
    pub(crate) fn broken(&self) -> Vec<(Duration, String)> {
        self.seen.lock().broken.clone()
    }

    /// How many changes there were that count.
    pub(crate) fn counted(&self) -> u64 {
        self.seen.lock().counted
    }

    pub(crate) fn commits(&self) -> Vec<Commit> {
        self.seen.lock().commits.clone()
    }

    pub(crate) fn live(&self) -> BTreeMap<ObjectId, Arc<Value>> {
        self.seen.lock().live.clone()
    }

    /// Everything that there is, as it is compared.
    pub(crate) fn state(&self) -> State {
        let normal = &self.normal;
        let seen = self.seen.lock();
        let mut state = State::default();
        for (id, value) in seen.live.iter().filter(|(id, _)| !normal.ignores(id)) {
            let called = format!("{}/{}", id.group_resource(), normal_path(id, value, &seen.aliases));
            let value = normal.of(id, value, &seen.aliases);
            if !value.is_null() {
                state.insert(called, value);
            }
        }
        for (name, look) in &*self.outside {
            state.insert(name.clone(), Normal::bare(&look(), &seen.aliases));
        }
        state
    }

    /// What has owners, and none of them is there.
    pub(crate) fn garbage(&self) -> Vec<(ObjectId, Arc<Value>)> {
        let seen = self.seen.lock();
        let uids: std::collections::BTreeSet<&str> =
            seen.live.values().filter_map(|value| value["metadata"]["uid"].as_str()).collect();
        let is_garbage = |value: &Value| {
            let owners = value["metadata"]["ownerReferences"].as_array().filter(|owners| !owners.is_empty());
            owners.is_some_and(|owners| {
                !owners.iter().any(|owner| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid)))
            })
        };
        let going = |value: &Value| !value["metadata"]["deletionTimestamp"].is_null();
        let garbage = seen.live.iter().filter(|(_, value)| !going(value) && is_garbage(value));
        garbage.map(|(id, value)| (id.clone(), value.clone())).collect()
    }
}
