use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::reflector::scan::find_managed_fields;
use crate::reflector::scan::tests::any_object;

const MANY: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"1"},
    "creationTimestamp":"2026-01-31T00:00:00Z","labels":{"app":"web"},
    "managedFields":[{"manager":"m","fieldsV1":{"f:a":{"k:{\"x\":1}":{}}}}],"name":"web","namespace":"default",
    "resourceVersion":"12","uid":"u-1"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":8080}]}]}}"#;

#[test]
fn an_outline_says_which_object_it_is_and_where_its_managed_fields_are() {
    let outline = Outline::read(MANY.as_bytes(), false).unwrap();
    assert_eq!((outline.name, outline.namespace), (Some("web"), Some("default")));
    assert_eq!((outline.uid, outline.version), (Some("u-1"), Some("12")));
    assert_eq!(outline.managed_fields, find_managed_fields(MANY.as_bytes()));
    assert_eq!(Outline::read(MANY.as_bytes(), true).unwrap().managed_fields, None);
}

#[test]
fn managed_fields_are_no_part_of_the_form_unless_they_are_kept() {
    let mut bytes = MANY.as_bytes().to_vec();
    bytes.drain(find_managed_fields(&bytes).unwrap());
    let form = |bytes: &[u8], keep| Outline::read(bytes, keep).unwrap().form;
    assert_eq!(form(MANY.as_bytes(), false), form(&bytes, false));
    assert_ne!(form(MANY.as_bytes(), true), form(&bytes, true));
}

/// Whether two texts are of one form.
fn are_alike(one: &str, other: &str) -> bool {
    let form = |text: &str| Outline::read(text.as_bytes(), false).map(|outline| outline.form);
    form(one).is_some() && form(one) == form(other)
}

#[test]
fn objects_that_differ_in_words_and_small_numbers_only_are_of_one_form() {
    for (from, to) in [
        ("\"web\"", "\"another-name\""),
        ("8080", "9"),
        ("\"12\"", "\"900000000000\""),
        ("2026-01-31T00:00:00Z", "1999-12-31T23:59:59.123456Z"),
        (" ", "\n\n"),
        ("\"1\"", "\"{\\\"b\\\":[1,2]}\""),
    ] {
        assert!(are_alike(MANY, &MANY.replace(from, to)), "{from} → {to}");
    }
}

#[test]
fn objects_that_a_type_may_read_differently_are_not_of_one_form() {
    for (from, to) in [
        ("8080", "-1"),
        ("8080", "8080.5"),
        ("8080", "4294967296"),
        ("8080", "\"8080\""),
        ("8080", "null"),
        ("2026-01-31T00:00:00Z", "2026-02-31T00:00:00Z"),
        ("2026-01-31T00:00:00Z", "2026-01-31 00:00:00+01:00"),
        ("2026-01-31T00:00:00Z", "soon"),
        ("\"Pod\"", "\"Node\""),
        ("\"v1\"", "\"v2\""),
        ("\"app\"", "\"tier\""),
        ("\"1\"", "\"\\ud800\""),
        ("[{\"containerPort\":8080}]", "{\"containerPort\":8080}"),
        ("\"spec\"", "\"status\""),
    ] {
        assert!(!are_alike(MANY, &MANY.replace(from, to)), "{from} → {to}");
    }
}

#[test]
fn what_is_no_json_has_no_outline() {
    for text in [
        "",
        "[]",
        "{",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\":[1,]}",
        "{\"a\":[1}]",
        "{}{}",
        "{\"a\":01x}",
        "{a:1}",
    ] {
        assert!(Outline::read(text.as_bytes(), false).is_none(), "{text}");
    }
    for end in 1..MANY.len() {
        assert!(Outline::read(&MANY.as_bytes()[..end], false).is_none(), "{end}");
    }
}

