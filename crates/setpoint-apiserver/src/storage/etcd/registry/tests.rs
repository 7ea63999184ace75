use serde_json::json;

use super::*;

fn key(collection: &str, path: &str) -> Key {
    Key { collection: collection.into(), path: path.into() }
}

#[test]
fn keys_are_those_of_kube_apiserver() {
    let layout = Registry::new();
    for (collection, path, place) in [
        ("core/pods", "default/web-0", "pods/default/web-0"),
        ("core/nodes", "n1", "minions/n1"),
        ("core/services", "default/a", "services/specs/default/a"),
        ("core/endpoints", "default/a", "services/endpoints/default/a"),
        ("core/replicationcontrollers", "default/a", "controllers/default/a"),
        ("core/events", "default/e.1", "events/default/e.1"),
        ("networking.k8s.io/ingresses", "default/a", "ingress/default/a"),
        ("apps/deployments", "default/a", "deployments/default/a"),
        ("rbac.authorization.k8s.io/clusterroles", "system:node", "clusterroles/system:node"),
        ("autoscaling/horizontalpodautoscalers", "default/a", "horizontalpodautoscalers/default/a"),
        (
            "apiextensions.k8s.io/customresourcedefinitions",
            "foos.example.com",
            "apiextensions.k8s.io/customresourcedefinitions/foos.example.com",
        ),
        (
            "apiregistration.k8s.io/apiservices",
            "v1.example.com",
            "apiregistration.k8s.io/apiservices/v1.example.com",
        ),
        ("example.com/foos", "default/a", "example.com/foos/default/a"),
        ("example.com/clusterfoos", "a", "example.com/clusterfoos/a"),
        ("ranges", "servicenodeports", "ranges/servicenodeports"),
    ] {
        assert_eq!(layout.place(&key(collection, path)), place);
        assert_eq!(layout.key(place), Some(key(collection, path)), "{place}");
    }
    for foreign in ["masterleases/10.0.0.1", "peerserverleases/x", "pods/", "pods", ""] {
        assert_eq!(layout.key(foreign), None, "{foreign}");
    }
}

/// What is read is what was written, and writing it again makes the same bytes.
fn check(collection: &str, object: &Value, stored_as: Option<&str>) {
    let layout = Registry::new();
    let key = key(collection, "x");
    let value = object::encode(object);
    let stored = layout.encode(&key, &value).unwrap();
    match stored_as {
        Some(api_version) => assert_eq!(Envelope::parse(&stored).unwrap().api_version, api_version),
        None => assert!(stored.starts_with(b"{") && stored.ends_with(b"}\n")),
    }
    let read = layout.decode(&key, &stored).unwrap();
    assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(&value));
    assert_eq!(layout.encode(&key, &read).unwrap(), stored);
}

#[test]
fn built_in_kinds_are_protobuf_in_their_stored_version() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}});
    check("core/configmaps", &map, Some("v1"));
    let bundle = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "x"}, "spec": {"trustBundle": "pem"}});
    check("certificates.k8s.io/clustertrustbundles", &bundle, Some("certificates.k8s.io/v1beta1"));
}

#[test]
fn custom_resources_are_json_as_go_writes_maps() {
    let layout = Registry::new();
    let object =
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}, "about": "a<b"});
    let stored = layout.encode(&key("example.com/foos", "x"), &object::encode(&object)).unwrap();
    let expected = "{\"about\":\"a\\u003cb\",\"apiVersion\":\"example.com/v1\",\"kind\":\"Foo\",\"metadata\":{\"name\":\"x\"}}\n";
    assert_eq!(String::from_utf8(stored).unwrap(), expected);
    check("example.com/foos", &object, None);
}

#[test]
fn definitions_are_stored_as_v1beta1() {
    let layout = Registry::new();
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]})
    };
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Foo", "listKind": "FooList", "plural": "foos", "singular": "foo"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://x"}}},
            "versions": [version("v1"), version("v2")]},
        "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]}});
    let stored =
        layout.encode(&key("apiextensions.k8s.io/customresourcedefinitions", "x"), &object::encode(&object));
    let stored: Value = serde_json::from_slice(&stored.unwrap()).unwrap();
    assert_eq!(stored["apiVersion"], "apiextensions.k8s.io/v1beta1");
    let spec = &stored["spec"];
    assert_eq!(spec["version"], "v1");
    assert_eq!(spec["validation"]["openAPIV3Schema"]["type"], "object");
    assert_eq!(spec["additionalPrinterColumns"][0]["JSONPath"], ".spec.a");
    assert_eq!(spec["versions"][1], json!({"name": "v2", "served": true, "storage": false}));
    assert_eq!(spec["preserveUnknownFields"], false);
    assert_eq!(spec["conversion"]["webhookClientConfig"]["url"], "https://x");
    check("apiextensions.k8s.io/customresourcedefinitions", &object, None);
}

#[test]
fn what_cannot_be_read_is_named() {
    let layout = Registry::new();
    let decode = |value: &[u8]| layout.decode(&key("core/secrets", "x"), value).unwrap_err();
    assert!(decode(b"k8s:enc:aescbc:v1:key1:xyz").contains("encrypted (k8s:enc:aescbc)"));
    assert!(decode(b"k8s\0\xff").contains("unexpected end"));
    assert!(decode(b"hello").contains("expected value"));
    assert!(decode(b"{}").contains("it is of "));
    let foreign = [Envelope::start("example.com/v1", "Secret", 0), Envelope::END.to_vec()].concat();
    assert!(decode(&foreign).contains("unknown here"));
}

#[test]
fn definitions_are_json_in_the_order_of_go_structs() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "integer", "maximum": 1e21, "minimum": 2.0,
        "description": "a<b", "x-kubernetes-validations": [{"rule": "self > 1", "message": "no"}]}, "a": {"type": "string"}}});
    let column = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"uid": "u", "name": "x", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"scope": "Cluster", "group": "example.com", "names": {"kind": "Foo", "plural": "foos"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "storage": true, "served": true, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [column]}]},
        "status": {"storedVersions": ["v1"], "conditions": [], "acceptedNames": {"kind": "", "plural": ""}}});
    let key = key("apiextensions.k8s.io/customresourcedefinitions", "x");
    let stored = Registry::new().encode(&key, &object::encode(&object)).unwrap();
    let expected = concat!(
        r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"x","#,
        r#""uid":"u","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"group":"example.com","#,
        r#""version":"v1","names":{"plural":"foos","kind":"Foo"},"scope":"Cluster","validation":{"openAPIV3Schema":"#,
        r#"{"type":"object","properties":{"a":{"type":"string"},"spec":{"description":"a\u003cb","type":"integer","#,
        r#""maximum":1e+21,"minimum":2,"x-kubernetes-validations":[{"rule":"self \u003e 1","message":"no"}]}}}},"#,
        r#""versions":[{"name":"v1","served":true,"storage":true}],"additionalPrinterColumns":[{"name":"Age","#,
        r#""type":"date","JSONPath":".metadata.creationTimestamp"}],"conversion":{"strategy":"None"},"#,
        r#""preserveUnknownFields":false},"status":{"conditions":[],"acceptedNames":{"plural":"","kind":""},"#,
        r#""storedVersions":["v1"]}}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(stored).unwrap(), expected);
}
