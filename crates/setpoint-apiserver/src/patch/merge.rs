//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

use super::{Patched, malformed};
use crate::body;
use crate::status::{Result, Status};

pub(super) fn apply(current: &Value, patch: &[u8]) -> Result<Patched> {
    let decoded =
        body::parse_json(patch).map_err(|bad| bad.status(|_| Status::bad_request("invalid JSON patch")))?;
    let strict_errors = decoded.strict_errors();
    let patch = match decoded.value {
        Value::Object(patch) => patch,
        Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
        other => {
            let found = body::go_type(&other);
            return Err(malformed(&format!(
                "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    let mut value = current.clone();
    match &mut value {
        Value::Object(fields) => merge(fields, patch),
        other => *other = Value::Object(patch),
    }
    Patched::new(current, value, strict_errors, None)
}

fn merge(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, patch) in patch {
        match (fields.get_mut(&name), patch) {
            (_, Value::Null) => {
                fields.remove(&name);
            }
            (Some(Value::Object(fields)), Value::Object(patch)) => merge(fields, patch),
            // kube-apiserver drops nulls from what it adds, also within lists, but not from a list that replaces an
            // object. RFC 7386 would keep a list's nulls.
            (Some(value @ Value::Object(_)), patch) => *value = patch,
            (_, mut patch) => {
                drop_nulls(&mut patch);
                fields.insert(name, patch);
            }
        }
    }
}

/// Removes the fields that are null, at any depth. Items of lists stay.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(current: Value, patch: Value, expect: Value) {
        let patched = apply(&current, patch.to_string().as_bytes()).unwrap();
        assert_eq!(*patched.value, expect);
    }

    /// The right sides come from gopkg.in/evanphx/json-patch, which kube-apiserver uses.
    #[test]
    fn patches_merge_as_in_kube_apiserver() {
        check(json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2}));
        check(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}));
        check(json!({"a": {"b": 1}}), json!({"a": {"b": null, "c": 2}}), json!({"a": {"c": 2}}));
        check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
        check(json!({"a": 1}), json!({"a": {"b": null, "c": {"d": null}}}), json!({"a": {"c": {}}}));
        check(json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]}));
        check(json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]}));
        check(json!({"a": null, "b": 1}), json!({"b": 2}), json!({"a": null, "b": 2}));
        check(json!({}), json!({"missing": null}), json!({}));
    }

    #[track_caller]
    fn check_error(patch: &[u8], expect: &str) {
        let status = apply(&json!({}), patch).unwrap_err();
        assert_eq!(
            (status.code.as_u16(), &*status.reason, status.message.as_str()),
            (400, "BadRequest", expect)
        );
    }

    #[test]
    fn a_patch_must_be_an_object() {
        check_error(b"null", "Invalid JSON Patch");
        check_error(b"{", "invalid JSON patch");
        check_error(
            b"[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        );
        let twice = apply(&json!({}), br#"{"a": {"b": 1, "b": 2}}"#).unwrap();
        assert_eq!(twice.strict_errors, [r#"duplicate field "a.b""#]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(0..3, 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The pseudo-code of RFC 7386, section 2.
    fn rfc(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut fields = match target {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        for (name, patch) in patch {
            if patch.is_null() {
                fields.remove(name);
            } else {
                let old = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), rfc(old, patch));
            }
        }
        Value::Object(fields)
    }

    proptest! {
        #[test]
        fn patches_merge_as_the_rfc_says(
            current in prop::collection::btree_map("[a-c]", any_json(), 0..3),
            patch in prop::collection::btree_map("[a-c]", any_json(), 0..3),
        ) {
            let current = Value::Object(current.into_iter().collect());
            let patch = Value::Object(patch.into_iter().collect());
            let patched = apply(&current, patch.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&*patched.value, &rfc(current, &patch));
        }
    }
}
