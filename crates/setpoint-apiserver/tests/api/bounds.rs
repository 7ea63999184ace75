//! What a request can make is bounded, whichever way it makes it.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, FuturesUnordered, StreamExt};
use http::{Request, header};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use setpoint_apiserver::User;
use setpoint_env::watch;
use tower::ServiceExt;

use crate::definitions::DEFINITIONS;
use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const JSON_PATCH: &str = "application/json-patch+json";

const DEEPS: &str = "/apis/example.com/v1/namespaces/default/deeps";
/// How deep an object may be nested.
const DEPTH: usize = 119;
/// How many bytes an object may take.
const BYTES: usize = (3 << 20) - 4096;

/// `{"a":{"a":…}}`, so many levels.
fn nested(levels: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

fn deep(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": name}, "spec": spec})
}

/// An object that is nested so deep as a whole.
fn deep_object(name: &str, depth: usize) -> Value {
    deep(name, &serde_json::from_str(&nested(depth - 1)).unwrap())
}

/// A definition of Deeps, whose spec has this schema.
fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deeps.example.com"},
        "spec": {
            "group": "example.com", "names": {"kind": "Deep", "plural": "deeps"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}
            }}}],
        }
    })
}

/// A server with Deeps, whose spec may be anything.
async fn with_deeps() -> Api {
    let api = Api::new();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    api.post(DEFINITIONS, &definition(&any)).await.ok();
    api
}

#[track_caller]
fn check_too_large(answer: &crate::support::Answer, which: &str) {
    assert_eq!(
        (answer.code, answer.reason()),
        (413, "RequestEntityTooLarge"),
        "{:.300}",
        answer.body.to_string()
    );
    assert!(answer.message().contains(which), "{}", answer.message());
}

/// Copies a deep value into its own leaf again and again.
fn deep_copies() -> String {
    let mut patch = format!(r#"[{{"op":"add","path":"/x","value":{}}}"#, nested(90));
    let mut leaf = "/x".to_owned() + &"/a".repeat(90);
    for _ in 0..7 {
        patch.push_str(&format!(r#",{{"op":"copy","from":"/x","path":"{leaf}"}}"#));
        leaf = leaf.clone() + &leaf[2..];
    }
    patch + "]"
}

#[tokio::test]
async fn a_patch_cannot_nest_a_value_deeper_than_a_body_can() {
    let api = Api::new();
    let path = format!("{MAPS}/a");
    api.post(MAPS, &map("a", "x")).await.ok();
    let answer = api.call("PATCH", &path, JSON_PATCH, deep_copies()).await;
    answer.refused(
        413,
        "Request entity too large: an object may be nested 119 levels deep, and this one would be deeper",
    );
    assert_eq!(api.get(&path).await.ok()["data"]["key"], "x");
}

#[tokio::test]
async fn a_name_that_is_a_path_segment_has_a_greatest_length() {
    let api = Api::new();
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}});
    api.post(ROLES, &role(&"r".repeat(1024))).await.ok();
    let answer = api.post(ROLES, &role(&"r".repeat(70_000))).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"));
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.name");
    assert!(answer.message().ends_with(": must be no more than 1024 bytes"), "{}", answer.message().len());
    let mut generated = role("");
    generated["metadata"] = json!({"generateName": "r".repeat(1025)});
    let answer = api.post(ROLES, &generated).await;
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.generateName");
    let answer = api.put(&format!("{ROLES}/{}", "r".repeat(1025)), &role(&"r".repeat(1025))).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "nor by a PUT to a free name");
}

#[tokio::test]
async fn a_pod_may_be_given_more_time_to_end_than_there_is() {
    let api = Api::new();
    let mut placed = pod("a");
    placed["spec"]["nodeName"] = "n".into();
    api.post(PODS, &placed).await.ok();
    let deleted = api.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": i64::MAX})).await.ok();
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], i64::MAX);
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
    let sooner = api.delete(&format!("{PODS}/a?gracePeriodSeconds={}", u64::MAX), &Value::Null).await;
    assert_ne!(sooner.code, 500, "{}", sooner.body);
    let sooner = api.delete(&format!("{PODS}/a"), &json!({"gracePeriodSeconds": 5})).await.ok();
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
}

