//! Our controller of the benchmark.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};

use super::child::{WORKERS, now, wanted};

/// Runs until it is killed.
pub(crate) async fn run(kubeconfig: &Path) -> Result<()> {
    let client = Client::try_from(super::config(kubeconfig).await?)?;
    let controller =
        Controller::of::<ConfigMap>(.., "e2e", reconcile).owns::<Secret>(..).workers(usize::from(WORKERS));
    Manager::new(client).controller(controller).stop_on_signals().run().await?;
    Ok(())
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let now = now();
    let Some(source) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let current = cx.lister::<Secret>()?.get(&key);
    let Some(child) = wanted(&source, current.as_deref(), now) else { return Ok(Action::done()) };
    let children: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    match current {
        None => children.create(&PostParams::default(), &child).await?,
        Some(_) => children.replace(key.name(), &PostParams::default(), &child).await?,
    };
    Ok(Action::done())
}
