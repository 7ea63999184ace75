//! Autoscalers of workloads. Every version is checked as the newest one.

use serde_json::{Value, json};
use setpoint_kinds::Quantity;

use super::at::At;
use super::fill::{default as set, part, part_or_new};
use super::pod::resources;
use crate::metadata::names;
use crate::strategy::Part;

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn default(autoscaler: &mut Value) {
    let Some(fields) = autoscaler.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    set(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        spec.insert("metrics".to_owned(), cpu);
    }
    if let Some(behavior) = part(spec, "behavior") {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        let up = part_or_new(behavior, "scaleUp");
        set(up, "stabilizationWindowSeconds", 0);
        set(up, "selectPolicy", "Max");
        set(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
        let down = part_or_new(behavior, "scaleDown");
        set(down, "selectPolicy", "Max");
        set(down, "policies", json!([policy("Percent", 100)]));
    }
}

/// In the oldest version the usual metric is a field of its own.
pub(super) fn default_v1(autoscaler: &mut Value) {
    const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
    let metrics = autoscaler["metadata"]["annotations"].get(METRICS).and_then(Value::as_str);
    let has_metrics = metrics.is_some_and(|text| {
        serde_json::from_str::<Vec<Value>>(text).is_ok_and(|metrics| !metrics.is_empty())
    });
    let Some(fields) = autoscaler.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    set(spec, "minReplicas", 1);
    if !has_metrics {
        set(spec, "targetCPUUtilizationPercentage", 80);
    }
}

pub(super) fn validate(autoscaler: &At, part: Part) {
    if part == Part::Status {
        let status = autoscaler.field("status");
        for condition in status.field("conditions").items() {
            condition.field("observedGeneration").non_negative();
        }
        status.field("currentReplicas").non_negative();
        return status.field("desiredReplicas").non_negative();
    }
    let spec = autoscaler.field("spec");
    let (min, max) = (spec.field("minReplicas"), spec.field("maxReplicas"));
    let (least, most) = (min.number(), max.number().unwrap_or(0));
    if least.is_some_and(|least| most < least) {
        max.invalid_number("must be greater than or equal to `minReplicas`");
    }
    let target = spec.field("scaleTargetRef");
    reference(&target);
    if !target.field("apiVersion").text().contains('/') {
        target.field("apiVersion").invalid_text("apiVersion must specify API group");
    }
    metrics(&spec.field("metrics"), least == Some(0));
    let behavior = spec.field("behavior");
    for rules in ["scaleUp", "scaleDown"].map(|name| behavior.field(name)) {
        if rules.exists() {
            scaling_rules(&rules);
        }
    }
    // These rules are younger than the others, and come last.
    min.non_negative();
    if most == 0 {
        max.required("");
    } else if most < 0 {
        max.invalid("must be greater than or equal to 1");
    }
}

fn api_version(version: &At) {
    if version.text().matches('/').count() > 1 {
        version.invalid(format!("unexpected GroupVersion string: {}", version.text()));
    }
}

fn reference(target: &At) {
    for field in ["kind", "name"] {
        target.field(field).is_named(names::path_segment);
    }
    api_version(&target.field("apiVersion"));
}

fn metrics(metrics: &At, to_zero: bool) {
    for metric in metrics.items() {
        self::metric(&metric);
    }
    let from_outside = |metric: At| ["Object", "External"].contains(&metric.field("type").text());
    if to_zero && !metrics.items().any(from_outside) {
        metrics.forbidden(
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
}

fn metric(metric: &At) {
    let kind = metric.field("type");
    if kind.is_empty() {
        kind.required("must specify a metric source type");
    }
    if !TYPES.contains(&kind.text()) {
        kind.not_supported(&TYPES);
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.field(field).exists()).collect();
    if let Some(first) = present.first() {
        source(first, &metric.field(first));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.field(field).exists() => {
            metric.field(field).required("must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.not_supported(&TYPES),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            metric.field(field).forbidden("must populate the given metric source only");
        }
    }
}

fn source(kind: &str, source: &At) {
    let target = source.field("target");
    let has = |name: &str| target.field(name).exists();
    match kind {
        "object" => {
            reference(&source.field("describedObject"));
            identifier(&source.field("metric"));
            self::target(&target);
            if !has("value") && !has("averageValue") {
                target.field("averageValue").required("must set either a target value or averageValue");
            }
        }
        "external" => {
            identifier(&source.field("metric"));
            self::target(&target);
            if !has("value") && !has("averageValue") {
                let detail = "must set either a target value for metric or a per-pod target";
                target.field("averageValue").required(detail);
            }
            if has("value") && has("averageValue") {
                let detail = "may not set both a target value for metric and a per-pod target";
                target.field("value").forbidden(detail);
            }
        }
        "pods" => {
            identifier(&source.field("metric"));
            self::target(&target);
            if !has("averageValue") {
                target.field("averageValue").required("must specify a positive target averageValue");
            }
        }
        _ => {
            let name = source.field("name");
            if name.is_empty() {
                name.required("must specify a resource name");
            } else if kind == "containerResource" {
                resources::container_name(name.text(), &name);
            }
            if kind == "containerResource" {
                let container = source.field("container");
                if container.is_empty() {
                    container.required("must specify a container");
                }
                container.has_form_if_set(names::dns1123_label);
            }
            self::target(&target);
            if !has("averageUtilization") && !has("averageValue") {
                let detail = "must set either a target raw value or a target utilization";
                target.field("averageUtilization").required(detail);
            }
            if has("averageUtilization") && has("averageValue") {
                let detail = "may not set both a target raw value and a target utilization";
                target.field("averageValue").forbidden(detail);
            }
        }
    }
}

fn identifier(metric: &At) {
    let name = metric.field("name");
    if name.is_empty() {
        name.required("must specify a metric name");
    } else {
        name.has_form(names::path_segment);
    }
}

fn target(target: &At) {
    let kind = target.field("type");
    if kind.is_empty() {
        kind.required("must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        kind.invalid_text("must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"].map(|name| target.field(name)) {
        if field.exists() && field.quantity() <= Quantity::ZERO {
            field.invalid("must be positive");
        }
    }
    let utilization = target.field("averageUtilization");
    if utilization.number().is_some_and(|percent| percent < 1) {
        utilization.invalid("must be greater than 0");
    }
}

fn scaling_rules(rules: &At) {
    let window = rules.field("stabilizationWindowSeconds");
    if window.number().is_some_and(|seconds| seconds < 0) {
        window.invalid("must be greater than or equal to zero");
    }
    if window.number().is_some_and(|seconds| seconds > 3600) {
        window.invalid("must be less than or equal to 3600");
    }
    rules.field("selectPolicy").one_of_if_set(&["Disabled", "Max", "Min"]);
    let policies = rules.field("policies");
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        if !["Pods", "Percent"].contains(&policy.field("type").text()) {
            policy.field("type").not_supported(&["Percent", "Pods"]);
        }
        policy.field("value").positive();
        let period = policy.field("periodSeconds");
        period.positive();
        if period.number().is_some_and(|seconds| seconds > 1800) {
            period.invalid("must be less than or equal to 1800");
        }
    }
    let tolerance = rules.field("tolerance");
    if tolerance.exists() && tolerance.quantity() < Quantity::ZERO {
        tolerance.invalid("must be greater than or equal to 0");
    }
}
