//! What differs between two states of an object, for messages about what may not change.

use serde_json::Value;

/// One line a field that differs: `-` is the old value, `+` the new one. kube-apiserver shows a diff of its Go
/// structs here; people read either, and nobody parses it.
pub(super) fn of(old: &Value, new: &Value) -> String {
    let mut lines = Vec::new();
    collect(String::new(), old, new, &mut lines);
    lines.join("\n")
}

fn collect(path: String, old: &Value, new: &Value, lines: &mut Vec<String>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(path, &old[key], &new[key], lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (old, new)) in a.iter().zip(b).enumerate() {
                collect(format!("{path}[{index}]"), old, new, lines);
            }
        }
        (old, new) => {
            for (sign, value) in [('-', old), ('+', new)] {
                if !value.is_null() {
                    lines.push(format!("{sign} {path}: {value}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_listed() {
        let old = json!({"a": 1, "b": {"c": [1, 2]}, "d": "x"});
        let new = json!({"a": 1, "b": {"c": [1, 3]}, "e": "y"});
        assert_eq!(of(&old, &new), "- b.c[1]: 2\n+ b.c[1]: 3\n- d: \"x\"\n+ e: \"y\"");
    }
}
