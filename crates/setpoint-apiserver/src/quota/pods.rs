//! What pods count as, and what they ask for in all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use setpoint_env::Later;
use setpoint_kinds::Quantity;

use super::Amounts;
use super::scopes::Scope;
use crate::kinds::pod::quality_of_service;

/// What every container has to say if a quota tracks it. Newer resources are not treated like this.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";

pub(super) fn tracks(name: &str) -> bool {
    let base = name.strip_prefix(REQUESTS).or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    matches!(base, "cpu" | "memory" | "ephemeral-storage")
        || name == "pods"
        || name.starts_with(HUGE_PAGES)
        || name.strip_prefix(REQUESTS).is_some_and(|name| name.starts_with(HUGE_PAGES) || is_extended(name))
}

/// Whether a resource is one of somebody's own.
fn is_extended(name: &str) -> bool {
    const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(DEVICE_CLASS) || !is_native && !name.starts_with(REQUESTS)
}

/// Whether a pod ends by itself.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let class = pod["status"]["qosClass"].as_str().filter(|class| !class.is_empty());
    class.unwrap_or_else(|| quality_of_service(&pod["spec"])) == "BestEffort"
}

pub(super) fn matches(scope: &Scope<'_>, pod: &Value) -> bool {
    match scope.name {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod["spec"]["priorityClassName"].as_str().filter(|class| !class.is_empty());
            if scope.is_presence() { class.is_some() } else { scope.holds(class) }
        }
        "CrossNamespacePodAffinity" => has_affinity_across_namespaces(pod),
        _ => false,
    }
}

fn has_affinity_across_namespaces(pod: &Value) -> bool {
    let is_across = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|names| !names.is_empty())
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = &pod["spec"]["affinity"][kind];
        let terms = |list: &str| affinity[list].as_array().into_iter().flatten();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(is_across)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|weighted| is_across(&weighted["podAffinityTerm"]))
    })
}

/// What a pod uses. One that has ended, or is overdue to be gone, uses nothing.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    if !is_charged(pod, now) {
        return Amounts::default();
    }
    let with_status = true;
    compute(&total(pod, "requests", with_status), &total(pod, "limits", with_status))
}

fn is_charged(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
        return false;
    }
    let deleted =
        pod["metadata"]["deletionTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match (deleted, grace) {
        (Some(deleted), Some(grace)) => {
            now <= deleted.later(Duration::from_secs(u64::try_from(grace).unwrap_or(0)))
        }
        _ => true,
    }
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::default();
    usage.set("pods", Quantity::ONE);
    for (name, amount) in requests.iter() {
        if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES) {
            usage.set(name, amount);
            usage.set(&format!("{REQUESTS}{name}"), amount);
        } else if is_extended(name) {
            usage.set(&format!("{REQUESTS}{name}"), amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.set(&format!("limits.{name}"), amount);
        }
    }
    usage
}

/// What containers do not say although a quota wants to know it.
pub(super) fn missing(tracked: &[String], pod: &Value) -> Option<String> {
    let says_as_a_whole =
        |list: &str| Amounts::of(&pod["spec"]["resources"][list]).names().any(is_for_whole_pods);
    if says_as_a_whole("requests") || says_as_a_whole("limits") {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            let said = compute(&Amounts::of(&resources["requests"]), &Amounts::of(&resources["limits"]));
            let required = tracked.iter().map(String::as_str).filter(|name| REQUIRED.contains(name));
            for name in required.filter(|name| said.get(name).is_none()) {
                missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let parts = missing.into_iter().map(|(name, containers)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    });
    Some(format!("must specify {}", parts.collect::<Vec<_>>().join("; ")))
}

/// Whether a pod may ask for a resource as a whole.
fn is_for_whole_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES)
}

/// All `requests` or `limits` of a pod at its greediest moment, with its overhead. With the status, a container that
/// is being resized counts as the larger of what it has and what it shall have.
fn total(pod: &Value, list: &str, with_status: bool) -> Amounts {
    let mut total = of_containers(pod, list, with_status);
    for (name, amount) in Amounts::of(&pod["spec"]["resources"][list]).iter() {
        if is_for_whole_pods(name) {
            total.set(name, amount);
        }
    }
    for (name, amount) in Amounts::of(&pod["spec"]["overhead"]).iter() {
        match total.get(name) {
            Some(known) if list == "requests" || !known.is_zero() => {
                total.set(name, known.saturating_add(amount))
            }
            None if list == "requests" => total.set(name, amount),
            _ => {}
        }
    }
    total
}

