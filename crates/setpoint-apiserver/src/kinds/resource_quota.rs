//! Quotas of namespaces, and limits of what is in them.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::at::{At, items};
use super::fill::{each, null_if_empty, part_or_new};
use super::pod::resources::{amount, container_name, may_overcommit, name, round_up};
use crate::metadata::names;
use crate::strategy::Part;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const STANDARD: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn default(quota: &mut Value) {
    let Some(fields) = quota.as_object_mut() else { return };
    for (part, lists) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
        let part = part_or_new(fields, part);
        for list in lists {
            if let Some(amounts) = super::fill::part(part, list) {
                round_up(amounts);
            }
        }
    }
}

pub(super) fn validate(quota: &At, old: Option<&Value>, part: Part) {
    let status = quota.field("status");
    if part == Part::Status {
        if quota.field("metadata").field("resourceVersion").is_empty() {
            quota.field("resourceVersion").required("");
        }
        return ["hard", "used"].into_iter().for_each(|list| amounts(&status.field(list)));
    }
    let spec = quota.field("spec");
    amounts(&spec.field("hard"));
    scopes(&spec);
    scope_selector(&spec);
    let names = |spec: &Value| {
        let mut names: Vec<String> = items(&spec["scopes"]).iter().map(Value::to_string).collect();
        names.sort();
        names.dedup();
        names
    };
    match old {
        Some(old) if names(&old["spec"]) != names(spec.value()) => {
            spec.field("scopes").invalid("field is immutable");
        }
        Some(_) => {}
        None => ["hard", "used"].into_iter().for_each(|list| amounts(&status.field(list))),
    }
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

fn amounts(list: &At) {
    for (resource, at) in list.entries() {
        name(resource, &at);
        if !resource.contains('/') && !is_standard(resource) {
            at.invalid_as(resource, "must be a standard resource for quota");
        }
        amount(resource, &at);
    }
}

/// Whether a scope says something about a resource.
fn applies(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || COMPUTE.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn conflict(found: &[&str]) -> impl Iterator<Item = ()> + use<> {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    let count = pairs.iter().filter(|pair| pair.iter().all(|scope| found.contains(scope))).count();
    std::iter::repeat_n((), count)
}

fn scopes(spec: &At) {
    let scopes = spec.field("scopes");
    let found: Vec<&str> = scopes.texts().collect();
    for scope in &found {
        if !SCOPES.contains(scope) {
            scopes.invalid("unsupported scope");
        }
        for (resource, _) in spec.field("hard").entries() {
            if is_standard(resource) && !applies(scope, resource) {
                scopes.invalid("unsupported scope applied to resource");
            }
        }
    }
    conflict(&found).for_each(|()| scopes.invalid("conflicting scopes"));
}

fn scope_selector(spec: &At) {
    let selector = spec.field("scopeSelector");
    let requirements = selector.field("matchExpressions");
    let mut found = Vec::new();
    for requirement in requirements.items() {
        let [scope, operator] = ["scopeName", "operator"].map(|name| requirement.field(name).text());
        let values = requirement.field("values");
        found.push(scope);
        if !SCOPES.contains(&scope) {
            requirements.alias("scopeName").invalid_as(scope, "unsupported scope");
        }
        for (resource, _) in spec.field("hard").entries() {
            if is_standard(resource) && !applies(scope, resource) {
                requirements.invalid_as(selector.value().clone(), "unsupported scope applied to resource");
            }
        }
        let has_no_values =
            SCOPES.contains(&scope) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if has_no_values && operator != "Exists" {
            requirements.alias("operator").invalid_as(
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => requirements
                .alias("values")
                .required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "Exists" | "DoesNotExist" if !values.is_empty() => requirements.alias("values").invalid_as(
                values.value().clone(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => requirements.alias("operator").invalid_as(operator, "not a valid selector operator"),
        }
    }
    let shown = spec.field("scopes").value().clone();
    conflict(&found).for_each(|()| requirements.invalid_as(shown.clone(), "conflicting scopes"));
}

/// Limits of containers: what is not said follows from the rest.
pub(super) fn default_limit_range(range: &mut Value) {
    let Some(fields) = range.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    null_if_empty(spec, "limits");
    for limit in each(spec, "limits") {
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if let Some(amounts) = super::fill::part(limit, list) {
                round_up(amounts);
            }
        }
        if super::fill::text(limit, "type") != "Container" {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(Value::Object(amounts)) = limit.get(from).cloned() else { continue };
            let to = part_or_new(limit, to);
            for (name, amount) in amounts {
                to.entry(name).or_insert(amount);
            }
        }
    }
}

pub(super) fn validate_limit_range(range: &At) {
    let mut seen = Vec::new();
    for limit in range.field("spec").field("limits").items() {
        let kind = limit.field("type");
        limit_type(&kind);
        if seen.contains(&kind.text()) {
            kind.duplicate();
        }
        seen.push(kind.text());
        validate_limit(&limit, kind.text());
    }
}

fn limit_type(kind: &At) {
    let problems = names::label_key(kind.text());
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if problems.is_empty() && !kind.text().contains('/') && !standard {
        kind.invalid_text("must be a standard limit type or fully qualified");
    }
    problems.into_iter().for_each(|problem| kind.invalid_text(problem));
}

fn validate_limit(limit: &At, kind: &str) {
    let is_of_pods = ["Pod", "Container"].contains(&kind);
    let mut keys = BTreeMap::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let amounts = limit.field(list);
        if kind == "Pod" && list.starts_with("default") {
            if !amounts.is_empty() {
                amounts.forbidden("may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        if list == "maxLimitRequestRatio" {
            storage_bounds(limit, kind);
        }
        for (resource, at) in amounts.entries() {
            if is_of_pods {
                container_name(resource, &at);
            } else {
                name(resource, &at);
            }
            keys.insert(resource, ());
        }
    }
    for resource in keys.into_keys() {
        compare(limit, resource, kind == "Pod");
    }
}

fn storage_bounds(limit: &At, kind: &str) {
    let has = |list: &str| limit.field(list).field("storage").exists();
    if kind == "PersistentVolumeClaim" && !has("min") && !has("max") {
        limit
            .alias("limits")
            .required("either minimum or maximum storage value is required, but neither was provided");
    }
}

fn compare(limit: &At, resource: &str, is_pod: bool) {
    let [min, max, default, request, ratio] =
        ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(|list| {
            if is_pod && list.starts_with("default") { None } else { limit.value()[list][resource].as_str() }
        });
    let wrong = |list: &str, shown: &str, detail: String| {
        limit.field(list).key(resource).invalid_as(shown, detail);
    };
    let above = |a: Option<&str>, b: Option<&str>| match (a, b) {
        (Some(a), Some(b)) => Quantity::of(a) > Quantity::of(b),
        _ => false,
    };
    let t = |amount: Option<&str>| amount.unwrap_or_default().to_owned();
    if above(min, max) {
        wrong("min", &t(min), format!("min value {} is greater than max value {}", t(min), t(max)));
    }
    if above(min, request) {
        let detail = format!("min value {} is greater than default request value {}", t(min), t(request));
        wrong("defaultRequest", &t(request), detail);
    }
    if above(request, max) {
        let detail = format!("default request value {} is greater than max value {}", t(request), t(max));
        wrong("defaultRequest", &t(request), detail);
    }
    if above(request, default) {
        let detail = format!(
            "default request value {} is greater than default limit value {}",
            t(request),
            t(default)
        );
        wrong("defaultRequest", &t(request), detail);
    }
    if above(min, default) {
        wrong(
            "default",
            &t(min),
            format!("min value {} is greater than default value {}", t(min), t(default)),
        );
    }
    if above(default, max) {
        wrong(
            "default",
            &t(max),
            format!("default value {} is greater than max value {}", t(default), t(max)),
        );
    }
    if let Some(ratio) = ratio {
        let amount = Quantity::of(ratio);
        if amount < Quantity::ONE {
            wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let most = Quantity::of(max).ratio(Quantity::of(min));
            if amount.to_f64() > most {
                let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
                wrong("maxLimitRequestRatio", ratio, detail);
            }
        }
    }
    if !may_overcommit(resource)
        && let (Some(default), Some(request)) = (default, request)
        && Quantity::of(default) != Quantity::of(request)
    {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {resource}");
        wrong("defaultRequest", request, detail);
    }
}
