//! Horizontal pod autoscalers: every version is shown as v2, which is what is stored.

use serde_json::Value;

use super::cells::{first_of, has, int, list, name, quantity, scalar, text};
use super::{AGE, Column, NAME, Printer};

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    (plural == "horizontalpodautoscalers").then_some(&HORIZONTAL_POD_AUTOSCALER)
}

const HORIZONTAL_POD_AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Reference", "What is scaled."),
        Column::text("Targets", "The metrics as they are, and as they should be."),
        Column::text("MinPods", "The lowest number of pods."),
        Column::text("MaxPods", "The highest number of pods."),
        Column::text("Replicas", "How many pods there are."),
        AGE,
    ],
    cells: |object, context| {
        let target = |field| text(object, field);
        let reference =
            format!("{}/{}", target("/spec/scaleTargetRef/kind"), target("/spec/scaleTargetRef/name"));
        let least = object.pointer("/spec/minReplicas").map_or_else(|| "<unset>".to_owned(), scalar);
        vec![
            name(object),
            reference.into(),
            metrics(object).into(),
            least.into(),
            int(object, "/spec/maxReplicas").into(),
            int(object, "/status/currentReplicas").into(),
            context.age(object),
        ]
    },
};

fn metrics(autoscaler: &Value) -> String {
    let specs = list(autoscaler, "/spec/metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list(autoscaler, "/status/currentMetrics");
    let texts: Vec<String> =
        specs.iter().enumerate().map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    first_of(&texts, 2, ", ")
}

/// One metric: `cpu: 12%/80%`.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let field = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let spec = &spec[field];
    let current = status.and_then(|status| status.get(field)).map(|status| &status["current"]);
    let unknown = || "<unknown>".to_owned();
    let now = |value: &str| current.map_or_else(unknown, |current| quantity(current, value));
    let now_if_set = |value: &str| match current {
        Some(current) if has(current, value) => quantity(current, value),
        _ => unknown(),
    };
    let wanted = |value: &str| quantity(spec, &format!("/target{value}"));
    let has_average = has(spec, "/target/averageValue");
    match field {
        "pods" => format!("{}/{}", now("/averageValue"), wanted("/averageValue")),
        "external" | "object" if has_average => {
            format!("{}/{} (avg)", now_if_set("/averageValue"), wanted("/averageValue"))
        }
        "external" | "object" => format!("{}/{}", now("/value"), wanted("/value")),
        _ => {
            let name = text(spec, "/name");
            if has_average {
                return format!("{name}: {}/{}", now("/averageValue"), wanted("/averageValue"));
            }
            let percent = |value: Option<&Value>| value.and_then(Value::as_i64).map(|n| format!("{n}%"));
            let now = percent(current.and_then(|current| current.get("averageUtilization")));
            let wanted = percent(spec.pointer("/target/averageUtilization"));
            let (now, wanted) = (now.unwrap_or_else(unknown), wanted.unwrap_or_else(|| "<auto>".to_owned()));
            format!("{name}: {now}/{wanted}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_show_what_is_and_what_should_be() {
        let check = |spec: Value, status: Value, expect: &str| {
            let object = json!({"spec": {"metrics": spec}, "status": {"currentMetrics": status}});
            assert_eq!(metrics(&object), expect);
        };
        let cpu =
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let memory =
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "5"}}});
        let object = json!({"type": "Object", "object": {"target": {"value": "10"}}});
        check(json!([]), json!([]), "<none>");
        check(json!([cpu]), json!([]), "cpu: <unknown>/80%");
        check(
            json!([cpu, memory]),
            json!([
                {"resource": {"current": {"averageUtilization": 12}}},
                {"resource": {"current": {"averageValue": "512Mi"}}}
            ]),
            "cpu: 12%/80%, memory: 512Mi/1Gi",
        );
        check(json!([pods, object, cpu]), json!([]), "<unknown>/5, <unknown>/10 + 1 more...");
        check(json!([{"type": "Resource", "resource": {"name": "cpu"}}]), json!([]), "cpu: <unknown>/<auto>");
    }
}
