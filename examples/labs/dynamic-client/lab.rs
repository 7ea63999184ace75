//! The dynamic client: any kind that the server has, custom ones too, by group, version and resource.

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use setpoint::client::find_resource;

use crate::Print;

/// Lists the objects of a resource that is named at run time, such as `apps/v1 deployments`.
pub async fn list(
    client: &Client,
    group: &str,
    version: &str,
    plural: &str,
    print: &Print,
) -> anyhow::Result<()> {
    let found = find_resource(client, group, version, plural).await?;
    let resource = found.with_context(|| format!("the server has no {plural} in {group}/{version}"))?;
    for object in &resource.objects(client, None).list(&ListParams::default()).await? {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        print(format!("{} {namespace}/{name}", resource.api.kind));
        // What is not metadata is plain JSON; a typed object is one conversion away.
        if (group, plural) == ("apps", "deployments") {
            let deployment: Deployment = object.clone().try_parse()?;
            let replicas = deployment.spec.replicas;
            print(format!("  replicas {}", replicas.unwrap_or(1)));
        } else if let Some(spec) = object.data.get("spec") {
            print(format!("  spec {spec}"));
        }
    }
    Ok(())
}
