//! autoscaling/v1 ↔ autoscaling/v2: v1 has the CPU target as a field of its own and keeps everything else
//! that v2 can say in annotations, in words of its own.

mod metric;

use serde_json::{Map, Value, json};

use metric::{spec_to_v1, spec_to_v2, status_to_v1, status_to_v2};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT: &str = "currentReplicas";

pub(super) fn to_v1(object: &mut Value) {
    let mut annotations = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, others): (Vec<_>, Vec<_>) =
            take_list(spec, "metrics").into_iter().partition(|metric| cpu_target(metric).is_some());
        if let Some(target) = cpu.first().and_then(cpu_target) {
            spec.insert("targetCPUUtilizationPercentage".into(), target.into());
        }
        keep(&mut annotations, METRICS, others.iter().map(spec_to_v1).collect());
        if let Some(behavior) = spec.remove("behavior") {
            annotations.insert(BEHAVIOR.into(), metric::behavior_text(&behavior).into());
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = take_list(status, "currentMetrics");
        if let Some(usage) = current.iter().find_map(cpu_usage) {
            status.insert("currentCPUUtilizationPercentage".into(), usage.into());
        }
        keep(&mut annotations, CURRENT_METRICS, current.iter().map(status_to_v1).collect());
        keep(&mut annotations, CONDITIONS, take_list(status, "conditions"));
        // v2 leaves zero out, and v1 does not.
        status.entry(CURRENT).or_insert_with(|| 0.into());
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
    let [metrics, behavior, current, conditions] =
        [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS].map(|key| take_annotation(object, key));
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let target = spec.remove("targetCPUUtilizationPercentage").map(|percent| {
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
        });
        put_list(spec, "metrics", list(metrics).iter().map(spec_to_v2).chain(target));
        if let Some(behavior) = behavior.and_then(|behavior| metric::behavior(&behavior)) {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let usage = status.remove("currentCPUUtilizationPercentage").map(|percent| {
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}})
        });
        // The annotation has the usage of the CPU, too.
        let current = match current {
            Some(current) => list(Some(current)).iter().map(status_to_v2).collect(),
            None => usage.into_iter().collect::<Vec<_>>(),
        };
        put_list(status, "currentMetrics", current.into_iter());
        put_list(status, "conditions", list(conditions).into_iter());
        if status.get(CURRENT) == Some(&0.into()) {
            status.remove(CURRENT);
        }
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

fn take_list(object: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    list(object.remove(field))
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn put_list(object: &mut Map<String, Value>, field: &str, items: impl Iterator<Item = Value>) {
    let items: Vec<Value> = items.collect();
    if !items.is_empty() {
        object.insert(field.to_owned(), items.into());
    }
}

fn keep(annotations: &mut Map<String, Value>, key: &str, items: Vec<Value>) {
    if !items.is_empty() {
        annotations.insert(key.to_owned(), metric::in_go_order(&Value::Array(items)).into());
    }
}

/// Takes an annotation; what is not JSON says nothing.
fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let metadata = object["metadata"].as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
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
                        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Pods", "pods": {
                        "metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
                    {"type": "Object", "object": {
                        "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
                        "metric": {"name": "hits"}, "target": {"type": "Value", "value": "10"}}},
                    {"type": "External", "external": {
                        "metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "30"}}},
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60, "policies": [
                    {"type": "Percent", "value": 100, "periodSeconds": 15}]}}
            },
            "status": {"conditions": [{"type": "AbleToScale", "status": "True"}]}
        });
        let mut object = v2.clone();
        to_v1(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        assert!(object["spec"].get("metrics").is_none());
        assert_eq!(object["status"]["currentReplicas"], 0);
        let text = object["metadata"]["annotations"][METRICS].as_str().unwrap();
        assert!(
            text.contains(r#"{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"1k"}}"#),
            "{text}"
        );
        to_v2(&mut object);
        assert_eq!(object, v2);
    }

    #[test]
    fn an_annotation_that_is_no_json_says_nothing() {
        let mut object = json!({"metadata": {"annotations": {METRICS: "x"}}, "spec": {"maxReplicas": 1}});
        to_v2(&mut object);
        assert_eq!(object, json!({"metadata": {}, "spec": {"maxReplicas": 1}}));
    }
}
