//! An informer with a work queue: handlers add keys, workers take them and look at how things are now.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use setpoint::{
    CacheSyncError, HandlerFns, Held, Lister, ObjectKey, SharedInformerFactory, WorkQueue, run_workers,
};

use crate::Print;

/// How long the first list may take.
const SYNC_LIMIT: Duration = Duration::from_secs(30);
const WORKERS: usize = 2;

/// Prints the state of every pod whenever it has changed, until `queue` is shut down.
pub async fn print_pods(
    client: Client,
    queue: WorkQueue<ObjectKey>,
    print: Print,
) -> Result<(), CacheSyncError> {
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer::<Pod>();
    let (added, updated, deleted) = (queue.clone(), queue.clone(), queue.clone());
    // Dropped at the end, and the handler with it.
    let _handler = pods.add_handler(
        HandlerFns::new()
            .on_add(move |pod, _| enqueue(&added, pod))
            .on_update(move |_, new| enqueue(&updated, new))
            .on_delete(move |gone| enqueue(&deleted, &gone.object)),
    );
    factory.start();
    factory.wait_for_cache_sync(SYNC_LIMIT).await?;

    let lister = pods.lister();
    run_workers(WORKERS, &queue, |key| std::future::ready(sync(&lister, &key, &print))).await;
    factory.shutdown().await;
    Ok(())
}

/// Only the key is queued: a pod that changes ten times before a worker has time is looked at once.
fn enqueue(queue: &WorkQueue<ObjectKey>, pod: &Held<Pod>) {
    queue.add(pod.key().clone());
}

fn sync(pods: &Lister<Pod>, key: &ObjectKey, print: &Print) -> Result<(), std::convert::Infallible> {
    match pods.get(key) {
        Some(pod) => {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            print(format!("{key} is {}", phase.unwrap_or("Unknown")));
        }
        None => print(format!("{key} is gone")),
    }
    Ok(())
}
