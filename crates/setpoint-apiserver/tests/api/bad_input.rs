use serde_json::{Value, json};

use crate::support::{Api, DEPLOYMENTS, MAPS, deployment, map};

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_ignored() {
    let api = Api::new();
    let mut object = deployment("web");
    object["spec"]["replica"] = 3.into();
    object["spec"]["template"]["spec"]["containers"][0]["img"] = "x".into();
    let strict = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), &object).await;
    strict.refused(
        400,
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
         \"spec.replica\", unknown field \"spec.template.spec.containers[0].img\"",
    );
    let ignored = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Ignore&dryRun=All"), &object).await;
    assert!(ignored.headers.get("warning").is_none());
    let warned = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Warn"), &object).await;
    let warnings: Vec<_> = warned.headers.get_all("warning").iter().map(|v| v.to_str().unwrap()).collect();
    assert_eq!(warnings[0], r#"299 - "unknown field \"spec.replica\"""#);
    assert!(warned.ok()["spec"].get("replica").is_none(), "what the kind does not have is dropped");
}

#[tokio::test]
async fn several_problems_come_in_the_order_of_the_text() {
    let api = Api::new();
    let body = r#"{
        "zebra": 1, "kind": "ConfigMap", "apiVersion": "v1", "zebra": 2,
        "data": {"k": "1", "k": "2"},
        "metadata": {"frob": {"a": 1, "a": 2}, "name": "a", "labels": {"x": "1", "x": "2"}, "name": "a"},
        "ant": [], "data": {"k": "3"}
    }"#;
    let problems = [
        r#"unknown field "zebra""#,
        r#"duplicate field "data.k""#,
        r#"unknown field "metadata.frob""#,
        r#"duplicate field "metadata.labels.x""#,
        r#"duplicate field "metadata.name""#,
        r#"unknown field "ant""#,
        r#"duplicate field "data""#,
    ];
    let strict = api.call("POST", &format!("{MAPS}?fieldValidation=Strict"), "application/json", body).await;
    let message = format!(
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {}",
        problems.join(", ")
    );
    strict.refused(400, &message);
    let warned = api.call("POST", MAPS, "application/json", body).await;
    let warnings: Vec<_> =
        warned.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    let expected = problems.map(|problem| format!("299 - \"{}\"", problem.replace('"', "\\\"")));
    assert_eq!(warnings, expected);
}

#[tokio::test]
async fn the_duplicates_of_yaml_come_before_its_unknown_fields() {
    let api = Api::new();
    let body = "zebra: 1\nkind: ConfigMap\napiVersion: v1\nant: 1\nmetadata:\n  name: a\n  name: a\n";
    let strict = api.call("POST", &format!("{MAPS}?fieldValidation=Strict"), "application/yaml", body).await;
    strict.refused(
        400,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal \
         errors:\n  line 7: key \"name\" already set in map, unknown field \"ant\", unknown field \"zebra\"",
    );
}

#[tokio::test]
async fn duplicate_fields_are_found() {
    let api = Api::new();
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}"#;
    let strict = api.call("POST", &format!("{MAPS}?fieldValidation=Strict"), "application/json", body).await;
    strict.refused(
        400,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \
         \"data.k\"",
    );
    let warned = api.call("POST", MAPS, "application/json", body).await;
    assert_eq!(warned.headers["warning"], r#"299 - "duplicate field \"data.k\"""#);
}

#[tokio::test]
async fn wrong_types_are_refused_with_the_field() {
    let api = Api::new();
    let mut object = deployment("web");
    object["spec"]["replicas"] = "three".into();
    let answer = api.post(DEPLOYMENTS, &object).await;
    assert_eq!((answer.code, answer.reason()), (400, "BadRequest"));
    assert!(answer.message().contains("replicas"), "{}", answer.message());
    assert!(answer.message().starts_with("Deployment in version \"v1\" cannot be handled as a Deployment: "));
}

#[tokio::test]
async fn bodies_that_are_not_what_they_claim_are_refused() {
    let api = Api::new();
    for (media, body) in [
        ("application/json", "{"),
        ("application/json", ""),
        ("application/json", "[]"),
        ("application/json", "\u{0}\u{1}"),
        ("application/yaml", "a: [b"),
        ("application/vnd.kubernetes.protobuf", "k8s\u{0}rubbish"),
        ("application/vnd.kubernetes.protobuf", ""),
        ("application/json", r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#),
        ("application/json", r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a"}}"#),
        ("application/json", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":"x"}"#),
        ("application/json", r#"{"kind":5}"#),
    ] {
        let answer = api.call("POST", MAPS, media, body).await;
        assert_eq!((answer.code, answer.reason()), (400, "BadRequest"), "{media} {body:?}: {}", answer.body);
    }
    let answer = api.call("POST", MAPS, "text/html", "<html>").await;
    assert_eq!((answer.code, answer.reason()), (415, "UnsupportedMediaType"));
    let nested = format!("{{\"kind\":\"ConfigMap\",\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(api.call("POST", MAPS, "application/json", nested).await.code, 400);
    assert_eq!(api.get(MAPS).await.names(), [""; 0], "nothing was written");
}

#[tokio::test]
async fn a_body_can_be_too_large() {
    let api = Api::new();
    let huge = map("a", &"x".repeat(3 << 20));
    let answer = api.post(MAPS, &huge).await;
    answer.refused(413, "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn bad_names_are_refused_with_the_rule() {
    let api = Api::new();
    for name in ["UPPER", "a_b", "-a", "a/b", "", &"a".repeat(254)] {
        let answer = api.post(MAPS, &map(name, "x")).await;
        assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{name:?}: {}", answer.body);
        assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.name");
    }
    let answer = api.post(MAPS, &map("UPPER", "x")).await;
    assert_eq!(
        answer.message(),
        "ConfigMap \"UPPER\" is invalid: metadata.name: Invalid value: \"UPPER\": a lowercase RFC 1123 subdomain \
         must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
    let mut object = map("a", "x");
    object["metadata"]["labels"] = json!({"not a key": "v"});
    assert_eq!(api.post(MAPS, &object).await.code, 422);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let api = Api::new();
    for (method, path, code) in [
        ("GET", "/nothing", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/apis/none/v1/things", 404),
        ("GET", "/api/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/frob", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/status/more", 404),
        ("POST", "/api/v1/watch/namespaces/default/pods", 405),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("GET", "/api/v1/namespaces/default/pods/%2e%2e", 404),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("PUT", "/api/v1/namespaces/default/pods", 405),
        ("POST", "/api/v1/namespaces/default/pods/a", 405),
        ("TRACE", "/api/v1/namespaces/default/pods", 405),
        ("POST", "/version", 405),
    ] {
        let answer = api.call(method, path, "application/json", "").await;
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.body);
        assert_eq!(answer.body["kind"], "Status", "{method} {path}");
    }
}

#[tokio::test]
async fn bad_options_are_refused() {
    let api = Api::new();
    for query in ["dryRun=Maybe", "fieldValidation=Loose"] {
        let answer = api.post(&format!("{MAPS}?{query}"), &map("a", "x")).await;
        assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{query}");
    }
    let answer = api.delete(&format!("{MAPS}/a"), &json!({"gracePeriodSeconds": "soon"})).await;
    assert_eq!(answer.code, 400);
    let answer = api.delete(&format!("{MAPS}/a"), &Value::String("x".into())).await;
    assert_eq!(answer.code, 400);
}