/// The same as a LimitRange looks at it: no overhead, no status.
pub(crate) fn specified(pod: &Value, list: &str) -> Amounts {
    let mut total = of_containers(pod, list, false);
    for (name, amount) in Amounts::of(&pod["spec"]["resources"][list]).iter() {
        if matches!(name, "cpu" | "memory") {
            total.set(name, amount);
        }
    }
    total
}

/// All containers together, or one init container with the sidecars that were started before it.
fn of_containers(pod: &Value, list: &str, with_status: bool) -> Amounts {
    let items = |list: &str| pod["spec"][list].as_array().into_iter().flatten();
    let of = |container: &Value, statuses: &str| {
        let mut amounts = Amounts::of(&container["resources"][list]);
        if with_status {
            actual(pod, &pod["status"][statuses], container, list, &mut amounts);
        }
        amounts
    };
    let mut total = Amounts::default();
    items("containers").for_each(|container| total.add(&of(container, "containerStatuses")));
    let (mut sidecars, mut most) = (Amounts::default(), Amounts::default());
    for container in items("initContainers") {
        let mut together;
        if container["restartPolicy"] == "Always" {
            let amounts = of(container, "initContainerStatuses");
            total.add(&amounts);
            sidecars.add(&amounts);
            together = sidecars.clone();
        } else {
            together = Amounts::of(&container["resources"][list]);
            together.add(&sidecars);
        }
        most.raise_to(&together);
    }
    total.raise_to(&most);
    total
}

