//! Lists that are sets or maps hold no value, or key, twice.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Structural;
use crate::field_error::{FieldError, Problem};

/// Appends an error for each value that a list of type `set` holds again, and each key of a list of type `map`.
pub(super) fn validate(schema: &Structural, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.additional() {
                    validate(schema, value, &format!("{path}[{name}]"), errors);
                }
                if let Some(schema) = schema.properties.get(name) {
                    let dot = if path.is_empty() { "" } else { "." };
                    validate(schema, value, &format!("{path}{dot}{name}"), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => duplicates(items.iter().cloned(), path, errors),
                Some("map") => validate_map(schema, items, path, errors),
                _ => {}
            }
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    validate(schema, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_map(schema: &Structural, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        errors.push(FieldError::invalid(
            format!("{path}[{index}]"),
            items[index].clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys = items.iter().map(|item| {
        let keys = schema.list_map_keys.iter();
        let set = keys.filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(set.collect::<Map<_, _>>())
    });
    duplicates(keys, path, errors);
}

/// One error for each value that occurs again, however often.
fn duplicates(values: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            let problem = Problem::Duplicate(value.into(), String::new());
            errors.push(FieldError::new(format!("{path}[{index}]"), problem));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: Value, object: Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate(&Structural::parse(&schema).unwrap(), &object, "", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_set_holds_each_value_once() {
        let schema = json!({"type": "object", "properties": {"s": {
            "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"},
        }}});
        assert_eq!(
            errors(schema, json!({"s": ["a", "b", "a", "a", "b"]})),
            [r#"s[2]: Duplicate value: "a""#, r#"s[4]: Duplicate value: "b""#],
        );
    }

    #[test]
    fn a_map_holds_each_key_once() {
        let schema = json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "name"],
            "items": {"type": "object"},
        }}}});
        assert_eq!(
            errors(
                schema.clone(),
                json!({"m": {"k": [{"port": 1, "name": "a"}, {"port": 1}, {"name": "a", "port": 1}]}})
            ),
            [r#"m[k][2]: Duplicate value: {"name":"a","port":1}"#],
        );
        assert_eq!(
            errors(schema, json!({"m": {"k": [{}, 5]}})),
            ["m[k][1]: Invalid value: 5: must be an object for an array of list-type map"],
        );
    }
}
