//! Objects encoded from text, from values and back: for every kind of the table.

#[path = "deserialize/objects.rs"]
mod objects;
#[path = "encode/text.rs"]
mod text;

use serde_json::{Map, Value, json};
use setpoint_kinds::protobuf::{
    self, EncodeError, Json, append_field, check_message, decode_message, encode_message,
};
use setpoint_kinds::{Type, table};

use self::objects::{Random, object};

fn type_named(name: &str) -> &'static Type {
    table().type_named(name).unwrap_or_else(|| panic!("no type {name}"))
}

fn encode_text(ty: &Type, text: &str) -> Result<Vec<u8>, EncodeError> {
    encode_message(ty, Json::text(text.as_bytes()))
}

/// Calls `check` with each kind of the table and objects of it.
fn for_objects(rounds: u64, mut check: impl FnMut(&'static Type, Value, &mut Random)) {
    for ty in table().resources().iter().map(|resource| resource.ty()) {
        for round in 0..rounds {
            // The first has all fields, each later one some of them.
            let mut random = Random::new(round);
            let object = object(ty, &mut random);
            check(ty, object, &mut random);
        }
    }
}

#[test]
fn a_text_gives_the_message_of_its_value_whatever_it_looks_like() {
    for_objects(12, |ty, object, random| {
        let message = encode_message(ty, &object).unwrap();
        assert!(encode_text(ty, &object.to_string()).as_ref() == Ok(&message), "{} of {object}", ty.name);
        let text = text::shuffled(ty, &object, random);
        assert!(encode_text(ty, &text).as_ref() == Ok(&message), "{} of {text}", ty.name);
    });
}

#[test]
fn what_is_encoded_is_read_again() {
    for_objects(12, |ty, object, _| {
        let message = encode_text(ty, &object.to_string()).unwrap();
        check_message(ty, &message).unwrap_or_else(|error| panic!("{} of {object}: {error}", ty.name));
        let read = Value::Object(decode_message(ty, &message).unwrap());
        assert!(encode_message(ty, &read).as_ref() == Ok(&message), "{} of {object}", ty.name);
    });
}

#[test]
fn an_object_that_has_everything_is_read_as_it_was() {
    for_objects(1, |ty, object, _| {
        // Protobuf does not have the kind of the claims of a StatefulSet.
        if ty.name != "apps.v1.StatefulSet" {
            let message = encode_text(ty, &object.to_string()).unwrap();
            assert_eq!(Value::Object(decode_message(ty, &message).unwrap()), object, "{}", ty.name);
        }
    });
}

#[test]
fn every_prefix_of_a_text_is_an_error() {
    for_objects(1, |ty, object, _| {
        let text = object.to_string();
        let ends = text.char_indices().map(|(end, _)| end);
        for end in ends.step_by(1 + text.len() / 30) {
            let error = encode_text(ty, &text[..end]).unwrap_err();
            assert!(matches!(error, EncodeError::Json(_)), "{} of {}: {error}", ty.name, &text[..end]);
        }
    });
}

#[test]
fn what_is_no_json_is_no_object() {
    for_objects(3, |ty, object, random| {
        let text = object.to_string().into_bytes();
        for _ in 0..8 {
            let mut damaged = text.clone();
            random.damage(&mut damaged);
            let encoded = encode_message(ty, Json::text(&damaged));
            let is_json = serde_json::from_slice::<Value>(&damaged).is_ok();
            let text = String::from_utf8_lossy(&damaged);
            assert!(is_json || encoded.is_err(), "{} of {text}", ty.name);
        }
    });
}

#[test]
fn the_last_of_several_fields_and_entries_counts() {
    let ty = type_named("core.v1.ConfigMap");
    let text = r#"{"data":{"b":"1","a":"2","b":"3"},"immutable":true,"metadata":{"name":"x"},
        "metadata":{"name":"y","name":"z"},"data":{"d":"4","c":"5","d":"6"},"immutable":null}"#;
    let value = json!({"data": {"c": "5", "d": "6"}, "immutable": null, "metadata": {"name": "z"}});
    assert_eq!(encode_text(ty, text), encode_message(ty, &value));
    assert_eq!(Value::Object(decode_message(ty, &encode_text(ty, text).unwrap()).unwrap())["data"]["d"], "6");
}