/// Values to put in the place of others: usual, unusual and wrong ones.
fn any_value() -> impl Strategy<Value = Value> {
    let words = [
        "a",
        "web-1",
        "",
        "100m",
        "v1",
        "Pod",
        "AAAA",
        "AAA=",
        "AAB=",
        "aGVsbG8=",
        "+002026-01-01T00:00:00Z",
        "2026-01-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2026-01-31T00:00:60Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31t00:00:00z",
        "2026-01-31 00:00:00Z",
        "20260131T000000Z",
        "2026-01-31T00:00:00.5Z",
        "2026-01-31T00:00:00.1234567891Z",
        "2026-01-31T00:00:00",
        "2026-01-31T00:00Z",
        "2026-01-31T00:00:00+02:00",
        "2026-01-31T00:00:00Z[UTC]",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "20260131tb5",
        "a\nb",
        "\u{e9}",
        "\u{1}",
    ];
    prop_oneof![
        4 => proptest::sample::select(words.to_vec()).prop_map(Value::from),
        1 => proptest::sample::select(vec![0_i64, 7, 123_456_789, 1_234_567_890, 2_147_483_648, -1, i64::MAX, i64::MIN])
            .prop_map(Value::from),
        1 => proptest::sample::select(vec![json!(null), json!(true), json!(1.5), json!({}), json!([]), json!(u64::MAX)]),
    ]
}

/// Replaces the `at`-th value that is no container.
fn replace_leaf(value: &mut Value, at: &mut usize, with: &Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(|value| replace_leaf(value, at, with)),
        Value::Array(items) => items.iter_mut().for_each(|value| replace_leaf(value, at, with)),
        leaf => {
            if *at == 0 {
                *leaf = with.clone();
            }
            *at = at.wrapping_sub(1);
        }
    }
}

fn objects() -> [Value; 4] {
    let meta = json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}],
    });
    [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}}}],
            "terminationGracePeriodSeconds": 30, "priority": 0,
        }, "status": {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [
            {"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}),
        json!({"metadata": meta, "data": {"a": "AAAA", "b": "aGVsbG8="}, "type": "Opaque"}),
        json!({"metadata": meta, "data": {"a": "b"}, "binaryData": {"c": "AAAA"}, "immutable": false}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {
            "holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"}}),
    ]
}

/// Of the objects of one form, a type reads all or none.
fn check_type<K: DeserializeOwned>(texts: &[String]) -> Result<(), TestCaseError> {
    let mut readable = BTreeMap::new();
    for text in texts {
        if let Some(outline) = Outline::read(text.as_bytes(), true) {
            let can_be_read = serde_json::from_str::<K>(text).is_ok();
            let (before, first) = readable.entry(outline.form).or_insert((can_be_read, text));
            prop_assert_eq!(*before, can_be_read, "of one form:\n{}\n{}", first, text);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn of_the_objects_of_one_form_a_type_reads_all_or_none(
        object in proptest::sample::select(objects().to_vec()),
        at in any::<prop::sample::Index>(),
        others in proptest::collection::vec(any_value(), 12),
    ) {
        let at = at.index(24);
        let mut texts = vec![object.to_string()];
        for with in others {
            let mut changed = object.clone();
            replace_leaf(&mut changed, &mut at.clone(), &with);
            texts.push(changed.to_string());
        }
        check_type::<Pod>(&texts)?;
        check_type::<Secret>(&texts)?;
        check_type::<ConfigMap>(&texts)?;
        check_type::<Lease>(&texts)?;
        check_type::<DynamicObject>(&texts)?;
        check_type::<PartialObjectMeta<Pod>>(&texts)?;
    }

    #[test]
    fn an_outline_finds_the_managed_fields_that_the_scanner_finds(object in any_object()) {
        let text = object.to_string();
        if let Some(outline) = Outline::read(text.as_bytes(), false) {
            prop_assert_eq!(outline.managed_fields, find_managed_fields(text.as_bytes()));
        }
    }

    /// What has an outline is JSON.
    #[test]
    fn nothing_has_an_outline_that_serde_json_refuses(
        at in any::<prop::sample::Index>(),
        with in prop_oneof![any::<u8>(), proptest::sample::select(b"\"\\{}[],:0-.e \n".to_vec())],
    ) {
        let mut bytes = MANY.as_bytes().to_vec();
        bytes.drain(find_managed_fields(&bytes).unwrap());
        let at = at.index(bytes.len());
        bytes[at] = with;
        let is_known = Outline::read(&bytes, false).is_some_and(|outline| {
            Outline::read(MANY.as_bytes(), false).unwrap().form == outline.form
        });
        prop_assert!(!is_known || serde_json::from_slice::<Value>(&bytes).is_ok());
    }
}
