//! Protobuf read straight into types, against the JSON of the same object read into them: for every kind that can be
//! listed, with the types of `k8s-openapi`.

#[path = "deserialize/objects.rs"]
mod objects;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_kinds::protobuf::{
    DecodeError, TypeMeta, check_message, decode_message, encode_message, from_message, in_order,
};
use setpoint_kinds::{Type, table};

use self::objects::{Random, object};

/// A kind, and what is checked of it with its type.
struct Kind {
    name: &'static str,
    reads_as_json: fn(&'static Type, &[u8]) -> Result<(), DecodeError>,
}

/// The object that is read from the message is the one that is read from its JSON.
fn reads_as_json<K: DeserializeOwned + PartialEq + Debug>(
    ty: &'static Type,
    message: &[u8],
) -> Result<(), DecodeError> {
    let read = from_message::<K>(ty, None, message);
    let json = decode_message(ty, message).map(Value::Object).ok();
    let expected = json.and_then(|json| serde_json::from_value::<K>(json).ok());
    assert_eq!(read.as_ref().ok(), expected.as_ref(), "{}", ty.name);
    read.map(drop)
}

macro_rules! kinds {
    ($($package:ident :: $version:ident { $($kind:ident)* })*) => {
        &[$($(Kind {
            name: concat!(stringify!($package), ".", stringify!($version), ".", stringify!($kind)),
            reads_as_json: reads_as_json::<apis::$package::$version::$kind>,
        },)*)*]
    };
}

mod apis {
    pub(crate) use k8s_openapi::api::*;
    pub(crate) use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
    pub(crate) use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
}

const KINDS: &[Kind] = kinds! {
    core::v1 {
        ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod
        PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
    }
    apiregistration::v1 { APIService }
    apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
    events::v1 { Event }
    autoscaling::v1 { HorizontalPodAutoscaler }
    autoscaling::v2 { HorizontalPodAutoscaler }
    batch::v1 { CronJob Job }
    certificates::v1 { CertificateSigningRequest ClusterTrustBundle PodCertificateRequest }
    networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
    policy::v1 { PodDisruptionBudget }
    rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
    storage::v1 {
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
    }
    admissionregistration::v1 {
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy
        ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    }
    apiextensions::v1 { CustomResourceDefinition }
    scheduling::v1 { PriorityClass }
    coordination::v1 { Lease }
    node::v1 { RuntimeClass }
    discovery::v1 { EndpointSlice }
    resource::v1 {
        DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice
    }
    flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
    storagemigration::v1 { StorageVersionMigration }
};

fn type_named(name: &str) -> &'static Type {
    table().type_named(name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Calls `check` with each kind, its type and an object of it in protobuf, `rounds` of them.
fn for_objects(rounds: u64, mut check: impl FnMut(&Kind, &'static Type, Vec<u8>, &mut Random)) {
    for kind in KINDS {
        let ty = type_named(kind.name);
        for round in 0..rounds {
            // The first has all fields, each later one some of them.
            let mut random = Random::new(round);
            let message = encode_message(ty, &object(ty, &mut random)).unwrap();
            check(kind, ty, message, &mut random);
        }
    }
}

#[test]
fn every_kind_that_can_be_listed_is_here() {
    let mut expected: Vec<_> = table()
        .resources()
        .iter()
        .filter(|resource| resource.verbs.contains(&"list"))
        .map(|resource| resource.ty().name)
        .collect();
    let mut found: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    expected.sort_unstable();
    expected.dedup();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn what_a_type_reads_is_what_it_reads_in_json() {
    for_objects(16, |kind, ty, message, _| {
        (kind.reads_as_json)(ty, &message).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let value: Value = from_message(ty, None, &message).unwrap();
        assert_eq!(value, Value::Object(decode_message(ty, &message).unwrap()), "{}", kind.name);
    });
}

#[test]
fn what_go_could_have_written_passes_the_check() {
    for_objects(40, |kind, ty, message, _| {
        check_message(ty, &message).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    });
}

/// The law behind caches that leave objects undecoded.
#[test]
fn whatever_passes_the_check_can_be_read() {
    let (mut passed, mut refused) = (0, 0);
    for_objects(6, |kind, ty, message, random| {
        for _ in 0..24 {
            let mut damaged = message.clone();
            random.damage(&mut damaged);
            let read = (kind.reads_as_json)(ty, &damaged);
            match check_message(ty, &damaged) {
                Ok(()) => {
                    passed += 1;
                    read.unwrap_or_else(|error| panic!("{} of {damaged:?}: {error}", kind.name));
                }
                Err(_) => refused += 1,
            }
            // The same as JSON in everything, whatever was done to it.
            let value = from_message::<Value>(ty, None, &damaged);
            assert_eq!(value.ok(), decode_message(ty, &damaged).map(Value::Object).ok(), "{}", kind.name);
        }
    });
    assert!(passed > 1000 && refused > 1000, "{passed} passed, {refused} refused");
}

#[test]
fn every_prefix_of_a_message_is_an_error_or_an_object() {
    for_objects(1, |kind, ty, message, _| {
        for end in 0..message.len().min(600) {
            if check_message(ty, &message[..end]).is_ok() {
                (kind.reads_as_json)(ty, &message[..end]).unwrap();
            }
        }
    });
}

#[test]
fn a_required_time_that_is_null_does_not_pass() {
    let ty = type_named("meta.v1.Condition");
    let condition = |time| encode_message(ty, &json!({"type": "Ready", "lastTransitionTime": time})).unwrap();
    check_message(ty, &condition(json!("2024-02-29T12:34:56Z"))).unwrap();
    assert!(check_message(ty, &condition(Value::Null)).is_err());
    assert!(check_message(ty, b"\x0a\x05Ready").is_err());
}

const POD: &str = "core.v1.Pod";

#[test]
fn fields_in_any_order_are_read_and_brought_into_order() {
    let ty = type_named(POD);
    // Finalizers around the name, which comes twice; metadata in two parts; numbers in one piece.
    for message in [
        &b"\x0a\x0c\x72\x01x\x0a\x01a\x72\x01y\x0a\x01b"[..],
        b"\x0a\x03\x0a\x01a\x0a\x06\x72\x01x\x72\x01y",
        b"\x0a\x09\x0a\x01a\x72\x01x\x72\x01y\x12\x06\x72\x04\x22\x02\x01\x02",
    ] {
        assert_eq!(check_message(ty, message), Err(DecodeError::Order));
        reads_as_json::<Pod>(ty, message).unwrap();
        let pod: Pod = from_message(ty, None, message).unwrap();
        assert_eq!(pod.metadata.finalizers.as_deref(), Some(&["x".to_owned(), "y".to_owned()][..]));
        let ordered = in_order(ty, message).unwrap();
        check_message(ty, &ordered).unwrap();
        assert_eq!(from_message::<Pod>(ty, None, &ordered).unwrap(), pod);
    }
}

#[test]
fn a_type_that_asks_for_it_finds_its_kind() {
    let ty = type_named(POD);
    let types = Some(TypeMeta::new("v1", "Pod"));
    let value: Value = from_message(ty, types, b"\x0a\x03\x0a\x01a").unwrap();
    assert_eq!((&value["apiVersion"], &value["kind"]), (&json!("v1"), &json!("Pod")));
    from_message::<Pod>(ty, types, b"").unwrap();
    let other = Some(TypeMeta::new("v1", "Node"));
    let error = from_message::<Pod>(ty, other, b"").unwrap_err().to_string();
    assert!(error.contains("expected Pod"), "{error}");
}

#[test]
fn text_that_is_no_text_is_mended_as_in_json() {
    let ty = type_named("core.v1.ConfigMap");
    let message = b"\x0a\x04\x0a\x02a\xff\x12\x08\x0a\x02\xffk\x12\x02v\xfe";
    check_message(ty, message).unwrap();
    reads_as_json::<ConfigMap>(ty, message).unwrap();
    // Each byte by itself, also the two that begin a character of three.
    let map: ConfigMap = from_message(ty, None, b"\x0a\x05\x0a\x03a\xe2\x82").unwrap();
    assert_eq!(map.metadata.name.as_deref(), Some("a\u{fffd}\u{fffd}"));
}

#[test]
fn an_entry_that_is_null_where_a_type_takes_none_does_not_pass() {
    let ty = type_named("apiextensions.v1.JSONSchemaProps");
    let no_value = b"\x82\x02\x03\x0a\x01a";
    let empty_value = b"\x82\x02\x05\x0a\x01a\x12\x00";
    // In the schema itself, in that of its items, and in that of its additional properties.
    let within = |tag: &[u8], number: u8, schema: &[u8]| {
        let union = [&[number, schema.len() as u8][..], schema].concat();
        [tag, &[union.len() as u8], &union].concat()
    };
    for dependencies in [&no_value[..], empty_value] {
        let items = within(b"\xc2\x01", 0x0a, dependencies);
        let additional = within(b"\xf2\x01", 0x12, dependencies);
        for schema in [dependencies, &items, &additional] {
            assert!(check_message(ty, schema).is_err(), "{schema:x?}");
            assert!(reads_as_json::<JSONSchemaProps>(ty, schema).is_err(), "{schema:x?}");
        }
    }
}

#[test]
fn json_that_is_null_is_nothing() {
    let ty = type_named("apiextensions.v1.JSONSchemaProps");
    for message in [&b"\x42\x06\x0a\x04null"[..], b"\x42\x07\x0a\x05 null"] {
        check_message(ty, message).unwrap();
        reads_as_json::<JSONSchemaProps>(ty, message).unwrap();
        assert_eq!(from_message::<JSONSchemaProps>(ty, None, message).unwrap().default, None);
    }
}

#[test]
fn types_of_all_sorts_read_what_they_read_in_json() {
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
    struct Key(String);
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        api_version: Option<String>,
        kind: Option<Key>,
        data: Option<std::collections::BTreeMap<Key, Option<Key>>>,
    }
    let ty = type_named("core.v1.ConfigMap");
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"color": "blue"}});
    let message = encode_message(ty, &value).unwrap();
    let slim: Slim = from_message(ty, Some(TypeMeta::new("v1", "ConfigMap")), &message).unwrap();
    assert_eq!(slim, serde_json::from_value(value).unwrap());
}