/// Raises what a container asks for to what it has, while it is being resized. What cannot be had does not count.
fn actual(pod: &Value, statuses: &Value, container: &Value, list: &str, amounts: &mut Amounts) {
    let statuses = statuses.as_array().into_iter().flatten();
    let Some(status) = statuses.into_iter().find(|status| status["name"] == container["name"]) else {
        return;
    };
    if status["resources"].is_null() {
        return;
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_infeasible = conditions
        .into_iter()
        .any(|condition| condition["type"] == "PodResizePending" && condition["reason"] == "Infeasible");
    let mut has = Amounts::of(&status["resources"][list]);
    if list == "requests" {
        has.raise_to(&Amounts::of(&status["allocatedResources"]));
    }
    if is_infeasible {
        *amounts = has;
    } else {
        amounts.raise_to(&has);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Counted, scopes};
    use super::*;

    fn container(requests: Value, limits: Value) -> Value {
        json!({"name": "a", "resources": {"requests": requests, "limits": limits}})
    }

    fn used(pod: &Value) -> String {
        Counted::of("", "pods").unwrap().usage(pod, "2030-01-01T00:00:00Z".parse().unwrap()).to_string()
    }

    #[test]
    fn requests_have_two_names_and_limits_one() {
        let resources = json!({"cpu": "1", "memory": "1Gi", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"});
        let pod = json!({"spec": {"containers": [container(resources, json!({"cpu": "2"}))]}});
        assert_eq!(
            used(&pod),
            "count/pods=1,cpu=1,hugepages-2Mi=4Mi,limits.cpu=2,memory=1Gi,pods=1,requests.cpu=1,\
             requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi,requests.memory=1Gi"
        );
        for name in used(&pod).split(',').filter_map(|entry| entry.split_once('=')) {
            assert!(name.0 == "count/pods" || tracks(name.0), "{}", name.0);
        }
        for other in ["requests.storage", "services", "count/deployments.apps", "requests.kubernetes.io/x"] {
            assert!(!tracks(other), "{other}");
        }
    }

    #[test]
    fn a_pod_that_has_ended_or_is_overdue_is_only_a_number() {
        let mut pod = json!({"spec": {"containers": [container(json!({"cpu": "1"}), json!({}))]}});
        for phase in ["Failed", "Succeeded"] {
            pod["status"] = json!({"phase": phase});
            assert_eq!(used(&pod), "count/pods=1");
        }
        pod["status"] = json!({"phase": "Running"});
        let marked = |time: &str| json!({"deletionTimestamp": time, "deletionGracePeriodSeconds": 30});
        pod["metadata"] = marked("2029-12-31T23:59:31Z");
        assert!(used(&pod).contains("pods=1,requests"));
        pod["metadata"] = marked("2029-12-31T23:59:29Z");
        assert_eq!(used(&pod), "count/pods=1");
    }

    #[test]
    fn the_greediest_moment_counts_with_the_overhead() {
        let cpu = |amount: &str| container(json!({"cpu": amount}), json!({"cpu": amount}));
        let mut sidecar = cpu("100m");
        sidecar["restartPolicy"] = "Always".into();
        let mut pod = json!({"spec": {
            "containers": [cpu("200m")], "initContainers": [sidecar, cpu("500m")],
            "overhead": {"cpu": "50m", "memory": "1Mi"}
        }});
        let used = used(&pod);
        assert!(used.contains(",cpu=650m,") && used.contains("limits.cpu=650m"), "{used}");
        assert!(used.contains("requests.memory=1Mi") && !used.contains("limits.memory"), "{used}");
        assert_eq!(specified(&pod, "requests").to_string(), "cpu=600m");
        pod["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
        assert_eq!(specified(&pod, "requests").to_string(), "cpu=2");
    }

    #[test]
    fn while_it_is_resized_a_container_counts_as_the_larger() {
        let mut pod = json!({
            "spec": {"containers": [container(json!({"cpu": "1"}), json!({}))]},
            "status": {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}]}
        });
        assert!(used(&pod).contains("requests.cpu=3"));
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4".into();
        assert!(used(&pod).contains("requests.cpu=4"));
        pod["status"]["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        assert!(used(&pod).contains("requests.cpu=3"));
    }

    #[test]
    fn scopes_choose_pods() {
        let is_in = |scope: Value, pod: Value| {
            let quota = json!({"spec": {"scopeSelector": {"matchExpressions": [scope]}}});
            scopes::of(&quota).all(|scope| matches(&scope, &pod))
        };
        let named = |name: &str| json!({"scopeName": name, "operator": "Exists"});
        let burstable = json!({"spec": {"containers": [container(json!({"cpu": "1"}), json!({}))]}});
        let idle = json!({"spec": {"containers": [{"name": "a"}], "activeDeadlineSeconds": 5}});
        for (scope, of_burstable) in
            [("Terminating", false), ("NotTerminating", true), ("BestEffort", false), ("NotBestEffort", true)]
        {
            assert_eq!(is_in(named(scope), burstable.clone()), of_burstable, "{scope}");
            assert_eq!(is_in(named(scope), idle.clone()), !of_burstable, "{scope}");
        }
        let high = json!({"spec": {"priorityClassName": "high"}});
        let class = |operator: &str, values: Value| json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        for (scope, of_high, of_none) in [
            (class("In", json!(["high", "low"])), true, false),
            (class("NotIn", json!(["high"])), false, true),
            (class("Exists", json!([])), true, false),
            (class("DoesNotExist", json!([])), false, true),
        ] {
            assert_eq!(is_in(scope.clone(), high.clone()), of_high, "{scope}");
            assert_eq!(is_in(scope.clone(), idle.clone()), of_none, "{scope}");
        }
        let term = json!({"podAffinityTerm": {"namespaceSelector": {}}});
        let near = json!({"spec": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        assert!(is_in(named("CrossNamespacePodAffinity"), near));
        assert!(!is_in(named("CrossNamespacePodAffinity"), idle));
    }

    #[test]
    fn containers_must_say_what_a_quota_tracks() {
        let mut other = container(json!({"cpu": "1"}), json!({}));
        other["name"] = "b".into();
        let pod = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [other]}});
        let tracked = ["limits.cpu", "requests.cpu", "pods", "requests.ephemeral-storage"].map(str::to_owned);
        let expected = "must specify limits.cpu for: a,b; requests.cpu for: a";
        assert_eq!(missing(&tracked, &pod).as_deref(), Some(expected));
        assert_eq!(missing(&tracked[2..], &pod), None);
    }
}
