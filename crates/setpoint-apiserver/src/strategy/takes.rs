//! Lays what a path takes from a request over what is stored.

use serde_json::{Map, Value};

use super::Part;
use super::subresources::{EACH, Fields, Metadata};
use crate::resource::Resource;

/// Makes of the wanted state `new` what may be stored in the place of `old`: the fields that the path takes are the
/// request's, all others are the stored ones.
pub(super) fn take(resource: &Resource, part: Part, old: &Value, new: &mut Value) {
    let writes = resource.writes(part);
    match writes.content {
        Fields::AllBut(kept) => kept.iter().for_each(|path| put(new, old, path)),
        Fields::Only(taken) => only(taken, old, new),
        Fields::Replicas => match resource.definition().and_then(|custom| custom.scale.as_ref()) {
            Some(scale) => {
                let path: Vec<&str> = scale.spec_replicas.iter().map(String::as_str).collect();
                only(&[&path], old, new);
            }
            None => only(&[&["spec", "replicas"]], old, new),
        },
    }
    match writes.metadata {
        Metadata::AllBut(kept) => {
            kept.iter().for_each(|field| put(new, old, &["metadata", field]));
        }
        Metadata::None => keep_metadata(old, new),
    }
}

/// The old content with the taken fields of the new one. The metadata is the new one's.
fn only(taken: &[&[&str]], old: &Value, new: &mut Value) {
    let mut request = std::mem::take(new);
    let is_replaced = |name: &str| name == "metadata" || taken.contains(&&[name][..]);
    let fields = old.as_object().into_iter().flatten().filter(|(name, _)| !is_replaced(name));
    let (whole, parts): (Vec<_>, Vec<_>) =
        taken.iter().copied().chain([&["metadata"][..]]).partition(|path| path.len() == 1);
    let is_in_parts = |name: &str| parts.iter().any(|path| path.first() == Some(&name));
    let kept = fields.map(|(name, value)| match is_in_parts(name) {
        true => (name.clone(), value.clone()),
        false => (name.clone(), kept(value, request.get_mut(name))),
    });
    *new = kept.collect::<Map<_, _>>().into();
    for path in parts {
        put(new, &request, path);
    }
    // What is taken whole is moved.
    for name in whole.into_iter().flatten() {
        let Some(fields) = new.as_object_mut() else { continue };
        match request.as_object_mut().and_then(|request| request.remove(*name)) {
            Some(value) => drop(fields.insert((*name).to_owned(), value)),
            None => drop(fields.remove(*name)),
        }
    }
}

/// What is stored in a field. If the request says the same, that is taken, which costs less than a copy.
fn kept(stored: &Value, asked: Option<&mut Value>) -> Value {
    match asked {
        Some(asked) if asked == stored => asked.take(),
        _ => stored.clone(),
    }
}

/// The old metadata; only the version that the write depends on is the new one's. Who owns the fields is settled
/// elsewhere.
fn keep_metadata(old: &Value, new: &mut Value) {
    let is_kept = |name: &str| !matches!(name, "resourceVersion" | "managedFields");
    let fields = old["metadata"].as_object().into_iter().flatten().filter(|(name, _)| is_kept(name));
    let mut metadata: Map<_, _> =
        fields.map(|(name, value)| (name.clone(), kept(value, new["metadata"].get_mut(name)))).collect();
    if let Some(version) = new["metadata"].get_mut("resourceVersion").map(Value::take) {
        metadata.insert("resourceVersion".to_owned(), version);
    }
    new["metadata"] = metadata.into();
}

/// Makes a field of `to` what it is in `from`, absent if it is absent there.
fn put(to: &mut Value, from: &Value, path: &[&str]) {
    match path {
        [] => *to = from.clone(),
        [EACH, rest @ ..] => put_each(to, from, rest),
        [name] => {
            if to.is_null() && from.get(name).is_some() {
                *to = Map::new().into();
            }
            let Some(fields) = to.as_object_mut() else { return };
            match from.get(name) {
                Some(value) => drop(fields.insert((*name).to_owned(), value.clone())),
                None => drop(fields.remove(*name)),
            }
        }
        [name, rest @ ..] => {
            let from = from.get(name).unwrap_or(&Value::Null);
            if let Some(to) = to.get_mut(name) {
                return put(to, from, rest);
            }
            let mut made = Value::Null;
            put(&mut made, from, rest);
            if !made.is_null() && (to.is_object() || to.is_null()) {
                to[*name] = made;
            }
        }
    }
}

/// The same for a field of every item. If the items are not the same ones, the list becomes that of `from` as a
/// whole, for the rules of the part to refuse it in their own words.
fn put_each(to: &mut Value, from: &Value, path: &[&str]) {
    if !same_items(to, from) {
        *to = from.clone();
        return;
    }
    let items = to.as_array_mut().into_iter().flatten();
    for (to, from) in items.zip(from.as_array().into_iter().flatten()) {
        put(to, from, path);
    }
}

/// Whether two lists have items of the same names in the same order.
fn same_items(a: &Value, b: &Value) -> bool {
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().into_iter().flatten().map(|item| item["name"].clone()).collect()
    };
    names(a) == names(b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(to: Value, from: Value, path: &[&str], expect: Value) {
        let mut found = to;
        put(&mut found, &from, path);
        assert_eq!(found, expect, "{path:?} of {from}");
    }

    #[test]
    fn a_field_becomes_what_it_is_in_the_other_object() {
        check(json!({"a": 1}), json!({"a": 2, "b": 3}), &["a"], json!({"a": 2}));
        check(json!({"a": 1, "b": 1}), json!({}), &["a"], json!({"b": 1}));
        check(
            json!({"s": {"x": 1, "y": 1}}),
            json!({"s": {"x": 2}}),
            &["s", "x"],
            json!({"s": {"x": 2, "y": 1}}),
        );
        check(json!({"s": {"x": 1}}), json!({}), &["s", "x"], json!({"s": {}}));
        check(json!({}), json!({"s": {"x": 2, "y": 3}}), &["s", "x"], json!({"s": {"x": 2}}));
        check(json!({}), json!({"s": {"y": 3}}), &["s", "x"], json!({}));
        check(json!({"s": 7}), json!({"s": {"x": 2}}), &["s", "x"], json!({"s": 7}));
    }

    #[test]
    fn items_are_paired_by_place_and_name() {
        let path = ["l", EACH, "x"];
        let old = json!({"l": [{"name": "a", "x": 1, "y": 1}, {"name": "b"}]});
        let new = json!({"l": [{"name": "a", "x": 2, "y": 2}, {"name": "b", "x": 3}]});
        let expect = json!({"l": [{"name": "a", "x": 2, "y": 1}, {"name": "b", "x": 3}]});
        check(old.clone(), new, &path, expect);
        for other in [json!([{"name": "a"}]), json!([{"name": "b"}, {"name": "a"}]), json!([])] {
            check(old.clone(), json!({"l": other}), &path, json!({"l": other}));
        }
        check(json!({}), json!({"l": []}), &path, json!({}));
    }
}
