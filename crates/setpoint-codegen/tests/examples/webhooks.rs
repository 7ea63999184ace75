use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use setpoint::Permissions;
use setpoint::webhook::Certificates;

use crate::scene::Scene;

pub(crate) fn permissions() -> Permissions {
    example_webhooks::permissions()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    // Again with another certificate, as after each start.
    for _ in 0..2 {
        let (_, authority) = Certificates::self_signed(["127.0.0.1"])?;
        example_webhooks::install(&scene.client, "https://127.0.0.1:9443", &authority).await?;
    }
    Api::<CustomResourceDefinition>::all(scene.user()).get("backups.backups.setpoint.dev").await?;
    Api::<MutatingWebhookConfiguration>::all(scene.user()).get("example-webhooks").await?;
    Api::<ValidatingWebhookConfiguration>::all(scene.user()).get("example-webhooks").await?;
    Ok(())
}
