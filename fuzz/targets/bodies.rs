//! Bodies in JSON, YAML and protobuf, of any kind: decoded, defaulted, validated. What is accepted is made again from the
//! answer, in each form, and must come out the same.
//!
//! The first byte says what the rest is: `j` JSON, `y` YAML, `p` protobuf, `m` a kind (two bytes) and a message of it,
//! anything else a kind and the choices that make an object of it.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use setpoint_fuzz::{Api, JSON, Lab, PROTOBUF, YAML, any_object, collection, start, without_server_fields};
use setpoint_kinds::protobuf::{self, Envelope};
use setpoint_kinds::{Resource, table};

fuzz_target!(|data: &[u8]| start(data, case));

fn case(lab: &Lab, input: &[u8]) {
    let Some((&form, rest)) = input.split_first() else { return };
    let (media, resource, body) = match form {
        b'j' => (JSON, named_in_json(rest), rest.to_vec()),
        b'y' => (YAML, named_in_yaml(rest), rest.to_vec()),
        b'p' => (PROTOBUF, named_in_envelope(rest), rest.to_vec()),
        b'm' => {
            let Some(((resource, _), message)) = chosen(rest).zip(rest.get(2..)) else { return };
            let mut envelope = Envelope::default();
            let api_version = resource.api_version();
            (envelope.api_version, envelope.kind, envelope.raw) = (&api_version, resource.kind, message);
            (PROTOBUF, Some(resource), envelope.write())
        }
        _ => {
            let Some((resource, choices)) = chosen(rest) else { return };
            let Ok(object) = any_object(&mut Unstructured::new(choices), resource) else { return };
            (JSON, Some(resource), object.to_string().into_bytes())
        }
    };
    let resource = resource.or_else(|| table().resource("", "v1", "pods")).expect("there are pods");
    if resource.has_verb("create") {
        lab.block_on(create(&lab.shared(), resource, media, body));
    }
}

async fn create(api: &Api, resource: &Resource, media: &str, body: Vec<u8>) {
    let path = format!("{}?dryRun=All", collection(resource));
    let answer = api.call("POST", &path, media, body).await;
    let made = answer.json();
    if !answer.is_ok() {
        assert_eq!(made["kind"], "Status", "{made}");
        return;
    }
    assert_eq!(made["kind"], resource.kind, "{made}");
    if !is_plain(resource) {
        return;
    }
    let again = without_server_fields(&made);
    let text = serde_json::to_vec(&again).expect("a value can be written");
    let message = protobuf::encode(&again).expect("what is answered can be encoded");
    let decoded = protobuf::decode(&message).expect("what is encoded can be decoded").value;
    assert_eq!(without_empty(&decoded), without_empty(&again), "protobuf");
    for (media, body) in [(JSON, text.clone()), (YAML, text)] {
        let answer = api.call("POST", &path, media, body).await;
        assert!(answer.is_ok(), "{media}: {made} is accepted, and then {}", answer.json());
        assert_eq!(without_server_fields(&answer.json()), again, "{media}");
    }
    let answer = api.call("POST", &path, PROTOBUF, message).await;
    if answer.is_ok() {
        let answer = without_server_fields(&answer.json());
        assert_eq!(without_empty(&answer), without_empty(&again), "protobuf");
    }
}

/// What is left in protobuf, where nothing, null and an empty list are the same, and objects within others do not name their
/// kind.
fn without_empty(value: &Value) -> Value {
    let mut value = value.clone();
    let templates = value.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        template.as_object_mut().expect("a template is an object").retain(|name, _| !is_type(name));
    }
    without_empty_fields(&value)
}

fn is_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

fn without_empty_fields(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), without_empty_fields(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empty_fields).collect()),
        other => other.clone(),
    }
}

/// Whether its objects can be made again from what is answered. Reviews are questions, and a job has its uid in its labels.
fn is_plain(resource: &Resource) -> bool {
    resource.has_verb("get") && resource.plural != "jobs"
}

/// The resource that two bytes choose, and what follows them.
fn chosen(input: &[u8]) -> Option<(&'static Resource, &[u8])> {
    let (number, rest) = input.split_first_chunk::<2>()?;
    let resources = table().resources();
    Some((&resources[usize::from(u16::from_le_bytes(*number)) % resources.len()], rest))
}

fn named(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    table().by_kind(group, version, kind)
}

fn named_in_json(body: &[u8]) -> Option<&'static Resource> {
    let object: Value = serde_json::from_slice(body).ok()?;
    named(object["apiVersion"].as_str()?, object["kind"].as_str()?)
}

/// Found in the text, as long as it stands there plainly.
fn named_in_yaml(body: &[u8]) -> Option<&'static Resource> {
    let text = std::str::from_utf8(body).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    named(field("apiVersion:")?, field("kind:")?)
}

fn named_in_envelope(body: &[u8]) -> Option<&'static Resource> {
    let envelope = Envelope::parse(body).ok()?;
    named(envelope.api_version, envelope.kind)
}
