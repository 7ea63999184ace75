use anyhow::{Context, Result, ensure};
use example_foo::{Foo, FooController, RESYNC, WORKERS, crd};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Permissions, SharedInformerFactory};
use tokio_util::sync::CancellationToken;

use crate::NAMESPACE;
use crate::scene::Scene;

pub(crate) fn permissions() -> Permissions {
    example_foo::permissions()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    scene.define(crd()).await?;
    let env = scene.world.env().clone();
    let factory =
        SharedInformerFactory::new(scene.client.clone()).env(env.clone()).config(scene.reflectors());
    let controller = FooController::new(scene.client.clone(), &factory.resync(RESYNC), env.clone());
    let _running = env.spawn(controller.run(WORKERS, CancellationToken::new()));
    scene.idle().await;

    let foos: Api<Foo> = Api::namespaced(scene.user(), NAMESPACE);
    let spec = json!({"deploymentName": "web", "replicas": 1});
    let wanted: Foo = serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec}))?;
    foos.create(&PostParams::default(), &wanted).await?;
    scene.prompt().await;
    let deployments: Api<Deployment> = Api::namespaced(scene.user(), NAMESPACE);
    ensure!(deployments.get("web").await?.spec.replicas == Some(1));
    foos.get("one").await?.status.context("a status")?;

    scene.idle().await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    foos.patch("one", &PatchParams::default(), &patch).await?;
    scene.prompt().await;
    ensure!(deployments.get("web").await?.spec.replicas == Some(3));
    scene.idle().await;
    deployments.delete("web", &DeleteParams::background()).await?;
    scene.prompt().await;
    deployments.get("web").await?;
    ensure!(scene.told("Synced").await? > 1, "it was told once");
    Ok(())
}
