//! `DefaultTolerationSeconds`: pods stay for five minutes on a node that is in trouble, unless they say otherwise.

use serde_json::{Value, json};

const TROUBLE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

pub(super) fn add_defaults(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    let tolerates = |trouble: &str| {
        let tolerations = spec.get("tolerations").and_then(Value::as_array).into_iter().flatten();
        tolerations.into_iter().any(|toleration| {
            let is = |field: &str, value: &str| {
                let given = toleration.get(field).and_then(Value::as_str);
                given.is_none_or(|text| text.is_empty() || text == value)
            };
            is("key", trouble) && is("effect", "NoExecute")
        })
    };
    let missing: Vec<&str> = TROUBLE.into_iter().filter(|trouble| !tolerates(trouble)).collect();
    if missing.is_empty() {
        return;
    }
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    if let Value::Array(list) = tolerations {
        list.extend(missing.into_iter().map(|key| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS})
        }));
    }
}
