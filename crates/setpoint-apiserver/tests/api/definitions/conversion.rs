//! Versions that a webhook converts.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve;
use setpoint_env::{Env, Task};
use tokio::net::TcpListener;

use super::DEFINITIONS;
use crate::support::{Api, version};

const V1: &str = "/apis/example.com/v1/namespaces/default/lamps";
const V2: &str = "/apis/example.com/v2/namespaces/default/lamps";

/// v1 says `spec.color`. v2 says `spec.shade`, and has it as a label, too.
fn convert(mut lamp: Value, wanted: &str) -> Value {
    let (from, to) = if wanted.ends_with("v2") { ("color", "shade") } else { ("shade", "color") };
    let shade = lamp["spec"].as_object_mut().unwrap().remove(from).unwrap();
    if wanted.ends_with("v2") {
        lamp["metadata"]["labels"]["shade"] = shade.clone();
    } else if let Some(labels) = lamp["metadata"]["labels"].as_object_mut() {
        labels.remove("shade");
    }
    lamp["spec"][to] = shade;
    lamp["apiVersion"] = wanted.into();
    lamp
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap();
    let objects = review["request"]["objects"].as_array().unwrap();
    let converted: Vec<_> = objects.iter().map(|lamp| convert(lamp.clone(), wanted)).collect();
    let response = json!({
        "uid": review["request"]["uid"], "convertedObjects": converted, "result": {"status": "Success"}
    });
    let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    Ok(Response::new(Full::new(review.to_string().into())))
}

/// A server with lamps, and the task that converts them.
async fn with_lamps() -> (Api, Task<()>) {
    let env = Env::system();
    let ca = CertificateAuthority::generate(&env).unwrap();
    let tls = ca.server_config(&ca.issue_server(["127.0.0.1"]).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let service = tower::service_fn(answer);
    let webhook = env.spawn(serve::serve(service, listener, tls, serve::Options::default()));
    let version = |name: &str, field: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "string"}}}
            }}}
        })
    };
    let bundle = base64::engine::general_purpose::STANDARD.encode(ca.certificate_pem());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "versions": [version("v1", "color", true), version("v2", "shade", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": bundle}
            }}
        }
    });
    let api = Api::new();
    api.post(DEFINITIONS, &definition).await.ok();
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "green"), ("e", "red")] {
        api.post(V1, &lamp(name, color)).await.ok();
    }
    (api, webhook)
}

fn lamp(name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Lamp",
        "metadata": {"name": name}, "spec": {"color": color}
    })
}

#[tokio::test]
async fn selectors_of_lists_see_the_version_that_is_served() {
    let (api, _webhook) = with_lamps().await;
    for (path, selector, expect) in [
        (V1, "fieldSelector=spec.color%3Dred", "a c e"),
        (V2, "fieldSelector=spec.shade%3Dred", "a c e"),
        (V2, "labelSelector=shade%3Dblue", "b"),
        (V1, "labelSelector=shade%3Dblue", ""),
        (V2, "labelSelector=!shade", ""),
        (V2, "fieldSelector=metadata.name%3Dd", "d"),
    ] {
        let answer = api.get(&format!("{path}?{selector}")).await;
        assert_eq!(answer.names().join(" "), expect, "{path} {selector}");
    }
    let first = api.get(&format!("{V2}?limit=2&labelSelector=shade%3Dred")).await;
    assert_eq!(first.names(), ["a", "c"]);
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{V2}?limit=2&labelSelector=shade%3Dred&continue={token}")).await;
    assert_eq!(second.names(), ["e"]);
    assert_eq!(second.body["items"][0]["spec"], json!({"shade": "red"}));
}

/// Fails instead of waiting for an event that never comes.
async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), event).await.expect("the watch says nothing")
}

#[tokio::test]
async fn selectors_of_watches_see_the_version_that_is_served() {
    let (api, _webhook) = with_lamps().await;
    let at = version(&api.get(V2).await.ok());
    let mut fields = api.watch(&format!("{V2}?watch=true&fieldSelector=spec.shade%3Dred")).await;
    let mut labels =
        api.watch(&format!("{V2}?watch=true&resourceVersion={at}&labelSelector=shade%3Dred")).await;
    for name in ["a", "c", "e"] {
        assert_eq!(soon(fields.line()).await, format!("ADDED {name}"));
    }
    let merge = json!({"spec": {"color": "blue"}});
    api.merge(&format!("{V1}/a"), &merge).await.ok();
    api.post(V1, &lamp("f", "blue")).await.ok();
    api.post(V1, &lamp("g", "red")).await.ok();
    api.delete(&format!("{V1}/c"), &Value::Null).await.ok();
    for watch in [&mut fields, &mut labels] {
        let left = soon(watch.next()).await.unwrap();
        assert_eq!((&left["type"], &left["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("a")));
        assert_eq!(
            left["object"]["spec"],
            json!({"shade": "red"}),
            "as it was, in the version that is watched"
        );
        assert_eq!(soon(watch.line()).await, "ADDED g");
        assert_eq!(soon(watch.line()).await, "DELETED c");
    }
}

#[tokio::test]
async fn a_collection_delete_selects_by_the_version_that_is_served() {
    let (api, _webhook) = with_lamps().await;
    let deleted = api.delete(&format!("{V2}?fieldSelector=spec.shade%3Dred"), &Value::Null).await;
    assert_eq!(deleted.names(), ["a", "c", "e"]);
    assert_eq!(api.get(V1).await.names(), ["b", "d"]);
}
