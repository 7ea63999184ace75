//! Amounts of resources that containers and pods want.

use std::collections::BTreeSet;

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::super::at::{At, items};
use super::super::fill::Fields;
use crate::metadata::names;

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// What is counted, so that there are no parts of it.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Nothing finer than a milli is kept.
pub(in crate::kinds) fn round_up(amounts: &mut Fields) {
    for amount in amounts.values_mut() {
        let Value::String(text) = amount else { continue };
        // Canonical texts end with `n` or `u` only if they are finer.
        let finer = if text.ends_with('n') {
            1_000_000
        } else if text.ends_with('u') {
            1_000
        } else {
            continue;
        };
        let Ok(number) = text[..text.len() - 1].parse::<i64>() else { continue };
        let millis = number.div_euclid(finer) + i64::from(number.rem_euclid(finer) > 0);
        let text = format!("{millis}m");
        *amount = setpoint_kinds::canonical_quantity(&text).ok().flatten().unwrap_or(text).into();
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::label_key(&format!("requests.{name}")).is_empty()
}

/// Whether more can be limited than is requested.
pub(in crate::kinds) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// A name of a resource; whether there was nothing wrong with it.
pub(in crate::kinds) fn name(name: &str, at: &At) -> bool {
    let problems = names::label_key(name);
    if !problems.is_empty() {
        problems.into_iter().for_each(|problem| at.invalid_as(name, problem));
        return false;
    }
    let is_standard =
        STANDARD.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !is_standard {
        at.invalid_as(name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// A name of a resource of containers.
pub(in crate::kinds) fn container_name(text: &str, at: &At) {
    name(text, at);
    if !text.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&text) && !is_huge_page(text) {
            at.invalid_as(text, "must be a standard resource for containers");
        }
    } else if !is_native(text) && !is_extended(text) {
        at.invalid_as(text, "doesn't follow extended resource name standard");
    }
}

fn pod_name(text: &str, at: &At) {
    if name(text, at) && !["cpu", "memory"].contains(&text) && !is_huge_page(text) {
        at.not_supported_as(text, &["cpu", "hugepages-", "memory"]);
    }
}

/// An amount of a resource.
pub(in crate::kinds) fn amount(name: &str, at: &At) {
    if at.quantity() < Quantity::ZERO {
        at.invalid("must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !at.quantity().is_integer() {
        at.invalid("must be an integer");
    }
}

pub(super) fn of_container(resources: &At, claims: &BTreeSet<&str>) {
    requirements(resources, container_name, claims);
}

pub(super) fn overhead(overhead: &At) {
    let limits = serde_json::json!({"limits": overhead.value()});
    requirements(&overhead.with(&limits), container_name, &BTreeSet::new());
}

fn requirements(resources: &At, check_name: fn(&str, &At), claims: &BTreeSet<&str>) {
    if !resources.exists() {
        return;
    }
    let (limits, requests) = (resources.field("limits"), resources.field("requests"));
    let (mut has_compute, mut has_huge_pages) = (false, false);
    let mut note = |name: &str, at: &At| {
        check_name(name, at);
        amount(name, at);
        if is_huge_page(name) {
            has_huge_pages = true;
        }
        has_compute |= ["cpu", "memory"].contains(&name);
    };
    for (name, limit) in limits.entries() {
        note(name, &limit);
        huge_pages(name, &limit);
    }
    for (name, request) in requests.entries() {
        note(name, &request);
        let limit = limits.key(name);
        if limit.exists() {
            let (amount, most) = (request.text(), limit.text());
            if request.quantity() != limit.quantity() && !may_overcommit(name) {
                requests.invalid_as(amount, format!("must be equal to {name} limit of {most}"));
            } else if request.quantity() > limit.quantity() {
                requests.invalid_as(amount, format!("must be less than or equal to {name} limit of {most}"));
            }
        } else if !may_overcommit(name) {
            limits.required("Limit must be set for non overcommitable resources");
        }
        huge_pages(name, &request);
    }
    if has_huge_pages && !has_compute {
        resources.forbidden("HugePages require cpu or memory");
    }
    claim_names(&resources.field("claims"), claims);
}

fn huge_pages(name: &str, amount: &At) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let size = match setpoint_kinds::canonical_quantity(size) {
        Ok(canonical) => Quantity::of(canonical.as_deref().unwrap_or(size)),
        Err(_) => Quantity::ZERO,
    };
    if !size.is_integer() || !amount.quantity().is_multiple_of(size) {
        amount.invalid(format!("{} is not positive integer multiple of {name}", amount.text()));
    }
}

fn claim_names(claims: &At, known: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.field("name").text();
        if name.is_empty() {
            claim.required("");
            continue;
        }
        let request = claim.field("request");
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{}", request.text()) };
        if seen.contains(name) {
            claim.duplicate_as(name);
        } else {
            request.has_form_if_set(names::dns1123_label);
            let taken = request.is_empty() && seen.iter().any(|key| key.starts_with(&format!("{name}/")));
            if seen.contains(&key) || taken {
                claim.duplicate_as(key.as_str());
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let all: Vec<&str> = known.iter().copied().collect();
            let which =
                if all.is_empty() { " which is empty".to_owned() } else { format!(": {}", all.join(", ")) };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{which}");
            claim.with(claim.field("name").value()).not_found_because(detail);
        }
    }
}

const CLAIM: [(&str, &str, &str); 3] = [
    ("Name", "name", "\"\""),
    ("ResourceClaimName", "resourceClaimName", "null"),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", "null"),
];

/// The claims of a pod.
pub(super) fn claims(claims: &At) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.field("name");
        if name.is_empty() {
            name.required("");
        } else if seen.insert(name.text()) {
            name.has_form(names::dns1123_label);
        } else {
            name.duplicate();
        }
        let (own, template) = (claim.field("resourceClaimName"), claim.field("resourceClaimTemplateName"));
        match (own.exists(), template.exists()) {
            (true, true) => claim.invalid_as(
                claim.in_go(&CLAIM),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                claim.invalid_as(
                    claim.in_go(&CLAIM),
                    "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
                );
            }
            _ => {}
        }
        for reference in [own, template].into_iter().filter(At::exists) {
            reference.has_form(names::dns1123_subdomain);
        }
    }
}

