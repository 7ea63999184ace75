//! Every kind of the table against the round-trip data that Kubernetes publishes with its Go
//! modules. The suite `real` runs this: `SETPOINT_K8S_API_TESTDATA` is the folder `testdata/HEAD` of
//! `k8s.io/api` (or several, separated by colons).

use std::path::Path;

use serde_json::Value;
use setpoint_kinds::{conform, protobuf, table};

#[test]
fn every_published_object_decodes_from_json_and_protobuf_to_the_same() {
    let Ok(folders) = std::env::var("SETPOINT_K8S_API_TESTDATA") else { return };
    let (mut checked, mut skipped) = (0, Vec::new());
    for folder in folders.split(':') {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "pb") {
                if check(&path) {
                    checked += 1;
                } else {
                    skipped.push(path.file_stem().unwrap().to_string_lossy().into_owned());
                }
            }
        }
    }
    skipped.sort();
    assert!(checked >= 70, "{checked} checked, {} not in the table: {skipped:?}", skipped.len());
    assert!(
        skipped
            .iter()
            .all(|name| name.contains("alpha") || name.contains("beta") || UNSERVED.contains(&&**name)),
        "{skipped:?}"
    );
}

/// Stable kinds that come as query parameters, inside other things, or not at all.
const UNSERVED: &[&str] = &[
    "core.v1.CreateOptions",
    "core.v1.GetOptions",
    "core.v1.ListOptions",
    "core.v1.PatchOptions",
    "core.v1.PodLogOptions",
    "core.v1.RangeAllocation",
    "core.v1.SerializedReference",
    "core.v1.UpdateOptions",
    "core.v1.WatchEvent",
];

/// Whether the table has the kind.
fn check(path: &Path) -> bool {
    let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let name = path.display();
    let bytes = std::fs::read(path).unwrap();
    let decoded = match protobuf::decode(&bytes) {
        Ok(decoded) => decoded,
        Err(protobuf::DecodeError::Kind { .. }) => return false,
        Err(error) => panic!("{name}: {error}"),
    };
    assert_eq!(decoded.value, expected, "{name}");

    let (group, version) = decoded.api_version.split_once('/').unwrap_or(("", &decoded.api_version));
    let ty = table().type_of_kind(group, version, &decoded.kind).unwrap();
    let (mut conformed, mut unknown) = (expected.clone(), Vec::new());
    conform(ty, &mut conformed, &mut unknown).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(unknown.is_empty(), "{name}: {unknown:?}");
    assert_eq!(conformed, expected, "{name}");

    let encoded = protobuf::encode(&conformed).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(protobuf::decode(&encoded).unwrap().value, expected, "{name}");
    assert!(encoded == bytes, "{name}: other bytes than Go's");
    true
}