/// A thread of the tests has the 2 MiB of stack that a worker has, and a debug build needs most of it.
#[tokio::test]
async fn an_object_at_the_limit_of_depth_passes_through_everything() {
    let api = with_deeps().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "same"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["example.com"], "apiVersions": ["*"],
                "operations": ["*"], "resources": ["deeps"]}]},
            "validations": [{"expression": "oldObject == null || object == null || object.spec == oldObject.spec"}]}});
    api.post(policies, &policy).await.ok();
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "same"}, "spec": {"policyName": "same", "validationActions": ["Deny"]}});
    api.post(&policies.replace("policies", "policybindings"), &binding).await.ok();

    let path = format!("{DEEPS}/a");
    let object = deep_object("a", DEPTH);
    let mut watch = api.watch(&format!("{DEEPS}?watch=1")).await;
    api.post(DEEPS, &object).await.ok();
    assert_eq!(watch.line().await, "ADDED a");
    let read = api.get(&path).await.ok();
    assert_eq!(read["spec"], object["spec"]);
    assert!(read["metadata"]["managedFields"].to_string().matches("f:a").count() > 100);
    api.put(&path, &read).await.ok();
    api.merge(&path, &json!({"metadata": {"labels": {"x": "merge"}}})).await.ok();
    let patch = r#"[{"op":"add","path":"/metadata/labels/y","value":"json"},{"op":"test","path":"/spec","value":SPEC}]"#;
    let patch = patch.replace("SPEC", &object["spec"].to_string());
    api.call("PATCH", &path, JSON_PATCH, patch).await.ok();
    let apply = format!("{path}?fieldManager=me&force=true");
    let applied = api.call("PATCH", &apply, "application/apply-patch+yaml", object.to_string()).await.ok();
    assert_eq!(applied["metadata"]["labels"], json!({"x": "merge", "y": "json"}));
    assert_eq!(api.get(DEEPS).await.names(), ["a"]);
    for accept in [
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    ] {
        let request =
            http::Request::get(&path).header("accept", accept).body(http_body_util::Full::default());
        assert_eq!(api.answer(request.unwrap()).await.code, 200, "{accept}");
    }
    api.delete(&path, &Value::Null).await.ok();
}

#[tokio::test]
async fn an_object_deeper_than_the_limit_is_refused_however_it_is_made() {
    let api = with_deeps().await;
    let path = format!("{DEEPS}/a");
    check_too_large(&api.post(DEEPS, &deep_object("a", DEPTH + 1)).await, "119 levels");
    api.post(DEEPS, &deep_object("a", 3)).await.ok();
    check_too_large(&api.put(&path, &deep_object("a", DEPTH + 1)).await, "119 levels");
    let more = json!({"spec": deep_object("a", DEPTH + 1)["spec"]});
    check_too_large(&api.merge(&path, &more).await, "119 levels");
    let applied = deep_object("a", DEPTH + 1).to_string();
    let apply = format!("{path}?fieldManager=me&force=true");
    check_too_large(&api.call("PATCH", &apply, "application/apply-patch+yaml", applied).await, "119 levels");
    for operation in [
        json!([{"op": "add", "path": "/spec/b", "value": deep_object("a", DEPTH)["spec"]}]),
        json!([{"op": "replace", "path": "/spec", "value": deep_object("a", DEPTH + 1)["spec"]}]),
        json!([{"op": "add", "path": "/b", "value": deep_object("a", DEPTH - 1)["spec"]},
               {"op": "move", "from": "/b", "path": "/spec/a/a"}]),
    ] {
        let answer = api.call("PATCH", &path, JSON_PATCH, operation.to_string()).await;
        assert_eq!(answer.code, 413, "{:.300}", answer.body.to_string());
    }
    // A patch of a kind with a Go type drops what the kind does not have, but only after it was made.
    api.post(MAPS, &map("a", "x")).await.ok();
    let strategic = "application/strategic-merge-patch+json";
    let answer =
        api.call("PATCH", &format!("{MAPS}/a"), strategic, format!("{{\"x\":{}}}", nested(125))).await;
    check_too_large(&answer, "119 levels");
}

