//! JSON patches, merge patches, strategic merge patches and server-side apply, on any object. What a patch makes is bounded,
//! has the form of its kind, and is what an update to it makes. It is stored as a dry run has shown it, and reads back so. A
//! merge patch does what RFC 7386 says.
//!
//! The first byte says what follows: `j`, `m`, `s` or `a` the type of the patch, then a digit for the object and a letter
//! for the subresource, then the patch as it is sent. With a capital letter, two bytes for a kind follow, and the choices
//! that make an object of it and a patch.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use setpoint_fuzz::{Api, JSON, Lab, any_json, any_object, collection, start, without_server_fields};
use setpoint_kinds::{Resource, conform, table};

fuzz_target!(|data: &[u8]| start(data, case));

/// A custom resource with every way to merge, and the built-in kinds with most rules.
const OBJECTS: &str = include_str!("../src/objects.json");
const MERGE: &str = "application/merge-patch+json";

fn case(lab: &Lab, input: &[u8]) {
    let Some((&form, rest)) = input.split_first() else { return };
    let api = lab.shared();
    let media = match form.to_ascii_lowercase() {
        b'j' => "application/json-patch+json",
        b'm' => MERGE,
        b's' => "application/strategic-merge-patch+json",
        b'a' => "application/apply-patch+yaml",
        _ => return,
    };
    if form.is_ascii_lowercase() {
        let Some(([object, part], patch)) = rest.split_first_chunk::<2>() else { return };
        lab.block_on(on_stored(&api, media, *object, *part, patch));
    } else if let Some((number, choices)) = rest.split_first_chunk::<2>() {
        let resources = table().resources();
        let resource = &resources[usize::from(u16::from_le_bytes(*number)) % resources.len()];
        let choices = &mut Unstructured::new(choices);
        let Ok(object) = any_object(choices, resource) else { return };
        let Ok(patch) = any_patch(choices, media, resource, &object) else { return };
        if resource.has_verb("patch") && resource.has_verb("delete") && can_be_deleted(resource) {
            lab.block_on(on_made(&api, media, resource, &object, &patch));
        }
    }
}

/// What a deletion leaves for others to finish is not made.
fn can_be_deleted(resource: &Resource) -> bool {
    !matches!(resource.plural, "namespaces" | "customresourcedefinitions" | "apiservices" | "nodes")
}

/// A patch of an object that is there, as it is sent.
async fn on_stored(api: &Api, media: &str, object: u8, part: u8, patch: &[u8]) {
    let objects: Vec<Value> = serde_json::from_str(OBJECTS).expect("the objects are JSON");
    let object = &objects[usize::from(object) % (objects.len() - 1) + 1];
    let text = |field: &str| object[field].as_str().expect("it is said");
    let (path, name) = (text("path"), object["object"]["metadata"]["name"].as_str().expect("it has a name"));
    let one = format!("{path}/{name}");
    if api.get(&one).await.code == 404 {
        if api.get(text("path")).await.code == 404 {
            let definition = objects[0].to_string();
            let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            api.call("POST", definitions, JSON, definition).await.ok();
        }
        api.call("POST", path, JSON, object["object"].to_string()).await.ok();
    }
    let part = match part {
        b's' => "/status",
        b'c' => "/scale",
        b'e' => "/ephemeralcontainers",
        b'r' => "/resize",
        _ => "",
    };
    if check(api, &format!("{one}{part}"), media, patch).await {
        remove(api, &one).await;
    }
}

