//! The code that a controller runs.

use futures::future::BoxFuture;

use super::{Action, Context, ReconcileError};
use crate::ObjectKey;

/// Makes the world match one object.
///
/// Every `async fn(ObjectKey, Context) -> Result<Action, E>` is one. It is called with the key of an object
/// whenever something about it may have changed, also when it is gone: then the lister has nothing, and what
/// it stood for outside the cluster can be cleaned up. It is never called for one key twice at a time. It
/// should look at how things are, not at what has happened: many changes are one call.
pub trait Reconciler: Send + Sync + 'static {
    /// Makes the world match the object of this key.
    fn reconcile(
        &self,
        key: ObjectKey,
        cx: Context,
    ) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

impl<F, Fut, E> Reconciler for F
where
    F: Fn(ObjectKey, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<ReconcileError>,
{
    async fn reconcile(&self, key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
        self(key, cx).await.map_err(Into::into)
    }
}

/// A reconciler whose type does not matter any more.
pub(super) trait AnyReconciler: Send + Sync {
    fn call(&self, key: ObjectKey, cx: Context) -> BoxFuture<'_, Result<Action, ReconcileError>>;
}

impl<R: Reconciler> AnyReconciler for R {
    fn call(&self, key: ObjectKey, cx: Context) -> BoxFuture<'_, Result<Action, ReconcileError>> {
        Box::pin(self.reconcile(key, cx))
    }
}