#[tokio::test]
async fn defaults_cannot_make_much_of_little() {
    let api = Api::new();
    let item =
        json!({"type": "object", "properties": {"d": {"type": "string", "default": "x".repeat(10_000)}}});
    let spec = json!({"type": "object", "properties": {"list": {"type": "array", "items": item}}});
    api.post(DEFINITIONS, &definition(&spec)).await.ok();
    let items = vec![json!({}); 100_000];
    check_too_large(&api.post(DEEPS, &deep("a", &json!({"list": items}))).await, "bytes");
    api.post(DEEPS, &deep("a", &json!({"list": [{}, {}]}))).await.ok();
}

#[tokio::test]
async fn a_schema_that_fills_in_more_than_it_did_does_not_make_objects_unreadable() {
    let api = Api::new();
    let schema = |default: Value| {
        let item = json!({"type": "object", "properties": {"d": default}});
        definition(&json!({"type": "object", "properties": {"list": {"type": "array", "items": item}}}))
    };
    api.post(DEFINITIONS, &schema(json!({"type": "string"}))).await.ok();
    api.post(DEEPS, &deep("a", &json!({"list": vec![json!({}); 10_000]}))).await.ok();
    let mut changed = api.get(&format!("{DEFINITIONS}/deeps.example.com")).await.ok();
    changed["spec"]["versions"] =
        schema(json!({"type": "string", "default": "x".repeat(10_000)}))["spec"]["versions"].clone();
    api.put(&format!("{DEFINITIONS}/deeps.example.com"), &changed).await.ok();
    let read = api.get(&format!("{DEEPS}/a")).await.ok();
    assert_eq!(read["spec"]["list"].as_array().unwrap().len(), 10_000);
    assert!(read.to_string().len() < 8 << 20, "{}", read.to_string().len());
    api.delete(&format!("{DEEPS}/a"), &Value::Null).await.ok();
}