/// A patch of an object that is made for it.
async fn on_made(api: &Api, media: &str, resource: &Resource, object: &Value, patch: &Value) {
    let path = collection(resource);
    let made = api.call("POST", &path, JSON, object.to_string()).await;
    if !made.is_ok() {
        return;
    }
    let made = made.json();
    let name = made["metadata"]["name"].as_str().expect("what is made has a name");
    let one = format!("{path}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    check(api, &one, media, patch.to_string().as_bytes()).await;
    remove(api, &one).await;
}

/// The next input finds nothing of this one.
async fn remove(api: &Api, one: &str) {
    let finalizers = r#"{"metadata":{"finalizers":null}}"#;
    api.call("PATCH", one, MERGE, finalizers).await;
    api.call("DELETE", &format!("{one}?gracePeriodSeconds=0"), JSON, "").await;
    let after = api.get(one).await;
    assert_eq!(after.code, 404, "it is deleted: {}", after.json());
}

/// Whether the patch was stored.
async fn check(api: &Api, path: &str, media: &str, patch: &[u8]) -> bool {
    let query = if media.contains("apply") { "fieldManager=fuzz&force=true" } else { "fieldManager=fuzz" };
    let before = api.get(path).await;
    let answer = api.call("PATCH", &format!("{path}?dryRun=All&{query}"), media, patch.to_vec()).await;
    let result = answer.json();
    if !answer.is_ok() {
        assert_eq!(result["kind"], "Status", "{result}");
        return false;
    }
    has_form(&result);
    let put = api.call("PUT", &format!("{path}?dryRun=All"), JSON, result.to_string()).await;
    assert!(put.is_ok(), "a patch makes {result}, an update {}", put.json());
    assert_eq!(without_server_fields(&put.json()), without_server_fields(&result));
    if media == MERGE && before.is_ok() {
        is_merged(api, path, &before.json(), patch, &result).await;
    }
    is_stored(api, &format!("{path}?{query}"), path, media, patch, &result).await
}

/// A result has the form of its kind.
fn has_form(result: &Value) {
    let text = |field: &str| result[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    if let Some(ty) = table().type_of_kind(group, version, text("kind")) {
        let (mut conforming, mut unknown) = (result.clone(), Vec::new());
        conform(ty, &mut conforming, &mut unknown).expect("the result is of its kind");
        assert!(unknown.is_empty(), "{unknown:?}");
        assert_eq!(conforming, *result, "the result has the form of its kind");
    }
}

/// Stores the patch. What is stored is what the dry run has shown, and it reads back so.
async fn is_stored(api: &Api, request: &str, path: &str, media: &str, patch: &[u8], shown: &Value) -> bool {
    // The server makes the rules of such a role anew as soon as it is stored.
    if !shown["aggregationRule"].is_null() {
        return false;
    }
    let answer = api.call("PATCH", request, media, patch.to_vec()).await;
    assert!(answer.is_ok(), "a dry run shows {shown}, and then it is refused: {}", answer.json());
    let stored = answer.json();
    assert_eq!(without_moment(&stored), without_moment(shown), "what is stored is not what a dry run shows");
    assert_eq!(api.get(path).await.ok(), stored, "what is read is not what was stored");
    true
}

/// An object without the addresses and ports that are chosen by chance for each request.
fn without_chance(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] != "Service" {
        return object;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
        spec.remove(field);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        port.as_object_mut().expect("a port is an object").remove("nodePort");
    }
    object
}

/// An object without what depends on when it was written, and on chance.
fn without_moment(object: &Value) -> Value {
    let mut object = without_chance(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            entry.as_object_mut().expect("an entry is an object").remove("time");
        }
    }
    object
}

/// A merge patch makes what an update makes to which a naive model has applied it.
async fn is_merged(api: &Api, path: &str, before: &Value, patch: &[u8], result: &Value) {
    let Ok(patch) = serde_json::from_slice::<Value>(patch) else { return };
    // kube-apiserver drops some nulls within lists, which RFC 7386 keeps.
    if has_null_in_list(&patch, false) {
        return;
    }
    let mut merged = before.clone();
    merge(&mut merged, &patch);
    // A patch need not say which version it finds; some kinds are updated only by who says so.
    merged["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    let put = api.call("PUT", &format!("{path}?dryRun=All"), JSON, merged.to_string()).await;
    assert!(put.is_ok(), "a merge patch makes {result}, RFC 7386 {merged}, which is {}", put.json());
    let comparable = |object: &Value| without_server_fields(&without_chance(object));
    assert_eq!(comparable(&put.json()), comparable(result), "not RFC 7386: {merged}");
}

/// RFC 7386, word for word.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().expect("it is one now");
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn has_null_in_list(value: &Value, is_in_list: bool) -> bool {
    match value {
        Value::Null => is_in_list,
        Value::Array(items) => items.iter().any(|item| has_null_in_list(item, true)),
        Value::Object(fields) => fields.values().any(|value| has_null_in_list(value, is_in_list)),
        _ => false,
    }
}

/// A patch that has something to do with the object.
fn any_patch(u: &mut Unstructured<'_>, media: &str, resource: &Resource, object: &Value) -> Result<Value> {
    if !media.starts_with("application/json-patch") {
        let mut patch = any_object(u, resource)?;
        mark(u, &mut patch, 0)?;
        return Ok(patch);
    }
    let mut places = Vec::new();
    collect(object, &mut String::new(), &mut places);
    let count = u.int_in_range(1..=6)?;
    let operation = |_| {
        let path = u.choose(&places)?.clone() + *u.choose(&["", "", "/-", "/0", "/a", "/~1", "/-1"])?;
        let op = *u.choose(&["add", "remove", "replace", "move", "copy", "test"])?;
        Ok(json!({"op": op, "path": path, "from": u.choose(&places)?, "value": any_json(u, 4)?}))
    };
    Ok(Value::Array((0..count).map(operation).collect::<Result<_>>()?))
}

/// Every place of an object, as a JSON pointer.
fn collect(value: &Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let mut step = |name: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        collect(value, path, places);
        path.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| step(name, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| step(&at.to_string(), value)),
        _ => {}
    }
}

/// Puts the words of strategic patches, and nulls, here and there.
fn mark(u: &mut Unstructured<'_>, value: &mut Value, depth: usize) -> Result<()> {
    match value {
        Value::Object(fields) => {
            for (_, value) in fields.iter_mut() {
                if depth > 0 && u.ratio(1, 16)? {
                    *value = Value::Null;
                }
                mark(u, value, depth + 1)?;
            }
            if u.ratio(1, 8)? {
                let directive = *u.choose(&[
                    "$patch",
                    "$retainKeys",
                    "$deleteFromPrimitiveList/finalizers",
                    "$setElementOrder/containers",
                ])?;
                let value = match directive {
                    "$patch" => json!(u.choose(&["delete", "replace", "merge", "x"])?),
                    _ => any_json(u, 7)?,
                };
                fields.insert(directive.to_owned(), value);
            }
        }
        Value::Array(items) => {
            for item in items {
                mark(u, item, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}
