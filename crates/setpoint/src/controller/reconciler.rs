//! The code that a controller runs.

use std::fmt::Debug;
use std::hash::Hash;

use futures::future::BoxFuture;

use super::{Action, Context, ReconcileError};
use crate::ObjectKey;

/// What a controller can be over: anything that can be compared, hashed and printed. Mostly an [`ObjectKey`].
pub trait Key: Clone + Eq + Ord + Hash + Debug + Send + Sync + 'static {}

impl<Q: Clone + Eq + Ord + Hash + Debug + Send + Sync + 'static> Key for Q {}

/// Makes the world match one object, or whatever else a key stands for.
///
/// Every `async fn(ObjectKey, Context) -> Result<Action, E>` is one. It is called with the key of an object
/// whenever something about it may have changed, also when it is gone: then the lister has nothing, and what
/// it stood for outside the cluster can be cleaned up. It is never called for one key twice at a time. It
/// should look at how things are, not at what has happened: many changes are one call.
pub trait Reconciler<Q = ObjectKey>: Send + Sync + 'static {
    /// Makes the world match the object of this key.
    fn reconcile(&self, key: Q, cx: Context) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

impl<Q: Key, F, Fut, E> Reconciler<Q> for F
where
    F: Fn(Q, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<ReconcileError>,
{
    async fn reconcile(&self, key: Q, cx: Context) -> Result<Action, ReconcileError> {
        self(key, cx).await.map_err(Into::into)
    }
}

/// A reconciler whose type does not matter any more.
pub(super) trait AnyReconciler<Q>: Send + Sync {
    fn call(&self, key: Q, cx: Context) -> BoxFuture<'_, Result<Action, ReconcileError>>;
}

impl<Q: Key, R: Reconciler<Q>> AnyReconciler<Q> for R {
    fn call(&self, key: Q, cx: Context) -> BoxFuture<'_, Result<Action, ReconcileError>> {
        Box::pin(self.reconcile(key, cx))
    }
}
