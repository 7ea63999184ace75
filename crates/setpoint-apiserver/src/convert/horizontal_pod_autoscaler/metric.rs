//! Metrics in the words of v1, as they are in annotations, and in those of v2.

use serde_json::{Map, Value, json};

/// The fields of v1's metrics in the order in which Go writes them.
const ORDER: [&str; 27] = [
    "type",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetValue",
    "targetAverageUtilization",
    "targetAverageValue",
    "currentValue",
    "currentAverageUtilization",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
];

/// JSON with the fields of objects in Go's order: the text of an annotation is compared as it is.
pub(super) fn in_go_order(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let position = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| position(key));
            let fields: Vec<String> = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", json!(key), in_go_order(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(in_go_order).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// A struct of those fields that are there.
fn fields<const N: usize>(fields: [(&str, &Value); N]) -> Value {
    let there = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(name, value)| (name.to_owned(), value.clone())).collect())
}

fn or_zero(value: &Value) -> Value {
    if value.is_null() { "0".into() } else { value.clone() }
}

/// The name of the source that a metric has.
fn source(metric: &Value) -> Option<(&'static str, &Value)> {
    ["object", "pods", "resource", "containerResource", "external"]
        .into_iter()
        .find_map(|name| metric.get(name).map(|source| (name, source)))
}

fn with_type(metric: &Value, name: &str, source: Value) -> Value {
    json!({"type": metric["type"], name: source})
}

pub(super) fn spec_to_v1(metric: &Value) -> Value {
    let Some((name, source)) = source(metric) else { return fields([("type", &metric["type"])]) };
    let (target, id) = (&source["target"], &source["metric"]);
    let converted = match name {
        "object" => fields([
            ("target", &source["describedObject"]),
            ("metricName", &id["name"]),
            ("targetValue", &or_zero(&target["value"])),
            ("selector", &id["selector"]),
            ("averageValue", &target["averageValue"]),
        ]),
        "pods" => fields([
            ("metricName", &id["name"]),
            ("targetAverageValue", &or_zero(&target["averageValue"])),
            ("selector", &id["selector"]),
        ]),
        "external" => fields([
            ("metricName", &id["name"]),
            ("metricSelector", &id["selector"]),
            ("targetValue", &target["value"]),
            ("targetAverageValue", &target["averageValue"]),
        ]),
        _ => fields([
            ("name", &source["name"]),
            ("targetAverageUtilization", &target["averageUtilization"]),
            ("targetAverageValue", &target["averageValue"]),
            ("container", &source["container"]),
        ]),
    };
    with_type(metric, name, converted)
}

pub(super) fn spec_to_v2(metric: &Value) -> Value {
    let Some((name, source)) = source(metric) else { return fields([("type", &metric["type"])]) };
    let selector = if name == "external" { &source["metricSelector"] } else { &source["selector"] };
    let id = fields([("name", &source["metricName"]), ("selector", selector)]);
    let target = |kind: &str, value: &Value, average: &Value, percent: &Value| {
        fields([
            ("type", &kind.into()),
            ("value", value),
            ("averageValue", average),
            ("averageUtilization", percent),
        ])
    };
    let none = Value::Null;
    let (value, average) = (&source["targetValue"], &source["targetAverageValue"]);
    let converted = match name {
        "object" => {
            let average = &source["averageValue"];
            let (kind, value) = if average.is_null() { ("Value", value) } else { ("AverageValue", &none) };
            json!({"describedObject": source["target"], "metric": id, "target": target(kind, value, average, &none)})
        }
        "pods" => json!({"metric": id, "target": target("AverageValue", &none, average, &none)}),
        "external" => {
            let kind = if value.is_null() { "AverageValue" } else { "Value" };
            json!({"metric": id, "target": target(kind, value, average, &none)})
        }
        _ => {
            let percent = &source["targetAverageUtilization"];
            let kind = if percent.is_null() { "AverageValue" } else { "Utilization" };
            let target = target(kind, &none, average, percent);
            fields([("name", &source["name"]), ("container", &source["container"]), ("target", &target)])
        }
    };
    with_type(metric, name, converted)
}

