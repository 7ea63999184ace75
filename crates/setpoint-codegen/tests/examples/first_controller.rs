use anyhow::{Result, ensure};
use example_first_controller::{ANNOTATION, controller};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use setpoint::Permissions;

use crate::NAMESPACE;
use crate::scene::Scene;

pub(crate) fn permissions() -> Permissions {
    controller().permissions().clone()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    let _running = scene.start(controller());
    let maps: Api<ConfigMap> = Api::namespaced(scene.user(), NAMESPACE);
    scene.idle().await;
    for text in ["hello", "good bye"] {
        let namespaces: Api<Namespace> = Api::all(scene.user());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: text}}}));
        namespaces.patch(NAMESPACE, &PatchParams::default(), &patch).await?;
        scene.prompt().await;
        let data = maps.get("greeting").await?.data.unwrap_or_default();
        ensure!(data.get("text").is_some_and(|found| found == text), "{data:?}");
    }
    scene.idle().await;
    maps.delete("greeting", &DeleteParams::default()).await?;
    scene.prompt().await;
    maps.get("greeting").await?;
    Ok(())
}
