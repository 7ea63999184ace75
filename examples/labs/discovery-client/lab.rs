//! The discovery client: which groups, versions and resources a server has.

use kube::Client;
use kube::discovery::{Discovery, Scope, verbs};

use crate::Print;

/// Prints every version of every group, as `kubectl api-versions` does.
pub async fn api_versions(client: &Client, print: &Print) -> kube::Result<()> {
    let core = client.list_core_api_versions().await?;
    let groups = client.list_api_groups().await?;
    let grouped = groups.groups.iter().flat_map(|group| &group.versions);
    let mut versions: Vec<_> = grouped.map(|version| version.group_version.clone()).collect();
    versions.extend(core.versions);
    versions.sort();
    versions.into_iter().for_each(|version| print(version));
    Ok(())
}

/// Prints what can be listed, each in the version that the server prefers, as `kubectl api-resources` does.
pub async fn api_resources(client: &Client, print: &Print) -> kube::Result<()> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut lines = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.supports_operation(verbs::LIST) {
                let scope = if capabilities.scope == Scope::Namespaced { "namespaced" } else { "cluster" };
                lines.push(format!("{} {} {} {scope}", resource.plural, resource.api_version, resource.kind));
            }
        }
    }
    lines.sort();
    lines.into_iter().for_each(|line| print(line));
    Ok(())
}