#[tokio::test]
async fn what_is_stored_can_be_sent_back_and_deleted() {
    let api = with_deeps().await;
    let filled = |bytes: usize| {
        let mut object = deep("a", &json!({"a": "x".repeat(bytes)}));
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        object
    };
    // The body is small enough; with what the server adds, the object is not.
    check_too_large(&api.post(DEEPS, &filled(BYTES - 300)).await, &BYTES.to_string());
    let stored = api.post(DEEPS, &filled(BYTES - 1000)).await.ok();
    let path = format!("{DEEPS}/a");
    api.put(&path, &stored).await.ok();
    let longer = json!({"metadata": {"annotations": {"a": "x".repeat(2000)}}});
    check_too_large(&api.merge(&path, &longer).await, &BYTES.to_string());
    api.delete(&path, &json!({"propagationPolicy": "Foreground"})).await.ok();
    let marked = api.get(&path).await.ok();
    api.put(&path, &marked).await.ok();
    api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn aliases_cannot_repeat_a_long_text() {
    let api = with_deeps().await;
    let aliases = vec!["*t"; 5_000].join(",");
    let yaml = format!(
        "apiVersion: example.com/v1\nkind: Deep\nmetadata: {{name: a}}\nspec:\n  t: &t {}\n  l: [{aliases}]\n",
        "x".repeat(100_000)
    );
    check_too_large(&api.call("POST", DEEPS, "application/yaml", yaml).await, "bytes");
}

#[tokio::test]
async fn a_body_has_a_bounded_number_of_values() {
    let api = with_deeps().await;
    check_too_large(&api.post(DEEPS, &deep("a", &json!({"l": vec![0; 300_000]}))).await, "250000 values");
    // What the kind fills in counts, too.
    let mut many = pod("a");
    many["spec"]["containers"] = vec![json!({}); 200_000].into();
    check_too_large(&api.post(PODS, &many).await, "250000 values");
}

#[tokio::test]
async fn a_body_in_protobuf_has_a_bounded_number_of_messages() {
    let api = Api::new();
    // A million containers, all of them empty, each of two bytes.
    let spec = message(2, &[2 << 3 | 2, 0].repeat(1_000_000));
    let kind = [message(1, b"v1"), message(2, b"Pod")].concat();
    let body = [b"k8s\0".to_vec(), message(1, &kind), message(2, &spec)].concat();
    let answer = api.call("POST", PODS, "application/vnd.kubernetes.protobuf", body).await;
    assert_eq!((answer.code, answer.reason()), (400, "BadRequest"));
    assert!(answer.message().contains("100000 messages"), "{}", answer.message());
}

#[tokio::test]
async fn errors_do_not_quote_more_than_a_person_can_read() {
    let api = Api::new();
    let mut object = map("a", "x");
    let owner = |n: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": n.to_string(), "uid": "u", "controller": true});
    object["metadata"]["ownerReferences"] = (0..20_000).map(owner).collect();
    let answer = api.post(MAPS, &object).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"));
    assert!(answer.message().len() < 8 << 20, "{}", answer.message().len());
    let api = Api::new();
    let known = json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {"type": "string"}}}});
    api.post(DEFINITIONS, &definition(&known)).await.ok();
    let unknown: serde_json::Map<String, Value> = (0..20_000).map(|n| (n.to_string(), json!(1))).collect();
    let answer = api
        .post(&format!("{DEEPS}?fieldValidation=Strict"), &deep("a", &json!({"x".repeat(100_000): unknown})))
        .await;
    assert_eq!(answer.code, 400);
    assert!(answer.message().len() < 16 << 20, "{}", answer.message().len());
}

#[tokio::test]
async fn schemas_at_the_limit_of_depth_are_taken_and_published() {
    let api = Api::new();
    let lists = (0..90).fold(json!({"type": "string"}), |items, _| json!({"type": "array", "items": items}));
    let objects = (0..45)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    let spec = json!({"type": "object", "properties": {"lists": lists, "objects": objects}});
    api.post(DEFINITIONS, &definition(&spec)).await.ok();
    api.get("/openapi/v3/apis/example.com/v1").await.ok();
    let list = (0..90).fold(json!("x"), |inner, _| json!([inner]));
    let object = (0..45).fold(json!("x"), |inner, _| json!({"a": inner}));
    api.post(DEEPS, &deep("a", &json!({"lists": list, "objects": object}))).await.ok();
    let deeper =
        (0..130).fold(json!({"type": "string"}), |items, _| json!({"type": "array", "items": items}));
    let answer = api.put(&format!("{DEFINITIONS}/deeps.example.com"), &definition(&deeper)).await;
    assert!((400..500).contains(&answer.code), "{}", answer.code);
}

#[tokio::test]
async fn a_body_in_yaml_may_be_as_deep_as_its_reader_allows() {
    let api = with_deeps().await;
    let yaml = |depth: usize| {
        let spec = format!("{}1{}", "{a: ".repeat(depth - 1), "}".repeat(depth - 1));
        format!("apiVersion: example.com/v1\nkind: Deep\nmetadata: {{name: a}}\nspec: {spec}\n")
    };
    let post = async |depth| api.call("POST", DEEPS, "application/yaml", yaml(depth)).await;
    post(48).await.ok();
    for depth in [49, 120, 5_000] {
        let answer = post(depth).await;
        assert_eq!((answer.code, answer.reason()), (400, "BadRequest"), "{depth}: {}", answer.message());
    }
}