pub(super) fn status_to_v1(metric: &Value) -> Value {
    let Some((name, source)) = source(metric) else { return fields([("type", &metric["type"])]) };
    let (current, id) = (&source["current"], &source["metric"]);
    let converted = match name {
        "object" => fields([
            ("target", &source["describedObject"]),
            ("metricName", &id["name"]),
            ("currentValue", &or_zero(&current["value"])),
            ("selector", &id["selector"]),
            ("averageValue", &current["averageValue"]),
        ]),
        "pods" => fields([
            ("metricName", &id["name"]),
            ("currentAverageValue", &or_zero(&current["averageValue"])),
            ("selector", &id["selector"]),
        ]),
        "external" => fields([
            ("metricName", &id["name"]),
            ("metricSelector", &id["selector"]),
            ("currentValue", &or_zero(&current["value"])),
            ("currentAverageValue", &current["averageValue"]),
        ]),
        _ => fields([
            ("name", &source["name"]),
            ("currentAverageUtilization", &current["averageUtilization"]),
            ("currentAverageValue", &or_zero(&current["averageValue"])),
            ("container", &source["container"]),
        ]),
    };
    with_type(metric, name, converted)
}

pub(super) fn status_to_v2(metric: &Value) -> Value {
    let Some((name, source)) = source(metric) else { return fields([("type", &metric["type"])]) };
    let selector = if name == "external" { &source["metricSelector"] } else { &source["selector"] };
    let id = fields([("name", &source["metricName"]), ("selector", selector)]);
    let average = if name == "object" { &source["averageValue"] } else { &source["currentAverageValue"] };
    let current = fields([
        ("value", &source["currentValue"]),
        ("averageValue", average),
        ("averageUtilization", &source["currentAverageUtilization"]),
    ]);
    let converted = match name {
        "object" => json!({"describedObject": source["target"], "metric": id, "current": current}),
        "pods" | "external" => json!({"metric": id, "current": current}),
        _ => fields([("name", &source["name"]), ("container", &source["container"]), ("current", &current)]),
    };
    with_type(metric, name, converted)
}

/// The behavior under the names of Go's fields, as kube-apiserver writes it.
pub(super) fn behavior_text(behavior: &Value) -> String {
    let rules = |name: &str| {
        let rules = &behavior[name];
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = match rules["policies"].as_array() {
            None => "null".to_owned(),
            Some(policies) => {
                let texts: Vec<String> = policies
                    .iter()
                    .map(|policy| {
                        format!(
                            "{{\"Type\":{},\"Value\":{},\"PeriodSeconds\":{}}}",
                            policy["type"], policy["value"], policy["periodSeconds"]
                        )
                    })
                    .collect();
                format!("[{}]", texts.join(","))
            }
        };
        format!(
            "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
            rules["stabilizationWindowSeconds"], rules["selectPolicy"], rules["tolerance"]
        )
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

/// The behavior that an annotation says; Go does not mind the case of the names.
pub(super) fn behavior(value: &Value) -> Option<Value> {
    fn camel(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let there = fields.iter().filter(|(_, value)| !value.is_null());
                let fields: Map<String, Value> = there
                    .map(|(key, value)| {
                        let (first, rest) = key.split_at(key.chars().next().map_or(0, char::len_utf8));
                        (format!("{}{rest}", first.to_lowercase()), camel(value))
                    })
                    .collect();
                Value::Object(fields)
            }
            Value::Array(items) => items.iter().map(camel).collect(),
            other => other.clone(),
        }
    }
    let behavior = camel(value);
    behavior.as_object().is_some_and(|fields| !fields.is_empty()).then_some(behavior)
}
