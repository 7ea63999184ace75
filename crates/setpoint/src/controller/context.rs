//! What a reconcile has at hand.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use crate::ensure::memory::Memory;
use crate::{Lister, Object, Reasons, Recorder};

/// What a reconcile has at hand. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) untracked: Client,
    pub(super) reasons: Arc<Reasons>,
    pub(super) id: u64,
}

/// What is the same for every reconcile of a controller.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) recorder: Recorder,
    pub(super) listers: BTreeMap<TypeId, Box<dyn Any + Send + Sync>>,
    pub(super) state: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) env: Env,
    pub(super) shutdown: CancellationToken,
    /// What came of writes, whichever worker made them.
    pub(super) memory: Memory,
}

impl Context {
    /// The client to write with. What is written through it is seen: the key is not reconciled again before
    /// the caches of what was written show it. [`ensure`](crate::ensure) and [`patch_status`](crate::patch_status)
    /// with it do not write again what the server does not store as it is sent.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client whose writes nobody waits for.
    pub fn untracked_client(&self) -> Client {
        self.untracked.clone()
    }

    /// Why the key is reconciled: everything since its last reconcile began, merged. For logs and for people: what to do
    /// follows from how things are, never from what has happened.
    ///
    /// ```
    /// use setpoint::{Action, Context, ObjectKey, ReconcileError};
    ///
    /// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    ///     // default/web: deployments.apps default/web updated (own write), retry
    ///     println!("{key}: {}", cx.reasons());
    ///     Ok(Action::done())
    /// }
    /// ```
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// The number of this reconcile, which no other one of the process has. Logs and [facts](crate::facts) name it.
    pub fn reconcile_id(&self) -> u64 {
        self.id
    }

    /// Reads from the cache of a kind that the controller watches.
    ///
    /// # Panics
    /// If the controller does not watch this type: it is named in `new`, `owns`, `watches`,
    /// `owns_metadata` or `watches_metadata` (the last two as `PartialObjectMeta<T>`).
    pub fn lister<T: Object>(&self) -> Lister<T> {
        let found = self.shared.listers.get(&TypeId::of::<T>());
        let lister = found.and_then(|lister| lister.downcast_ref::<Lister<T>>());
        lister.cloned().unwrap_or_else(|| {
            panic!("the controller {:?} does not watch {}", self.shared.name, type_name::<T>())
        })
    }

    /// Records events about objects: `kubectl describe` shows them. It never waits.
    pub fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    /// What was given to [`Controller::state`](super::Controller::state).
    ///
    /// # Panics
    /// If nothing of this type was given.
    pub fn state<S: Send + Sync + 'static>(&self) -> &S {
        let state = self.shared.state.as_deref().and_then(|state| state.downcast_ref());
        state.unwrap_or_else(|| {
            panic!("the controller {:?} has no state of the type {}", self.shared.name, type_name::<S>())
        })
    }

    /// Time and randomness, so that a reconcile can be replayed.
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Cancelled when the controller stops: a reconcile that takes long should mind it.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shared.shutdown
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.shared.name
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("controller", &self.shared.name).finish_non_exhaustive()
    }
}
