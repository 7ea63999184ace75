//! Tells a cluster that this server answers for its group-version, while it runs beside the cluster: for development. `config/` has the
//! same for one that runs inside.

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{NAME, NAMESPACE};

/// Registers the server at a port of this machine, with the authority of its certificate, in PEM.
pub async fn install(client: &Client, port: u16, authority: &str) -> Result<(), kube::Error> {
    let apply = PatchParams::apply(NAME).force();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    namespaces
        .patch(NAMESPACE, &apply, &Patch::Apply(&namespace))
        .await?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    services
        .patch(NAME, &apply, &Patch::Apply(&service))
        .await?;
    let name = "v1alpha1.tides.example.org";
    let registered: Api<APIService> = Api::all(client.clone());
    let bundle = k8s_openapi::ByteString(authority.as_bytes().to_vec());
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
        "spec": {
            "group": "tides.example.org", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": NAMESPACE, "name": NAME, "port": port}, "caBundle": bundle,
        },
    });
    registered
        .patch(name, &apply, &Patch::Apply(&api_service))
        .await?;
    Ok(())
}
