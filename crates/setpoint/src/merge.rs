//! The least merge patch that leads from one value to another.

use serde_json::{Map, Value};

/// What a merge patch must say to make `old` equal to `new`; `None` if nothing.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        let changed = match old.get(name) {
            Some(before) => difference(before, value),
            None => Some(value.clone()).filter(|value| !value.is_null()),
        };
        if let Some(changed) = changed {
            patch.insert(name.clone(), changed);
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// What a merge patch must say to make `live` have everything that `wanted` says; `None` if it has. What
/// `wanted` does not mention is left alone: defaults that the server filled in, fields of others.
pub(crate) fn missing(live: &Value, wanted: &Value) -> Option<Value> {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let mut patch = Map::new();
            for (name, value) in wanted {
                let lacks = match live.get(name) {
                    Some(present) => missing(present, value),
                    None => Some(value.clone()).filter(|value| !value.is_null()),
                };
                if let Some(lacks) = lacks {
                    patch.insert(name.clone(), lacks);
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // A merge patch replaces lists as a whole.
        (Value::Array(live), Value::Array(wanted)) => {
            let has = live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| missing(live, wanted).is_none());
            (!has).then(|| Value::Array(wanted.clone()))
        }
        (live, wanted) => (live != wanted).then(|| wanted.clone()),
    }
}

/// `live` with everything that `wanted` says: nothing of it is missing then. Items of a list of the same length keep
/// what is not mentioned.
pub(crate) fn overlay(live: Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => {
            live.into_iter().zip(wanted).map(|(live, wanted)| overlay(live, wanted)).collect()
        }
        (live, Value::Object(wanted)) => {
            let mut fields = match live {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            for (name, value) in wanted {
                if value.is_null() {
                    fields.remove(name);
                } else {
                    let before = fields.remove(name).unwrap_or_default();
                    fields.insert(name.clone(), overlay(before, value));
                }
            }
            Value::Object(fields)
        }
        (_, wanted) => wanted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_what_changed_and_what_is_gone() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let new = json!({"a": 1, "b": {"c": 5}, "e": [1, 2], "f": {}});
        assert_eq!(difference(&old, &new), Some(json!({"b": {"c": 5, "d": null}, "e": [1, 2], "f": {}})));
        assert_eq!(difference(&old, &old), None);
    }

    #[test]
    fn what_the_server_filled_in_is_not_missing() {
        let live =
            json!({"spec": {"replicas": 3, "strategy": {}, "containers": [{"name": "a", "pull": "Always"}]}});
        assert_eq!(missing(&live, &json!({"spec": {"containers": [{"name": "a"}]}})), None);
        assert_eq!(
            missing(&live, &json!({"spec": {"replicas": 4, "containers": [{"name": "b"}], "x": null}})),
            Some(json!({"spec": {"replicas": 4, "containers": [{"name": "b"}]}}))
        );
        assert_eq!(missing(&live, &json!({"status": {}})), Some(json!({"status": {}})));
    }

    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *target = patch.clone() };
        if !target.is_object() {
            *target = json!({});
        }
        for (name, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut target[name], value);
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..3).prop_map(Value::from), "[ab]".prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_old_to_new(
            old in prop::collection::btree_map("[a-d]", values(), 0..4),
            new in prop::collection::btree_map("[a-d]", values(), 0..4),
        ) {
            let (old, new) = (json!(old), json!(new));
            let mut merged = old.clone();
            if let Some(patch) = difference(&old, &new) {
                merge(&mut merged, &patch);
            }
            prop_assert_eq!(merged, new);
        }

        #[test]
        fn what_was_missing_is_not_missing_any_more(
            live in prop::collection::btree_map("[a-d]", values(), 0..4),
            wanted in prop::collection::btree_map("[a-d]", values(), 0..4),
        ) {
            let (mut live, wanted) = (json!(live), json!(wanted));
            if let Some(patch) = missing(&live, &wanted) {
                merge(&mut live, &patch);
            }
            prop_assert_eq!(missing(&live, &wanted), None);
        }

        #[test]
        fn what_is_laid_over_is_there_and_the_rest_stays(
            live in prop::collection::btree_map("[a-d]", values(), 0..4),
            wanted in prop::collection::btree_map("[a-d]", values(), 0..4),
        ) {
            let (live, wanted) = (json!(live), json!(wanted));
            let over = overlay(live.clone(), &wanted);
            prop_assert_eq!(missing(&over, &wanted), None);
            prop_assert_eq!(missing(&live, &wanted).is_none(), over == live);
        }
    }
}
