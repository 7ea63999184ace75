//! An informer: a list and watch that never gives up, a cache, and handlers that are told what changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use setpoint::{CacheSyncError, HandlerFns, Held, SharedInformerFactory, is_resync};

use crate::Print;

/// How long the first list may take.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Prints every change of every pod, until the factory that it returns is shut down.
pub async fn print_pods(client: Client, print: Print) -> Result<SharedInformerFactory, CacheSyncError> {
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer::<Pod>();
    let (added, updated, deleted) = (print.clone(), print.clone(), print.clone());
    let handler = pods.add_handler(
        HandlerFns::new()
            .on_add(move |pod: &Held<Pod>, is_initial| {
                added(format!("{} {}", if is_initial { "found" } else { "added" }, name(pod)));
            })
            .on_update(move |old, new| {
                if !is_resync(old, new) {
                    updated(format!("updated {}: {} to {}", name(new), phase(old), phase(new)));
                }
            })
            .on_delete(move |gone| deleted(format!("deleted {}", name(&gone.object)))),
    );
    // It stays as long as the informer does.
    handler.detach();
    factory.start();
    factory.wait_for_cache_sync(SYNC_LIMIT).await?;
    print(format!("synced, {} in the cache", pods.lister().len()));
    Ok(factory)
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}
