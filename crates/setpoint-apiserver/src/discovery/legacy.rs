//! One document for the list of groups, one for each group, one for each group-version.

use serde_json::{Value, json};

use super::{Content, Entry, Group, Version};

/// The documents by path. Those of the core group have no apiVersion: they are older than it.
pub(super) fn documents<'a>(groups: &'a [Group<'a>]) -> impl Iterator<Item = (String, Value)> + 'a {
    let named = || groups.iter().filter(|group| !group.name.is_empty());
    let core = groups.iter().filter(|group| group.name.is_empty()).flat_map(|group| {
        let versions: Vec<_> = group.versions.iter().map(|version| version.name).collect();
        // Where the server is reached is not known here, and clients have stopped asking.
        let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]);
        let root =
            json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": addresses});
        let lists = local(group).map(|(version, entries)| {
            let list =
                json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources(entries)});
            (format!("api/{version}"), list)
        });
        std::iter::once(("api".to_owned(), root)).chain(lists)
    });
    let groups: Vec<Value> = named().map(group).collect();
    let root = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
    let each = named().flat_map(|found| {
        let mut alone = group(found);
        alone["kind"] = json!("APIGroup");
        alone["apiVersion"] = json!("v1");
        let lists = local(found).map(|(version, entries)| {
            let group_version = format!("{}/{version}", found.name);
            let list = json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
                "resources": resources(entries),
            });
            (format!("apis/{group_version}"), list)
        });
        std::iter::once((format!("apis/{}", found.name), alone)).chain(lists)
    });
    core.chain(std::iter::once(("apis".to_owned(), root))).chain(each)
}

/// The versions that this server answers itself; others tell of theirs when they are asked.
fn local<'a>(group: &'a Group<'a>) -> impl Iterator<Item = (&'a str, &'a [Entry<'a>])> {
    group.versions.iter().filter_map(|version| match &version.content {
        Content::Local(entries) => Some((version.name, entries.as_slice())),
        Content::Remote(_) => None,
    })
}

fn group(group: &Group<'_>) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(
            |Version { name, .. }| json!({"groupVersion": format!("{}/{name}", group.name), "version": name}),
        )
        .collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

fn resources(entries: &[Entry<'_>]) -> Vec<Value> {
    entries.iter().flat_map(|entry| std::iter::once(resource(entry)).chain(subresources(entry))).collect()
}

fn resource(entry: &Entry<'_>) -> Value {
    let mut resource = json!({
        "name": entry.plural,
        "singularName": entry.singular,
        "namespaced": entry.namespaced,
        "kind": entry.kind,
        "verbs": entry.verbs,
    });
    if !entry.short_names.is_empty() {
        resource["shortNames"] = json!(entry.short_names);
    }
    if !entry.categories.is_empty() {
        resource["categories"] = json!(entry.categories);
    }
    resource
}

fn subresources<'a>(entry: &'a Entry<'a>) -> impl Iterator<Item = Value> + 'a {
    entry.subresources.iter().map(|sub| {
        let mut resource = json!({
            "name": format!("{}/{}", entry.plural, sub.name),
            "singularName": "",
            "namespaced": entry.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        if let Some((group, version)) = sub.group_version {
            resource["version"] = json!(version);
            if !group.is_empty() {
                resource["group"] = json!(group);
            }
        }
        resource
    })
}
