//! What a reconcile has at hand.

use std::any::{Any, type_name};
use std::sync::Arc;

use kube::Client;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use super::listers::{ListerError, Listers};
use super::watches::{WatchError, Watches};
use crate::ensure::memory::Memory;
use crate::watch::{Watch, Watchable};
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
    pub(super) listers: Arc<Listers>,
    /// [`Watches`] of the controller's keys.
    pub(super) watches: Box<dyn Any + Send + Sync>,
    pub(super) state: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) env: Env,
    pub(super) stopping: CancellationToken,
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

    /// Reads from the cache of a type that the controller watches: `lister::<Pod>()`, or `lister::<PartialObjectMeta<Pod>>()`
    /// of one that is watched for its metadata only.
    ///
    /// An error if it watches nothing of this type; or several parts of it, in caches of their own:
    /// [`Context::lister_of`] takes the watch.
    pub fn lister<T: Object>(&self) -> Result<Lister<T>, ListerError> {
        self.shared.listers.only(&self.shared.name)
    }

    /// Reads from the cache of a watch that the controller was given, or one that is equal to it.
    ///
    /// ```
    /// use setpoint::k8s_openapi::api::core::v1::Pod;
    /// use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};
    ///
    /// fn canaries() -> Watch<Pod> {
    ///     Watch::new().labels("track=canary")
    /// }
    ///
    /// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    ///     println!("{} canaries", cx.lister_of(&canaries())?.len());
    ///     Ok(Action::done())
    /// }
    /// # let _ =
    /// Controller::of(Watch::<Pod>::new().labels("track=stable"), "tracks", reconcile).reads(canaries())
    /// # ;
    /// ```
    pub fn lister_of<T: Watchable>(&self, watch: &Watch<T>) -> Result<Lister<T>, ListerError> {
        self.shared.listers.of(&watch.id(), watch, &self.shared.name)
    }

    /// The controller's watches, to add to and to take from.
    pub fn watches(&self) -> Result<Watches, WatchError> {
        self.shared.watches.downcast_ref::<Watches>().cloned().ok_or(WatchError::Keys)
    }

    /// Records events about objects: `kubectl describe` shows them. It never waits.
    pub fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    /// What was given to [`Controller::state`](super::Controller::state). An error if nothing of this type was.
    pub fn state<S: Send + Sync + 'static>(&self) -> Result<&S, StateError> {
        let state = self.shared.state.as_deref().and_then(|state| state.downcast_ref());
        state.ok_or_else(|| StateError { controller: self.shared.name.clone(), state: type_name::<S>() })
    }

    /// Time and randomness, so that a reconcile can be replayed.
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Cancelled when the controller is told to stop: a reconcile that takes long should mind it.
    pub fn stopping(&self) -> &CancellationToken {
        &self.shared.stopping
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.shared.name
    }
}

/// The controller was not given this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller {controller:?} has no state of the type {state}: give it with `Controller::state`")]
pub struct StateError {
    /// The controller.
    pub controller: String,
    /// The type that was asked for.
    pub state: &'static str,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("controller", &self.shared.name).finish_non_exhaustive()
    }
}
