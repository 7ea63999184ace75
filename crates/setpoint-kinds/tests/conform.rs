//! `conform` against what the Go libraries made of the same inputs.

use serde_json::Value;
use setpoint_kinds::{conform, table};

fn type_of(object: &Value) -> &'static setpoint_kinds::Type {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    table().type_of_kind(group, version, object["kind"].as_str().unwrap()).unwrap()
}

#[test]
fn every_object_decodes_as_in_go() {
    let mut cases = 0;
    for line in include_str!("data/conform.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut value = case["input"].clone();
        let mut unknown = Vec::new();
        let outcome = conform(type_of(&value), &mut value, &mut unknown);
        match (outcome, case.get("error").and_then(Value::as_str)) {
            (Ok(()), None) => assert_eq!(value, case["output"], "of {}", case["input"]),
            (Err(found), Some(expected)) => assert_eq!(found.to_string(), expected, "of {}", case["input"]),
            (found, expected) => panic!("{found:?} instead of {expected:?} of {}", case["input"]),
        }
        if case.get("error").is_none() {
            let found: Vec<String> = unknown.iter().map(ToString::to_string).collect();
            let mut expected: Vec<String> = case
                .get("unknown")
                .map_or_else(Vec::new, |list| serde_json::from_value(list.clone()).unwrap());
            // Go reports in the order of the document, we in the order of the keys.
            expected.sort_by_key(|text| found.iter().position(|other| other == text));
            assert_eq!(found, expected, "of {}", case["input"]);
        }
        cases += 1;
    }
    assert!(cases > 100, "{cases}");
}