/// A field of a message that is itself one.
fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    [out.as_slice(), bytes].concat()
}

#[tokio::test]
async fn a_body_in_protobuf_may_be_as_deep_as_its_reader_allows() {
    let api = Api::new();
    // Schemas within schemas: a JSONSchemaProps has `not` (28), which is one.
    let body = |depth: usize| {
        let schema = (0..depth).fold(Vec::new(), |inner, _| {
            let length = message(0, &inner)[1..].to_vec();
            // The number 28 takes two bytes.
            [vec![0xe2, 0x01], length].concat()
        });
        let version =
            [message(1, b"v1"), vec![2 << 3, 1, 3 << 3, 1], message(4, &message(1, &schema))].concat();
        let names = [message(1, b"deeps"), message(4, b"Deep")].concat();
        let spec =
            [message(1, b"example.com"), message(3, &names), message(4, b"Namespaced"), message(7, &version)]
                .concat();
        let object = [message(1, &message(1, b"deeps.example.com")), message(2, &spec)].concat();
        let kind = [message(1, b"apiextensions.k8s.io/v1"), message(2, b"CustomResourceDefinition")].concat();
        [b"k8s\0".to_vec(), message(1, &kind), message(2, &object)].concat()
    };
    let post =
        async |depth| api.call("POST", DEFINITIONS, "application/vnd.kubernetes.protobuf", body(depth)).await;
    // What is within the bound is read, and refused for what it says; what is beyond is not read.
    for (depth, code) in [(1, 422), (59, 422), (60, 400), (20_000, 400)] {
        let answer = post(depth).await;
        assert_eq!(answer.code, code, "{depth}: {:.300}", answer.message());
    }
}

#[tokio::test]
async fn an_expression_is_bounded_in_length_and_in_nesting() {
    let api = Api::new();
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let post = async |name: &str, expression: String| {
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["*"], "resources": ["configmaps"]}]},
            "validations": [{"expression": expression}]}});
        api.post(policies, &policy).await
    };
    let quoted = |length: usize| format!("'{}' != ''", "x".repeat(length - 8));
    post("longest", quoted(16 * 1024)).await.ok();
    assert_eq!(post("longer", quoted(16 * 1024 + 1)).await.code, 422);
    let brackets = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    post("deepest", brackets(40)).await.ok();
    for depth in [41, 8_000] {
        let answer = post("deeper", brackets(depth)).await;
        assert_eq!(answer.code, 422);
        assert!(answer.message().contains("more than 40 nested brackets"), "{}", answer.message());
    }
}

/// A path is at most 64 KiB long, and what it says may be all of that.
#[tokio::test]
async fn selectors_may_be_as_long_as_a_path() {
    let api = Api::new();
    api.post(MAPS, &map("a", "x")).await.ok();
    let list = async |query: String| api.get(&format!("{MAPS}?{query}")).await;
    let values: Vec<String> = (0..8_000).map(|n| format!("v{n}")).collect();
    assert!(list(format!("labelSelector=a+in+({})", values.join(","))).await.names().is_empty());
    assert_eq!(list(format!("labelSelector=a+notin+({})", values.join(","))).await.names(), ["a"]);
    let terms = vec!["metadata.name!%3Db"; 2_500].join(",");
    assert_eq!(list(format!("fieldSelector={terms}")).await.names(), ["a"]);
    let open = list(format!("labelSelector=a+in+{}", "(".repeat(30_000))).await;
    assert_eq!((open.code, open.reason()), (400, "BadRequest"));
}

