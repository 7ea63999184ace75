//! The least that a controller can be: a watch whose every event is written as a child. No cache, no queue, no look
//! at what is there: whatever a controller takes longer than this is its own doing.

use std::path::Path;

use anyhow::Result;
use futures::stream::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};

use super::UNCHANGED;
use super::child::{WORKERS, at, now, wanted};

/// Runs until it is killed, or the server ends the watch.
pub(crate) async fn run(kubeconfig: &Path) -> Result<()> {
    let client = Client::try_from(super::config(kubeconfig).await?)?;
    let sources: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let children: Api<Secret> = Api::default_namespaced(client);
    // From version 0 the watch begins with all that there are.
    let events = sources.watch(&WatchParams::default().timeout(290), "0").await?;
    let write = |event| write(&children, event);
    events.map_ok(write).try_buffer_unordered(usize::from(WORKERS)).try_collect::<()>().await?;
    Ok(())
}

async fn write(children: &Api<Secret>, event: WatchEvent<ConfigMap>) -> kube::Result<()> {
    let now = now();
    let (WatchEvent::Added(source) | WatchEvent::Modified(source)) = event else { return Ok(()) };
    let Some(child) = wanted(&source, None, now) else { return Ok(()) };
    match at(&source) {
        Some(UNCHANGED) => children.create(&PostParams::default(), &child).await?,
        _ => {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            children.replace(name, &PostParams::default(), &child).await?
        }
    };
    Ok(())
}
