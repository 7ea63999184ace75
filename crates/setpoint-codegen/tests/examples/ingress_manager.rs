use anyhow::{Result, ensure};
use example_ingress_manager::{ANNOTATION, Settings, controller};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint::Permissions;

use crate::NAMESPACE;
use crate::scene::{SETTLED, Scene};

pub(crate) fn permissions() -> Permissions {
    controller(Settings::default()).permissions().clone()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    let _running = scene.start(controller(Settings::default()));
    let services: Api<Service> = Api::namespaced(scene.user(), NAMESPACE);
    let ingresses: Api<Ingress> = Api::namespaced(scene.user(), NAMESPACE);
    let annotate = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: value}}}));
        services.patch("web", &PatchParams::default(), &patch).await
    };
    scene.idle().await;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": {ANNOTATION: "true"}},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    }))?;
    services.create(&PostParams::default(), &service).await?;
    scene.prompt().await;
    ingresses.get("web").await?;

    scene.idle().await;
    let stray = Patch::Merge(
        json!({"spec": {"rules": null, "defaultBackend": {"service": {"name": "x", "port": {"number": 1}}}}}),
    );
    ingresses.patch("web", &PatchParams::default(), &stray).await?;
    scene.prompt().await;
    let spec = ingresses.get("web").await?.spec.unwrap_or_default();
    ensure!(spec.rules.is_some_and(|rules| rules.len() == 1), "it was repaired");
    ingresses.delete("web", &DeleteParams::background()).await?;
    scene.prompt().await;
    ingresses.get("web").await?;

    annotate(Value::Null).await?;
    scene.prompt().await;
    ensure!(ingresses.get_opt("web").await?.is_none(), "it went with the annotation");
    tokio::time::sleep(SETTLED).await;
    ensure!(scene.told("IngressCreated").await? > 1, "it was told once");
    Ok(())
}
