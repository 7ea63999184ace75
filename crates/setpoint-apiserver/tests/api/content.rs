use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::support::{Answer, Api, MAPS, map, version};

async fn accept(api: &Api, path: &str, accept: &str) -> Answer {
    let request = Request::builder().uri(path).header(header::ACCEPT, accept).body(Full::default()).unwrap();
    api.answer(request).await
}

#[tokio::test]
async fn yaml_goes_in_and_comes_out() {
    let api = Api::new();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: \"1\"\n";
    let created = api.call("POST", MAPS, "application/yaml", yaml).await.ok();
    assert_eq!(created["data"]["key"], "1");
    let answer = accept(&api, &format!("{MAPS}/a"), "application/yaml").await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/yaml");
    let text = answer.body.as_str().expect("yaml is not json").to_owned();
    let back: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(back, created);
}

#[tokio::test]
async fn metadata_alone_can_be_asked_for() {
    let api = Api::new();
    let created = api.post(MAPS, &map("a", "x")).await.ok();
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let one = accept(&api, &format!("{MAPS}/a"), partial).await.ok();
    assert_eq!(
        one,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]})
    );
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let many = accept(&api, MAPS, list).await.ok();
    assert_eq!(many["kind"], "PartialObjectMetadataList");
    assert_eq!(many["items"][0]["metadata"], created["metadata"]);
    assert!(many["items"][0].get("data").is_none());
    assert_eq!(version(&many), version(&created));
}

#[tokio::test]
async fn what_cannot_be_made_is_not_acceptable() {
    let api = Api::new();
    let answer = accept(&api, MAPS, "image/png").await;
    assert_eq!((answer.code, answer.reason()), (406, "NotAcceptable"));
    for fine in [
        "application/json",
        "*/*",
        "application/*",
        "application/vnd.kubernetes.protobuf,application/json",
        "image/png,*/*;q=0.1",
    ] {
        assert_eq!(accept(&api, MAPS, fine).await.code, 200, "{fine}");
    }
}

#[tokio::test]
async fn json_can_be_pretty() {
    let api = Api::new();
    let request =
        Request::builder().uri(format!("{MAPS}?pretty=true")).body(Full::<Bytes>::default()).unwrap();
    let body =
        http_body_util::BodyExt::collect(api.send(request).await.into_body()).await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\n  \""), "{body:?}");
}

#[tokio::test]
async fn failures_are_told_in_the_form_that_was_asked_for() {
    let api = Api::new();
    let ask = async |name: &str, value: &str| {
        let request = Request::get("/api/v1/namespaces/default/pods/none").header(name, value);
        let response = api.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.status(), 404);
        let media = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (media, String::from_utf8_lossy(&text).into_owned())
    };
    let (media, text) = ask("user-agent", "kubectl/v1.37").await;
    assert!(media == "application/json" && text.starts_with("{\"kind\":\"Status\","), "{text}");
    let (media, text) = ask("user-agent", "curl/8.5.0").await;
    assert!(media == "application/json" && text.starts_with("{\n  \"kind\": \"Status\",\n"), "{text}");
    let (media, text) = ask("accept", "application/yaml").await;
    assert!(media == "application/yaml" && text.starts_with("apiVersion: v1\ncode: 404\n"), "{text}");
}