/// Each `..` after another multiplies what a column shows.
#[tokio::test]
async fn a_column_cannot_show_more_values_than_can_be_looked_at() {
    let api = Api::new();
    let mut definition = definition(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "One", "type": "string", "jsonPath": ".spec.name"},
        {"name": "Many", "type": "string", "jsonPath": ".spec..a..a..a..a..a..a..a..a..a"},
    ]);
    api.post(DEFINITIONS, &definition).await.ok();
    let mut object = deep_object("a", DEPTH);
    object["spec"]["name"] = "it".into();
    api.post(DEEPS, &object).await.ok();
    let request = http::Request::get(DEEPS).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = api.answer(request.body(http_body_util::Full::default()).unwrap()).await.ok();
    assert_eq!(table["rows"][0]["cells"][1], "it");
}

#[tokio::test]
async fn a_strategic_patch_is_bounded_by_what_it_makes() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/a");
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let strategic = "application/strategic-merge-patch+json";
    let patch = async |body: String| api.call("PATCH", &path, strategic, body).await;
    // The kind drops what it does not have, but only after it was made.
    patch(format!("{{\"x\":{}}}", nested(DEPTH - 1))).await.ok();
    check_too_large(&patch(format!("{{\"x\":{}}}", nested(DEPTH))).await, "119 levels");
    let annotations = |count: usize| {
        let all: serde_json::Map<String, Value> = (0..count).map(|n| (format!("a{n}"), json!(""))).collect();
        json!({"spec": {"template": {"metadata": {"annotations": all}}}})
    };
    check_too_large(&patch(annotations(250_000).to_string()).await, "250000 values");
}

/// The objects of a definition go with it, however deep they are.
#[tokio::test]
async fn a_definition_whose_objects_are_as_deep_as_can_be_is_deleted() {
    let api = with_deeps().await;
    for name in ["a", "b"] {
        api.post(DEEPS, &deep_object(name, DEPTH)).await.ok();
    }
    let mut watch = api.watch(&format!("{DEFINITIONS}?watch=1")).await;
    watch.line().await;
    api.delete(&format!("{DEFINITIONS}/deeps.example.com"), &Value::Null).await.ok();
    while watch.line().await != "DELETED deeps.example.com" {}
    assert_eq!(api.get(DEEPS).await.code, 404);
}

/// Creates ConfigMaps at the same time, each with so many bytes of data and without saying how long it is. None of them
/// ends before one of them was answered, or some time has passed. Gives the codes of the answers.
async fn create_at_once(count: usize, bytes: usize) -> Vec<u16> {
    let api = Api::new();
    let (release, released) = watch::channel(false);
    let create = |number: usize| {
        let object = json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(bytes)}});
        let mut text = Bytes::from(object.to_string());
        let last = text.split_off(text.len() - 1);
        let mut released = released.clone();
        let end = async move {
            released.wait_for(|released| *released).await.unwrap();
            last
        };
        let parts = stream::iter([text]).chain(stream::once(end));
        let body = StreamBody::new(parts.map(|part| Ok::<_, std::io::Error>(Frame::data(part))));
        let request = Request::post(MAPS).header(header::CONTENT_TYPE, "application/json");
        api.server.as_user(User::admin()).oneshot(request.body(body).unwrap())
    };
    let mut creates: FuturesUnordered<_> = (0..count).map(create).collect();
    let first = tokio::time::timeout(Duration::from_secs(1), creates.next()).await;
    release.send_replace(true);
    let answers: Vec<_> = stream::iter(first.ok().flatten()).chain(creates).collect().await;
    answers.into_iter().map(|answer| answer.unwrap().status().as_u16()).collect()
}

#[tokio::test(start_paused = true)]
async fn bodies_of_unknown_length_take_room_once_they_are_not_small() {
    assert_eq!(create_at_once(100, 10).await, [201; 100]);
    // There is room for 21 that may become as long as can be.
    let mut codes = create_at_once(23, 70_000).await;
    codes.sort_unstable();
    assert_eq!((&codes[..21], &codes[21..]), ([201; 21].as_slice(), [429; 2].as_slice()));
}