#[test]
fn null_is_a_zero_value_or_nothing() {
    let ty = type_named("core.v1.Pod");
    let null = encode_text(ty, r#"{"metadata":null,"spec":null,"status":{"conditions":[null]}}"#).unwrap();
    let zero = encode_text(ty, r#"{"metadata":{},"status":{"conditions":[{}]}}"#).unwrap();
    assert_eq!(null, zero);
    assert_eq!(encode_text(ty, "null"), encode_text(ty, "{}"));
    assert_eq!(encode_message(ty, &Value::Null), encode_text(ty, "{}"));
    let secret = type_named("core.v1.Secret");
    let message = encode_text(secret, r#"{"data":{"a":null,"b":""}}"#).unwrap();
    assert!(message.windows(5).any(|part| part == b"\x12\x03\x0a\x01a"), "{message:x?}");
    assert!(message.windows(7).any(|part| part == b"\x12\x05\x0a\x01b\x12\x00"), "{message:x?}");
}

#[test]
fn embedded_structs_are_messages_of_their_own() {
    let volume = type_named("core.v1.Volume");
    let sorted = encode_text(volume, r#"{"emptyDir":{"medium":"Memory"},"name":"v"}"#).unwrap();
    assert_eq!(sorted, b"\x0a\x01v\x12\x0a\x12\x08\x0a\x06Memory");
    assert_eq!(encode_text(volume, r#"{"name":"v","emptyDir":{"medium":"Memory"}}"#).unwrap(), sorted);
    assert_eq!(encode_text(volume, r#"{"name":"v"}"#).unwrap(), b"\x0a\x01v\x12\x00");
    // A struct in a struct in a struct.
    let rule = type_named("admissionregistration.v1.NamedRuleWithOperations");
    let text = r#"{"apiGroups":["g"],"resourceNames":["n"],"operations":["CREATE"],"resources":["r"]}"#;
    let rule = decode_message(rule, &encode_text(rule, text).unwrap()).unwrap();
    assert_eq!(Value::Object(rule), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn the_resource_version_that_is_given_counts() {
    let ty = type_named("apps.v1.Deployment");
    let with = |version: Value| {
        json!({"metadata": {"name": "a", "resourceVersion": version},
            "spec": {"template": {"metadata": {"name": "b"}}}})
    };
    let expected = encode_message(ty, &with(json!("18446744073709551615"))).unwrap();
    for object in [with(json!("5")), with(Value::Null)] {
        let json = Json::from(&object).with_resource_version(u64::MAX);
        assert_eq!(encode_message(ty, json).unwrap(), expected);
        let text = object.to_string();
        let json = Json::text(text.as_bytes()).with_resource_version(u64::MAX);
        assert_eq!(encode_message(ty, json).unwrap(), expected);
        let (mut item, mut field) = (Vec::new(), Vec::new());
        append_field(2, ty, json, &mut item).unwrap();
        protobuf::append_length(2, expected.len(), &mut field);
        field.extend_from_slice(&expected);
        assert_eq!(item, field);
    }
}

#[test]
fn fields_that_a_type_does_not_have_are_skipped() {
    let ty = type_named("meta.v1.PartialObjectMetadata");
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":[{"y":"\u00e9"}]}}"#;
    assert_eq!(encode_text(ty, text), encode_message(ty, &json!({"metadata": {"name": "a"}})));
}

#[test]
fn any_json_is_written_as_it_is() {
    let ty = type_named("apiextensions.v1.JSONSchemaProps");
    for text in
        [r#"{"b" :[1,-2.5e1, true,null],"a":"\u00e9\n\"{"}"#, r#""x""#, "[]", "{}", "18446744073709551615"]
    {
        let message = encode_text(ty, &format!(r#"{{"default": {text} ,"enum":[{text},null]}}"#)).unwrap();
        assert!(message.windows(text.len()).any(|part| part == text.as_bytes()), "{message:x?}");
        let value: Value = serde_json::from_str(text).unwrap();
        let decoded = decode_message(ty, &message).unwrap();
        assert_eq!((&decoded["default"], &decoded["enum"]), (&value, &json!([value, null])));
    }
    let null = encode_text(ty, r#"{"default":null}"#);
    assert_eq!(null, encode_message(ty, &json!({ "default": null })));
    assert!(!String::from_utf8_lossy(&null.unwrap()).contains("null"));
}

#[test]
fn what_a_field_cannot_hold_is_said() {
    let pod = type_named("core.v1.Pod");
    for (text, expected) in [
        (r#"{"spec":{"hostNetwork":"yes"}}"#, "PodSpec.hostNetwork: a boolean is expected, not a string"),
        (r#"{"spec":{"priority":1.5}}"#, "PodSpec.priority: an integer is expected, not 1.5"),
        (r#"{"spec":{"priority":{}}}"#, "PodSpec.priority: an integer is expected, not an object"),
        (r#"{"spec":{"containers":[{"name":7}]}}"#, "Container.name: a string is expected, not a number"),
        (r#"{"spec":{"containers":{}}}"#, "PodSpec.containers: a list is expected, not an object"),
        (r#"{"spec":"x"}"#, "Pod.spec: an object is expected, not a string"),
        (r#"{"spec":true}"#, "Pod.spec: an object is expected, not a boolean"),
        (r#"{"metadata":{"labels":{"a":1}}}"#, "ObjectMeta.labels: a string is expected, not a number"),
        (r#"{"metadata":{"labels":[]}}"#, "ObjectMeta.labels: an object is expected, not a list"),
        (
            r#"{"metadata":{"creationTimestamp":"noon"}}"#,
            r#"ObjectMeta.creationTimestamp: parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006""#,
        ),
        (
            r#"{"metadata":{"generation":9223372036854775808}}"#,
            "ObjectMeta.generation: an integer is expected, not 9223372036854775808",
        ),
    ] {
        let expected = expected.replacen(":", " cannot hold this value:", 1);
        assert_eq!(encode_text(pod, text).unwrap_err().to_string(), expected);
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(encode_message(pod, &value).unwrap_err().to_string(), expected);
    }
    let secret = type_named("core.v1.Secret");
    let error = encode_text(secret, r#"{"data":{"a":"?"}}"#).unwrap_err().to_string();
    assert!(error.starts_with("Secret.data cannot hold this value: illegal base64"), "{error}");
    for text in
        ["", "[]", "7", "{} {}", "{\"metadata\":{}", "\u{feff}{}", "{'a':1}", r#"{"metadata":{"name":"\x"}}"#]
    {
        assert!(matches!(encode_text(pod, text), Err(EncodeError::Json(_))), "{text}");
    }
    assert!(matches!(encode_message(pod, Json::text(b"{\"a\":\"\xff\"}")), Err(EncodeError::Json(_))));
}

#[test]
fn what_nests_too_deep_is_an_error() {
    let ty = type_named("apiextensions.v1.JSONSchemaProps");
    let nested = |depth: usize| (0..depth).fold(json!({}), |schema, _| json!({ "not": schema }));
    encode_text(ty, &nested(63).to_string()).unwrap();
    assert_eq!(encode_text(ty, &nested(64).to_string()), Err(EncodeError::Depth));
    assert_eq!(encode_message(ty, &nested(64)), Err(EncodeError::Depth));
    // Where JSON ends.
    let text = format!("{}{}", r#"{"not":"#.repeat(5000), "}".repeat(5000));
    assert!(encode_text(ty, &text).is_err());
    let text = format!(r#"{{"default":{}"#, "[".repeat(5000));
    assert!(matches!(encode_text(ty, &text), Err(EncodeError::Json(_))));
}

#[test]
fn long_messages_have_their_length_before_them() {
    let ty = type_named("core.v1.ConfigMap");
    // Around the lengths at which a length takes one byte more, for each of the messages around the text.
    for length in (90..140).chain(16_350..16_400) {
        let data = Map::from_iter([("k".to_owned(), json!("x".repeat(length)))]);
        let object = json!({"metadata": {"annotations": data.clone()}, "data": data});
        let message = encode_text(ty, &object.to_string()).unwrap();
        assert_eq!(decode_message(ty, &message).unwrap()["data"], object["data"], "{length}");
        check_message(ty, &message).unwrap();
    }
}
