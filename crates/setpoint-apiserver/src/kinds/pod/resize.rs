//! `/resize`: what may change in the resources of a pod that is there.

use serde_json::{Map, Value};

use super::super::at::{At, items, same};
use super::annotations::MIRROR;
use super::resources::quality_of_service;

/// The resources that can be changed in place.
const COMPUTE: [&str; 2] = ["cpu", "memory"];
const AMOUNTS: [&str; 2] = ["requests", "limits"];

/// Refuses a resize that is none. Of `pod`, only what the path takes differs from `old`, unless it has other containers.
pub(super) fn validate(pod: &At, old: &Value) {
    if old["metadata"]["annotations"].get(MIRROR).is_some() {
        return pod.forbidden("static pods cannot be resized");
    }
    if old["spec"]["os"]["name"] == "windows" {
        return pod.forbidden("windows pods cannot be resized");
    }
    super::metadata_and_spec(pod);
    let spec = pod.field("spec");
    let status = pod.field("status");
    let class = status.field("qosClass");
    let before = old["status"]["qosClass"].as_str().unwrap_or_else(|| quality_of_service(&old["spec"]));
    if before != quality_of_service(spec.value()) {
        spec.invalid_as(class.text(), "Pod QOS Class may not change as a result of resizing");
    }
    if !node_resizes(&old["status"]) {
        spec.forbidden("Pod running on node without support for resize");
    }
    of_pod(&spec, &old["spec"]);
    let lists = ["containers", "initContainers"];
    let in_order = lists.map(|list| keeps_order(&spec.field(list), list, items(&old["spec"][list])));
    if in_order.contains(&false) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, old) in spec.field(list).items().zip(items(&old["spec"][list])) {
            keeps_amounts(&container.field("resources"), &old["resources"], "resource");
        }
    }
    for (container, old) in spec.field("containers").items().zip(items(&old["spec"]["containers"])) {
        if !changes_compute_only(container.value(), old) {
            spec.forbidden("only cpu and memory resources are mutable");
        }
    }
    for (container, old) in spec.field("initContainers").items().zip(items(&old["spec"]["initContainers"])) {
        init_container(&container, old);
    }
}

/// A node that resizes pods tells the resources of what runs.
fn node_resizes(status: &Value) -> bool {
    let running =
        items(&status["containerStatuses"]).iter().find(|found| found["state"]["running"].is_object());
    running.is_none_or(|found| found["resources"].is_object())
}

/// The resources of the pod as a whole.
fn of_pod(spec: &At, old: &Value) {
    let resources = spec.field("resources");
    if !resources.exists() && old["resources"].is_null() {
        return;
    }
    keeps_amounts(&resources, &old["resources"], "pod-level resource");
    if !same_but_compute(resources.value(), &old["resources"]) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

/// Whether the containers are the ones that were there, in the same order.
fn keeps_order(containers: &At, list: &str, old: &[Value]) -> bool {
    if containers.len() != old.len() {
        containers.forbidden(format!("{list} may not be added or removed on resize"));
        return false;
    }
    let mut kept = true;
    for (container, old) in containers.items().zip(old) {
        if container.field("name").value() != &old["name"] {
            container.field("name").forbidden(format!("{list} may not be renamed or reordered on resize"));
            kept = false;
        }
    }
    kept
}

/// What was requested or limited still is.
fn keeps_amounts(resources: &At, old: &Value, what: &str) {
    for list in AMOUNTS {
        let amounts = resources.field(list);
        let mut before = old[list].as_object().into_iter().flatten();
        if before.any(|(name, _)| amounts.value().get(name).is_none()) {
            amounts.forbidden(format!("{what} {list} cannot be removed"));
        }
    }
}

fn init_container(container: &At, old: &Value) {
    if !changes_compute_only(container.value(), old) {
        container.forbidden("only cpu and memory resources for init or sidecar containers are mutable");
    }
    let is_sidecar = container.field("restartPolicy").text() == "Always";
    let mut policies = items(container.field("resizePolicy").value()).iter();
    if !is_sidecar
        && !same(container.value(), old)
        && policies.any(|policy| policy["restartPolicy"] == "RestartContainer")
    {
        let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        container.forbidden(detail);
    }
}

fn changes_compute_only(new: &Value, old: &Value) -> bool {
    let but_resources = |container: &Value| -> Value {
        let fields = container.as_object().into_iter().flatten().filter(|(name, _)| *name != "resources");
        fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
    };
    same_but_compute(&new["resources"], &old["resources"]) && same(&but_resources(new), &but_resources(old))
}

fn same_but_compute(new: &Value, old: &Value) -> bool {
    let others = |resources: &Value, list: &str| -> Vec<(String, Value)> {
        let amounts = resources[list].as_object().into_iter().flatten();
        let amounts = amounts.filter(|(name, _)| !COMPUTE.contains(&name.as_str()));
        amounts.map(|(name, amount)| (name.clone(), amount.clone())).collect()
    };
    AMOUNTS.iter().all(|list| others(new, list) == others(old, list)) && same(&new["claims"], &old["claims"])
}
