//! autoscaling/v1 ↔ autoscaling/v2: v1 has the CPU target as a field of its own and keeps everything else
//! that v2 can say in annotations.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

pub(super) fn to_v1(object: &mut Value) {
    let mut annotations = Map::new();
    if let Some(spec) = object["spec"].as_object_mut() {
        let metrics = take_list(spec, "metrics");
        let (cpu, others) = split(metrics, |metric| cpu_target(metric).is_some());
        if let Some(target) = cpu.first().and_then(cpu_target) {
            spec.insert("targetCPUUtilizationPercentage".into(), target.into());
        }
        keep(&mut annotations, METRICS, others);
        if let Some(behavior) = spec.remove("behavior") {
            annotations.insert(BEHAVIOR.into(), behavior.to_string().into());
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let (cpu, others) = split(take_list(status, "currentMetrics"), |metric| cpu_usage(metric).is_some());
        if let Some(usage) = cpu.first().and_then(cpu_usage) {
            status.insert("currentCPUUtilizationPercentage".into(), usage.into());
        }
        keep(&mut annotations, CURRENT_METRICS, others);
        keep(&mut annotations, CONDITIONS, take_list(status, "conditions"));
    }
    if !annotations.is_empty() {
        let all = &mut object["metadata"]["annotations"];
        match all.as_object_mut() {
            Some(all) => all.extend(annotations),
            None => *all = Value::Object(annotations),
        }
    }
}

pub(super) fn to_v2(object: &mut Value) {
    let metrics = take_annotation(object, METRICS);
    let behavior = take_annotation(object, BEHAVIOR);
    let current = take_annotation(object, CURRENT_METRICS);
    let conditions = take_annotation(object, CONDITIONS);
    if let Some(spec) = object["spec"].as_object_mut() {
        let target = spec.remove("targetCPUUtilizationPercentage").map(|percent| {
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
        });
        put_list(spec, "metrics", target, metrics);
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let usage = status.remove("currentCPUUtilizationPercentage").map(|percent| {
            json!({"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": percent}}})
        });
        put_list(status, "currentMetrics", usage, current);
        put_list(status, "conditions", None, conditions);
    }
}

fn cpu_target(metric: &Value) -> Option<i64> {
    is_cpu(metric).then(|| metric["resource"]["target"]["averageUtilization"].as_i64())?
}

fn cpu_usage(metric: &Value) -> Option<i64> {
    is_cpu(metric).then(|| metric["resource"]["current"]["averageUtilization"].as_i64())?
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

/// The first metric that v1 can say itself, and the others.
fn split(metrics: Vec<Value>, is_native: impl Fn(&Value) -> bool) -> (Vec<Value>, Vec<Value>) {
    let mut found = false;
    metrics.into_iter().partition(|metric| {
        let first = !found && is_native(metric);
        found |= first;
        first
    })
}

fn take_list(object: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    match object.remove(field) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn put_list(object: &mut Map<String, Value>, field: &str, first: Option<Value>, rest: Option<Value>) {
    let rest = match rest {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let items: Vec<Value> = first.into_iter().chain(rest).collect();
    if !items.is_empty() {
        object.insert(field.to_owned(), items.into());
    }
}

fn keep(annotations: &mut Map<String, Value>, key: &str, items: Vec<Value>) {
    if !items.is_empty() {
        annotations.insert(key.to_owned(), Value::Array(items).to_string().into());
    }
}

/// Takes an annotation whose text is JSON; one that is not stays where it is.
fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let metadata = object["metadata"].as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let value = serde_json::from_str(annotations.get(key)?.as_str()?).ok()?;
    annotations.remove(key);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_cannot_say_survives_in_annotations() {
        let v2 = json!({
            "metadata": {"name": "web"},
            "spec": {
                "maxReplicas": 5,
                "metrics": [
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                    {"type": "Resource", "resource": {
                        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}
            },
            "status": {"conditions": [{"type": "AbleToScale", "status": "True"}]}
        });
        let mut object = v2.clone();
        to_v1(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        assert!(object["spec"].get("metrics").is_none());
        assert!(object["metadata"]["annotations"][METRICS].is_string());
        to_v2(&mut object);
        assert_eq!(object, v2);
    }
}
