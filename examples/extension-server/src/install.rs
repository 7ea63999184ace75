//! Tells a cluster that this server answers for its group-versions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Where the service is.
pub const NAMESPACE: &str = "extension-server";
/// What it is called.
pub const SERVICE: &str = "extension-server";

/// Registers a server that runs outside of the cluster, at a port of a host that the cluster's server finds by its name.
/// `manifests/` has the same for one inside.
pub async fn install(client: &Client, host: &str, port: u16, ca: &str) -> Result<(), kube::Error> {
    let apply = PatchParams::apply("extension-server").force();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    namespaces.patch(NAMESPACE, &apply, &Patch::Apply(&namespace)).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE},
        "spec": {"type": "ExternalName", "externalName": host},
    });
    services.patch(SERVICE, &apply, &Patch::Apply(&service)).await?;
    let registered: Api<APIService> = Api::all(client.clone());
    for (group, version) in [("metrics.k8s.io", "v1beta1"), ("peaks.example.com", "v1")] {
        let name = format!("{version}.{group}");
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
                "caBundle": STANDARD.encode(ca),
            },
        });
        registered.patch(&name, &apply, &Patch::Apply(&object)).await?;
    }
    Ok(())
}
