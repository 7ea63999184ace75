//! APIServices: one object for each group-version that is served, kept by the server itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Served;
use crate::contention;
use crate::object::{self, metadata_mut};
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::Result;
use crate::storage::{Action, Change, Expect, ListQuery, Record};
use crate::strategy;

/// Says that the server keeps the object: `onstart` for built-in groups, `true` for those of definitions.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Where the built-in groups stand among others.
const PRIORITIES: &[(&str, u32)] = &[
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("apiextensions.k8s.io", 16700),
    ("admissionregistration.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("resource.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("storagemigration.k8s.io", 15800),
];
/// Custom resources come after all of them.
const CUSTOM_PRIORITY: (u32, u32) = (1000, 100);

/// Where a group of this server stands.
pub(crate) fn group_priority(group: &str) -> u32 {
    match group {
        // It has no APIService of its own, and comes before all that have.
        "apiregistration.k8s.io" => 20_001,
        _ => PRIORITIES
            .iter()
            .find(|(name, _)| *name == group)
            .map_or(CUSTOM_PRIORITY.0, |(_, priority)| *priority),
    }
}

/// Where a version of this server stands in its group.
pub(crate) fn version_priority(group: &str, version: &str) -> u32 {
    if group_priority(group) == CUSTOM_PRIORITY.0 {
        return CUSTOM_PRIORITY.1;
    }
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        (_, "v1") => 15,
        _ => 9,
    }
}

fn resource() -> &'static Arc<Resource> {
    Registry::built_in().expect("apiregistration.k8s.io", "v1", "apiservices")
}

/// Makes the objects that are missing, and removes those of groups that are gone.
pub(super) async fn keep(core: &Core, served: &Served) -> Result<()> {
    let query = ListQuery::all(resource().collection());
    let records = core.storage.list(&query).await?.records;
    let mut wanted = wanted(served);
    for record in records {
        if wanted.remove(&*record.path).is_none() {
            remove(core, &record.path).await?;
        }
    }
    // All at once: a store that syncs its disk does so once for them.
    let creates = wanted.into_iter().map(|(name, service)| create(core, name, service));
    futures::future::try_join_all(creates).await.map(drop)
}

/// By name: the spec, and how it is managed.
fn wanted(served: &Served) -> BTreeMap<String, (Value, &'static str)> {
    let mut wanted = BTreeMap::new();
    for (group, versions) in served.groups() {
        for version in versions {
            let spec = spec(group, version, CUSTOM_PRIORITY);
            wanted.insert(format!("{version}.{group}"), (spec, "true"));
        }
    }
    for group in setpoint_kinds::table().groups() {
        let Some((_, priority)) = PRIORITIES.iter().find(|(name, _)| *name == group.name) else { continue };
        for version in &group.versions {
            let spec = spec(group.name, version, (*priority, version_priority(group.name, version)));
            wanted.insert(format!("{version}.{}", group.name), (spec, "onstart"));
        }
    }
    wanted
}

fn spec(group: &str, version: &str, (minimum, priority): (u32, u32)) -> Value {
    let mut spec = json!({"version": version, "groupPriorityMinimum": minimum, "versionPriority": priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    spec
}

fn is_of_definition(record: &Record) -> bool {
    let object = object::decode(&record.value, record.revision);
    object["metadata"]["labels"][MANAGED] == "true"
}

/// Removes an object that was made for a definition, whoever else writes it.
async fn remove(core: &Core, path: &str) -> Result<()> {
    contention::swap(core, resource().key(None, path), |record| {
        is_of_definition(record).then(|| Action::Delete)
    })
    .await
}

async fn create(core: &Core, name: String, (spec, managed): (Value, &str)) -> Result<()> {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name, "labels": {MANAGED: managed}},
        "spec": spec,
    });
    strategy::prepare_create(resource(), &mut object, &core.env);
    object["status"] = json!({"conditions": [{
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
        "lastTransitionTime": strategy::timestamp(core.env.now()),
    }]});
    metadata_mut(&mut object).remove("resourceVersion");
    let action = Action::Put { value: object::encode(&object), ttl: None };
    let change = Change { key: resource().key(None, &name), expect: Expect::Absent, action };
    match core.storage.commit(change).await {
        Ok(_) => Ok(()),
        // Somebody else who was faster is right.
        Err(error) => Ok(error.into_current().map(drop)?),
    }
}
