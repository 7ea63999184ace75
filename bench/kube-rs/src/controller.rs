//! The controller of the end-to-end benchmark: every source has a child (see `bench/src/e2e`).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};

use crate::child::{WORKERS, now, wanted};

struct Context {
    client: Client,
    children: Store<Secret>,
}

/// Runs until it is killed.
pub(crate) async fn run(kubeconfig: &str) -> anyhow::Result<()> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let (children, writer) = reflector::store::<Secret>();
    let changes = watcher::watcher(Api::<Secret>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .touched_objects();
    Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns_stream(changes)
        .with_config(Config::default().concurrency(WORKERS))
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(10)),
            Arc::new(Context { client, children }),
        )
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}

async fn reconcile(source: Arc<ConfigMap>, context: Arc<Context>) -> kube::Result<Action> {
    let now = now();
    let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
    let current = context.children.get(&ObjectRef::new(&name).within(&namespace));
    let Some(child) = wanted(&source, current.as_deref(), now) else { return Ok(Action::await_change()) };
    let children: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    match current {
        None => children.create(&PostParams::default(), &child).await?,
        Some(_) => children.replace(&name, &PostParams::default(), &child).await?,
    };
    Ok(Action::await_change())
}
