//! Everything in one document: `apidiscovery.k8s.io/v2`. (v2beta1 is gone since Kubernetes 1.35.)

use serde_json::{Value, json};

use super::{Content, Entry, Group};

pub(super) const GROUP: &str = "apidiscovery.k8s.io";
pub(super) const VERSION: &str = "v2";
pub(super) const KIND: &str = "APIGroupDiscoveryList";
pub(super) const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn list(groups: &[&Group<'_>]) -> Value {
    json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {},
        "items": groups.iter().map(|found| group(found)).collect::<Vec<_>>(),
    })
}

fn group(group: &Group<'_>) -> Value {
    let versions = group.versions.iter().map(|version| match &version.content {
        Content::Local(entries) => {
            let resources: Vec<Value> = entries.iter().map(resource).collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        }
        Content::Remote(remote) => remote.content.clone(),
    });
    json!({"metadata": {"name": group.name}, "versions": versions.collect::<Vec<_>>()})
}

fn resource(entry: &Entry<'_>) -> Value {
    let mut resource = json!({
        "resource": entry.plural,
        "responseKind": kind(None, entry.kind),
        "scope": if entry.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": entry.singular,
        "verbs": entry.verbs,
    });
    let subresources: Vec<Value> = entry
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name, "responseKind": kind(sub.group_version, sub.kind), "verbs": sub.verbs
            })
        })
        .collect();
    for (name, list) in [
        ("shortNames", json!(entry.short_names)),
        ("categories", json!(entry.categories)),
        ("subresources", json!(subresources)),
    ] {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            resource[name] = list;
        }
    }
    resource
}

/// Group and version are empty where they are those of the document's place.
fn kind(group_version: Option<(&str, &str)>, kind: &str) -> Value {
    let (group, version) = group_version.unwrap_or_default();
    json!({"group": group, "version": version, "kind": kind})
}
