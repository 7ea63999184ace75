//! Where the objects are: in memory, with the last changes for watches. Put what you have in its place, a database or another API:
//! all that is needed is at the end, in `impl Resource`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use kube::ResourceExt;
use setpoint::Env;
use setpoint_apiserver::extension::{Asked, Change, Changes, Failure, Listed, Resource, Verbs};
use tokio::sync::watch;

use crate::api;

/// How many changes are kept for watches that resume. A client that has missed more lists again.
const KEPT: usize = 1024;

/// All objects. Clones are handles on the same store.
#[derive(Clone, Debug)]
pub struct Store {
    state: Arc<Mutex<State>>,
    /// The newest version, for those who wait.
    newest: watch::Sender<u64>,
}

type Key = (Option<String>, String);

#[derive(Debug)]
struct State {
    objects: BTreeMap<Key, api::Tide>,
    /// Change `n` has the version `forgotten + 1 + n`.
    changes: VecDeque<Change<api::Tide>>,
    /// Everything up to this version is forgotten.
    forgotten: u64,
}

impl State {
    fn version(&self) -> u64 {
        self.forgotten + self.changes.len() as u64
    }

    /// The change after a version; none if there is none yet, and an error if it is not known any more.
    fn after(&self, version: u64) -> Result<Option<Change<api::Tide>>, Failure> {
        let expired = || {
            Failure::expired(format!(
                "too old resource version: {version} ({})",
                self.forgotten
            ))
        };
        let at = version.checked_sub(self.forgotten).ok_or_else(expired)?;
        Ok(usize::try_from(at)
            .ok()
            .and_then(|at| self.changes.get(at))
            .cloned())
    }
}

fn key(object: &api::Tide) -> Key {
    (object.namespace(), object.name_any())
}

impl Store {
    /// An empty one. Versions begin with the time, so that no client of an earlier run takes them for those that it knows.
    pub fn new(env: &Env) -> Store {
        let begin = u64::try_from(env.now().as_microsecond()).unwrap_or(1);
        let state = State {
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
            forgotten: begin,
        };
        Store {
            state: Arc::new(Mutex::new(state)),
            newest: watch::Sender::new(begin),
        }
    }

    /// Nothing that is locked can panic; and if it could, what is there is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an object the next version, and lets `change` decide with what is there. A change is wanted of one version: if
    /// another one is there, somebody else was faster.
    fn commit(
        &self,
        mut object: api::Tide,
        change: impl FnOnce(Option<api::Tide>, &api::Tide) -> Result<Change<api::Tide>, Failure>,
    ) -> Result<api::Tide, Failure> {
        let mut state = self.state();
        let old = state.objects.get(&key(&object)).cloned();
        let version = state.version() + 1;
        let made_from = object
            .metadata
            .resource_version
            .replace(version.to_string());
        if made_from.is_some()
            && old
                .as_ref()
                .is_some_and(|old| old.metadata.resource_version != made_from)
        {
            return Err(Failure::conflict("the object has been modified"));
        }
        let change = change(old, &object)?;
        match &change {
            Change::Deleted(_) => drop(state.objects.remove(&key(&object))),
            _ => drop(state.objects.insert(key(&object), object.clone())),
        }
        state.changes.push_back(change);
        if state.changes.len() > KEPT {
            state.changes.pop_front();
            state.forgotten += 1;
        }
        drop(state);
        self.newest.send_replace(version);
        Ok(object)
    }
}

impl Resource for Store {
    type Object = api::Tide;
    const VERBS: Verbs = Verbs::ALL;

    async fn list(&self, asked: &Asked) -> Result<Listed<api::Tide>, Failure> {
        let state = self.state();
        let is_here = |object: &&api::Tide| {
            asked.namespace.is_none() || object.namespace() == asked.namespace
        };
        Ok(Listed::at(
            state.version(),
            state.objects.values().filter(is_here).cloned().collect(),
        ))
    }

    async fn get(&self, asked: &Asked, name: &str) -> Result<Option<api::Tide>, Failure> {
        Ok(self
            .state()
            .objects
            .get(&(asked.namespace.clone(), name.to_owned()))
            .cloned())
    }

    async fn create(&self, _asked: &Asked, object: api::Tide) -> Result<api::Tide, Failure> {
        self.commit(object, |old, new| match old {
            Some(old) => Err(Failure::already_exists(format!(
                "{} already exists",
                old.name_any()
            ))),
            None => Ok(Change::Added(new.clone())),
        })
    }

    async fn update(&self, _asked: &Asked, object: api::Tide) -> Result<api::Tide, Failure> {
        self.commit(object, |old, new| match old {
            Some(old) => Ok(Change::Modified {
                old,
                new: new.clone(),
            }),
            None => Err(Failure::not_found(format!("{} not found", new.name_any()))),
        })
    }

    async fn delete(&self, _asked: &Asked, object: api::Tide) -> Result<(), Failure> {
        self.commit(object, |old, last| match old {
            Some(_) => Ok(Change::Deleted(last.clone())),
            None => Err(Failure::not_found(format!("{} not found", last.name_any()))),
        })
        .map(drop)
    }

    fn watch(&self, _asked: &Asked, after: u64) -> Changes<api::Tide> {
        let begin = Some((self.clone(), self.newest.subscribe(), after));
        stream::unfold(begin, |watch| async move {
            let (store, mut newest, after) = watch?;
            loop {
                // Before it is looked: what comes later wakes this up.
                newest.borrow_and_update();
                let next = store.state().after(after);
                match next {
                    Err(expired) => return Some((Err(expired), None)),
                    Ok(Some(change)) => {
                        return Some((Ok(change), Some((store, newest, after + 1))));
                    }
                    Ok(None) => {}
                }
                newest.changed().await.ok()?;
            }
        })
        .boxed()
    }
}
