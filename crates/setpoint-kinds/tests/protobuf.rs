//! The protobuf decoder and encoder against bodies that Go wrote, and against nonsense.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use setpoint_kinds::protobuf::{self, DecodeError, Envelope};
use setpoint_kinds::{conform, table};

/// The vectors of `tests/data`: name, body, JSON.
fn vectors() -> Vec<(String, Vec<u8>, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut vectors = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "pb") {
            let json = std::fs::read_to_string(path.with_extension("json")).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            vectors.push((name, std::fs::read(&path).unwrap(), serde_json::from_str(&json).unwrap()));
        }
    }
    assert!(vectors.len() >= 15);
    vectors
}

#[test]
fn a_body_of_go_decodes_to_the_json_of_go() {
    for (name, body, json) in vectors() {
        assert_eq!(protobuf::decode(&body).unwrap().value, json, "{name}");
    }
}

#[test]
fn an_object_encodes_to_the_bytes_of_go() {
    for (name, body, json) in vectors() {
        assert!(protobuf::encode(&json).unwrap() == body, "{name}");
    }
}

#[test]
fn the_json_of_go_conforms_without_a_change() {
    for (name, body, json) in vectors() {
        let envelope = Envelope::parse(&body).unwrap();
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
        let ty = table().type_of_kind(group, version, envelope.kind).unwrap();
        let (mut conformed, mut unknown) = (json.clone(), Vec::new());
        conform(ty, &mut conformed, &mut unknown).unwrap();
        assert_eq!((conformed, unknown), (json, Vec::new()), "{name}");
    }
}

#[test]
fn every_prefix_of_a_body_is_an_error_or_an_object() {
    for (_, body, _) in vectors() {
        for end in 0..body.len() {
            let _ = protobuf::decode(&body[..end]);
        }
    }
}

fn pod(raw: &[u8]) -> Result<Value, DecodeError> {
    let mut body = protobuf::MAGIC.to_vec();
    body.extend_from_slice(b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12");
    assert!(raw.len() < 128);
    body.push(raw.len() as u8);
    body.extend_from_slice(raw);
    protobuf::decode(&body).map(|decoded| decoded.value)
}

#[test]
fn packed_and_unpacked_numbers_are_read_alike() {
    // spec (2) . securityContext (14) . supplementalGroups (4)
    let unpacked = pod(b"\x12\x06\x72\x04\x20\x01\x20\x02").unwrap();
    let packed = pod(b"\x12\x06\x72\x04\x22\x02\x01\x02").unwrap();
    assert_eq!(unpacked["spec"]["securityContext"]["supplementalGroups"], serde_json::json!([1, 2]));
    assert_eq!(packed, unpacked);
}

#[test]
fn a_message_in_two_parts_is_merged() {
    let pod = pod(b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01b").unwrap();
    assert_eq!(pod["metadata"], serde_json::json!({"name": "a", "namespace": "b"}));
}

#[test]
fn an_entry_without_a_value_is_empty() {
    let secret = table().type_named("core.v1.Secret").unwrap();
    let map = protobuf::decode_message(secret, b"\x12\x03\x0a\x01a").unwrap();
    assert_eq!(map["data"], serde_json::json!({"a": ""}));
}

#[test]
fn unknown_fields_are_skipped() {
    let pod = pod(b"\x0a\x03\x0a\x01a\xf8\x07\x01\xfa\x07\x01x\xfb\x07\x08\x01\xfc\x07").unwrap();
    assert_eq!(pod["metadata"]["name"], "a");
}

#[test]
fn what_is_wrong_with_a_body_is_said() {
    assert_eq!(protobuf::decode(b"{}").unwrap_err(), DecodeError::Magic);
    assert_eq!(pod(b"\x0a\x7f").unwrap_err(), DecodeError::Truncated);
    assert_eq!(pod(b"\x00").unwrap_err(), DecodeError::Tag(0));
    assert_eq!(pod(&[0xff; 12]).unwrap_err(), DecodeError::Varint);
    assert_eq!(pod(b"\x08\x01").unwrap_err().to_string(), "wrong wire type 0 of field Pod.metadata");
    let unknown = protobuf::decode(b"k8s\0\x0a\x0b\x0a\x04a/v1\x12\x03Foo").unwrap_err();
    assert_eq!(unknown, DecodeError::Kind { api_version: "a/v1".into(), kind: "Foo".into() });
}

#[test]
fn a_schema_that_nests_without_end_is_an_error() {
    let ty = table().type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    let not = ty.field("not").unwrap().number;
    let mut message = Vec::new();
    for _ in 0..2000 {
        let mut outer = Vec::new();
        let mut varint = |mut value: usize| {
            while value >= 0x80 {
                outer.push(value as u8 | 0x80);
                value >>= 7;
            }
            outer.push(value as u8);
        };
        varint((not as usize) << 3 | 2);
        varint(message.len());
        outer.extend_from_slice(&message);
        message = outer;
    }
    assert_eq!(protobuf::decode_message(ty, &message).unwrap_err(), DecodeError::Depth);
    let mut value = Value::Object(serde_json::Map::new());
    for _ in 0..300 {
        value = serde_json::json!({ "not": value });
    }
    assert_eq!(conform(ty, &mut value, &mut Vec::new()).unwrap_err().to_string(), "exceeded max depth");
    assert!(protobuf::encode_message(ty, &value).is_err());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(index in 0..table().types().len(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = protobuf::decode(&bytes);
        let _ = protobuf::decode_message(&table().types()[index], &bytes);
    }

    #[test]
    fn a_damaged_body_is_an_error_or_an_object_that_encodes_again(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let vectors = vectors();
        let (_, mut body, _) = which.get(&vectors).clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(decoded) = protobuf::decode(&body) {
            let again = protobuf::encode(&decoded.value).unwrap();
            prop_assert_eq!(protobuf::decode(&again).unwrap().value, decoded.value);
        }
    }
}