#[test]
fn vectors_have_exactly_the_room_that_they_need() {
    let ty = type_named(POD);
    let finalizers: Vec<_> = (0..5).map(|n| format!("f{n}")).collect();
    let message = encode_message(ty, &json!({"metadata": {"finalizers": finalizers}})).unwrap();
    let pod: Pod = from_message(ty, None, &message).unwrap();
    let read = pod.metadata.finalizers.unwrap();
    assert_eq!((read.len(), read.capacity()), (5, 5));
}

#[test]
fn a_schema_may_nest_as_deep_as_the_check_allows_and_no_deeper() {
    let ty = type_named("apiextensions.v1.JSONSchemaProps");
    let nestings: [fn(Value) -> Value; 3] = [
        |schema| json!({ "not": schema }),
        |schema| json!({"properties": {"p": schema}}),
        |schema| json!({ "items": schema }),
    ];
    for nesting in nestings {
        let message = |depth: usize| {
            let schema = (0..depth).fold(json!({}), |schema, _| nesting(schema));
            encode_message(ty, &schema).unwrap()
        };
        let deepest = (1..200).take_while(|depth| check_message(ty, &message(*depth)).is_ok()).count();
        assert_eq!(deepest, 62);
        from_message::<JSONSchemaProps>(ty, None, &message(deepest)).unwrap();
        assert_eq!(from_message::<JSONSchemaProps>(ty, None, &message(deepest + 1)), Err(DecodeError::Depth));
    }
}