/// Resources of the pod as a whole.
pub(super) fn pod_level(spec: &At) {
    let resources = spec.field("resources");
    if !resources.exists() {
        return;
    }
    if spec.field("os").field("name").text() == "windows" {
        return resources.forbidden("may not be set for a windows pod");
    }
    if resources.field("claims").exists() {
        resources.field("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    requirements(&resources, pod_name, &BTreeSet::new());
    for container in spec.field("containers").items() {
        for (name, limit) in container.field("resources").field("limits").entries() {
            let most = resources.field("limits").key(name).value();
            if let Some(most) = most.as_str().filter(|most| limit.quantity() > Quantity::of(most)) {
                limit.invalid(format!("must be less than or equal to pod limits of {most}"));
            }
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn quality_of_service(spec: &Value) -> &'static str {
    if spec["resources"]["requests"].is_object() || spec["resources"]["limits"].is_object() {
        return quality_of(&spec["resources"]);
    }
    let containers = items(&spec["initContainers"]).iter().chain(items(&spec["containers"]));
    let mut all = None;
    for container in containers {
        let one = quality_of(&container["resources"]);
        if one == BURSTABLE || all.is_some_and(|all| all != one) {
            return BURSTABLE;
        }
        all = Some(one);
    }
    all.unwrap_or(BEST_EFFORT)
}

const BURSTABLE: &str = "Burstable";
const BEST_EFFORT: &str = "BestEffort";

fn quality_of(resources: &Value) -> &'static str {
    let amount = |list: &str, name: &str| Quantity::of(resources[list][name].as_str().unwrap_or("0"));
    let shapes = ["cpu", "memory"].map(|name| {
        let (request, limit) = (amount("requests", name), amount("limits", name));
        match (request == limit, request == Quantity::ZERO) {
            (false, _) => BURSTABLE,
            (true, true) => BEST_EFFORT,
            (true, false) => "Guaranteed",
        }
    });
    if shapes[0] == shapes[1] { shapes[0] } else { BURSTABLE }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quality_of_service_follows_from_requests_and_limits() {
        let pod = |resources: &[Value]| {
            let containers: Vec<Value> = resources.iter().map(|r| json!({"resources": r})).collect();
            quality_of_service(&json!({"containers": containers}))
        };
        let full =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(pod(&[json!({})]), "BestEffort");
        assert_eq!(pod(std::slice::from_ref(&full)), "Guaranteed");
        assert_eq!(pod(&[full, json!({})]), "Burstable");
        assert_eq!(pod(&[json!({"requests": {"cpu": "1"}})]), "Burstable");
    }

    #[test]
    fn nothing_finer_than_a_milli_is_kept() {
        let mut amounts = json!({"cpu": "100u", "memory": "1500n", "x/y": "1"});
        round_up(amounts.as_object_mut().unwrap());
        assert_eq!(amounts, json!({"cpu": "1m", "memory": "1m", "x/y": "1"}));
    }
}
