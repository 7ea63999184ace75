use std::net::SocketAddr;

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use setpoint::Permissions;
use setpoint::webhook::Certificates;
use setpoint_apiserver::ApiServer;

use crate::scene::Scene;

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9443);

pub(crate) fn permissions() -> Permissions {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let client = ApiServer::builder().build().client();
        example_webhooks::permissions(&example_webhooks::certificates(&client, ADDRESS))
    })
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    // Again, as after each start.
    for _ in 0..2 {
        example_webhooks::install(&scene.client, &format!("https://{ADDRESS}")).await?;
        let certificates: Certificates = example_webhooks::certificates(&scene.client, ADDRESS).into();
        let (_server, _renewing) = certificates.start(scene.world.env()).await?;
    }
    Api::<Secret>::default_namespaced(scene.user()).get("example-webhooks-tls").await?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(scene.user()).get("example-webhooks").await?;
    let validating = Api::<ValidatingWebhookConfiguration>::all(scene.user()).get("example-webhooks").await?;
    let definition =
        Api::<CustomResourceDefinition>::all(scene.user()).get("backups.backups.setpoint.dev").await?;
    let conversion =
        definition.spec.conversion.and_then(|conversion| conversion.webhook?.client_config?.ca_bundle);
    let mutating = mutating.webhooks.into_iter().flatten().map(|webhook| webhook.client_config.ca_bundle);
    let validating = validating.webhooks.into_iter().flatten().map(|webhook| webhook.client_config.ca_bundle);
    let bundles: Vec<_> = mutating.chain(validating).chain([conversion]).collect();
    ensure!(
        bundles.len() == 3 && bundles.iter().all(Option::is_some),
        "a caller does not know whom to trust"
    );
    Ok(())
}
