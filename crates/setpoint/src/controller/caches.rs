//! Whether caches have seen what a reconcile has written.

use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use serde::Deserialize;

use super::writes::{Outcome, Write};
use crate::{Object, ObjectKey, ResourceVersion, SharedInformer};

/// A cache that a controller reads from.
pub(super) trait Cache: Send + Sync {
    /// What it caches, like `deployments.apps`.
    fn resource(&self) -> &str;

    /// Whether the cache shows the write, or never will.
    fn has_seen(&self, outcome: &Outcome) -> bool;

    /// Waits until [`Cache::has_seen`].
    fn wait_until_seen<'a>(&'a self, outcome: &'a Outcome) -> BoxFuture<'a, ()>;

    /// Whether the first list is in the cache, and if not what went wrong last.
    fn sync_state(&self) -> Result<(), Vec<String>>;

    /// Waits for the first list.
    fn wait_for_sync(&self) -> BoxFuture<'_, ()>;

    /// Starts the informer, if it has not been started.
    fn start(&self);

    /// The keys of all cached objects.
    fn keys(&self) -> Vec<ObjectKey>;
}

impl<T: Object> Cache for SharedInformer<T> {
    fn resource(&self) -> &str {
        self.name()
    }

    fn has_seen(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Version { key, version } => {
                let Some(scope) = self.scopes().find(|scope| scope.contains(key)) else { return true };
                let reached = self.watermark(scope).is_some_and(|watermark| !watermark.is_before(version));
                reached
                    || self.lister().held(key).map_or(self.is_filtered(), |object| {
                        object.version().is_some_and(|cached| !cached.is_before(version))
                    })
            }
            Outcome::Gone { key, uid } => self.lister().held(key).is_none_or(|object| !object.has_uid(uid)),
            Outcome::Unknown { .. } => true,
        }
    }

    fn wait_until_seen<'a>(&'a self, outcome: &'a Outcome) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_until(|| self.has_seen(outcome)))
    }

    fn sync_state(&self) -> Result<(), Vec<String>> {
        if self.has_synced() { Ok(()) } else { Err(self.trouble()) }
    }

    fn wait_for_sync(&self) -> BoxFuture<'_, ()> {
        Box::pin(SharedInformer::wait_for_sync(self))
    }

    fn start(&self) {
        SharedInformer::start(self);
    }

    fn keys(&self) -> Vec<ObjectKey> {
        let mut keys = self.lister().keys();
        keys.sort_unstable();
        keys
    }
}

/// Waits until every cache among `caches` has seen `writes`.
pub(super) async fn wait_until_seen(caches: &[Box<dyn Cache>], client: &Client, writes: Vec<Write>) {
    for Write { resource, outcome } in writes {
        let concerned = concerned(caches, &resource);
        if concerned.is_empty() {
            continue;
        }
        let outcome = match outcome {
            Outcome::Unknown { collection, namespace } => {
                let Some(version) = newest_version(client, &collection).await else { continue };
                // Whatever was written, it is not newer than this.
                Outcome::Version { key: any_key(namespace.as_deref()), version }
            }
            known => known,
        };
        for cache in concerned {
            cache.wait_until_seen(&outcome).await;
        }
    }
}

fn concerned<'a>(caches: &'a [Box<dyn Cache>], resource: &str) -> Vec<&'a dyn Cache> {
    caches.iter().map(|cache| &**cache).filter(|cache| cache.resource() == resource).collect()
}

/// A key that no object has, in the right scope.
fn any_key(namespace: Option<&str>) -> ObjectKey {
    match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, ""),
        None => ObjectKey::cluster(""),
    }
}

/// The resourceVersion that a collection is at, asked of the server. Tried until it answers: the wait as a
/// whole is bounded by whoever waits.
async fn newest_version(client: &Client, collection: &str) -> Option<ResourceVersion> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta {
        resource_version: Option<String>,
    }
    loop {
        let request = Request::get(format!("{collection}?limit=1")).body(Vec::new()).ok()?;
        match client.request::<List>(request).await {
            Ok(list) => return list.metadata.resource_version.as_deref().map(ResourceVersion::from),
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => return None,
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}
