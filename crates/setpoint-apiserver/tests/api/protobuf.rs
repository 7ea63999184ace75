//! Answers in protobuf.

use bytes::{Buf, Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::Body;
use setpoint_kinds::protobuf::{self, Envelope};

use crate::definitions::{DEFINITIONS, FOOS, definition};
use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What client-go sends.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";

/// A request with any Accept and a JSON body: the code, the media type and the bytes of the answer.
async fn ask(api: &Api, method: &str, path: &str, accept: &str, body: &Value) -> (u16, String, Bytes) {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, accept)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .unwrap();
    let response = api.send(request).await;
    let media = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    (response.status().as_u16(), media, response.into_body().collect().await.unwrap().to_bytes())
}

/// The same with client-go's Accept; the answer must be protobuf.
async fn call(api: &Api, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (code, media, body) = ask(api, method, path, BOTH, body).await;
    assert_eq!(media, PROTOBUF, "{method} {path}: {body:?}");
    (code, protobuf::decode(&body).unwrap().value)
}

#[tokio::test]
async fn objects_are_the_same_in_protobuf_and_in_json() {
    let api = Api::new();
    for (path, object) in [
        (MAPS, map("a", "x")),
        (PODS, pod("a")),
        (DEPLOYMENTS, deployment("a")),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            json!({
                "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
                "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
            }),
        ),
    ] {
        let one = format!("{path}/a");
        let (code, created) = call(&api, "POST", path, &object).await;
        assert_eq!(code, 201);
        assert_eq!(created, api.get(&one).await.ok());
        assert_eq!(call(&api, "GET", &one, &Value::Null).await, (200, created.clone()));
        let mut changed = created.clone();
        changed["metadata"]["labels"] = json!({"x": "y"});
        let (code, updated) = call(&api, "PUT", &one, &changed).await;
        assert_eq!((code, &updated), (200, &api.get(&one).await.ok()));
        assert_eq!(updated["metadata"]["labels"]["x"], "y");
        let (code, deleted) =
            call(&api, "DELETE", &format!("{one}?gracePeriodSeconds=0"), &Value::Null).await;
        assert_eq!(code, 200, "{deleted}");
    }
}

#[tokio::test]
async fn what_a_dry_run_would_write_is_answered_in_protobuf() {
    let api = Api::new();
    let (code, made) = call(&api, "POST", &format!("{MAPS}?dryRun=All"), &map("a", "x")).await;
    assert_eq!((code, &made["data"]["key"]), (201, &json!("x")));
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn lists_are_one_message_however_long_they_are() {
    let api = Api::new();
    for at in 0..40 {
        api.post(MAPS, &map(&format!("map-{at:02}"), &"x".repeat(20_000))).await.ok();
    }
    for query in ["", "?limit=7", "?labelSelector=none"] {
        let path = format!("{MAPS}{query}");
        let (code, mut list) = call(&api, "GET", &path, &Value::Null).await;
        if list["items"].is_null() {
            // On the wire, a list without items is as none.
            list["items"] = json!([]);
        }
        assert_eq!((code, &list), (200, &api.get(&path).await.ok()), "{query}");
    }
}

#[tokio::test]
async fn a_list_of_more_than_is_kept_is_whole() {
    let api = Api::new();
    for at in 0..20 {
        api.post(MAPS, &map(&format!("map-{at:02}"), &"x".repeat(1_000_000))).await.ok();
    }
    let (code, list) = call(&api, "GET", MAPS, &Value::Null).await;
    assert_eq!((code, &list), (200, &api.get(MAPS).await.ok()));
}

#[tokio::test]
async fn failures_are_told_in_protobuf() {
    let api = Api::new();
    let (code, status) = call(&api, "GET", &format!("{MAPS}/none"), &Value::Null).await;
    assert_eq!((code, &status), (404, &api.get(&format!("{MAPS}/none")).await.body));
    assert_eq!(status["details"]["name"], "none");
    let (code, status) = call(&api, "POST", MAPS, &map("Bad Name", "x")).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
}

#[tokio::test]
async fn metadata_alone_can_be_asked_for_of_every_kind() {
    let api = Api::new();
    api.post(DEFINITIONS, &definition()).await.ok();
    let foo = json!({"apiVersion": "samplecontroller.example.com/v1alpha1", "kind": "Foo", "metadata": {"name": "a"}});
    for (path, object) in [(MAPS, map("a", "x")), (FOOS, foo)] {
        let created = api.post(path, &object).await.ok();
        let name = created["metadata"]["name"].as_str().unwrap();
        for version in ["v1", "v1beta1"] {
            let accept = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v={version}");
            let (code, media, body) = ask(&api, "GET", &format!("{path}/a"), &accept, &Value::Null).await;
            assert_eq!((code, media.as_str()), (200, PROTOBUF));
            let envelope = Envelope::parse(&body).unwrap();
            assert_eq!(envelope.kind, "PartialObjectMetadata");
            assert_eq!(envelope.api_version, format!("meta.k8s.io/{version}"));
            assert!(envelope.raw.windows(name.len()).any(|text| text == name.as_bytes()));
            let list = accept.replace("Metadata;", "MetadataList;");
            let (code, _, body) = ask(&api, "GET", path, &list, &Value::Null).await;
            let envelope = Envelope::parse(&body).unwrap();
            assert_eq!((code, envelope.kind), (200, "PartialObjectMetadataList"));
            // The items are the second field in v1 and the first in v1beta1.
            let first = if version == "v1" { 0x0a } else { 0x12 };
            assert_eq!(envelope.raw[0], first);
        }
    }
}

#[tokio::test]
async fn custom_resources_have_no_protobuf_form() {
    let api = Api::new();
    api.post(DEFINITIONS, &definition()).await.ok();
    let (code, media, body) = ask(&api, "GET", FOOS, PROTOBUF, &Value::Null).await;
    assert_eq!((code, media.as_str()), (406, PROTOBUF));
    let status = protobuf::decode(&body).unwrap().value;
    assert_eq!(
        (status["reason"].as_str(), status["message"].as_str()),
        (
            Some("NotAcceptable"),
            Some(
                "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf"
            )
        )
    );
    let (code, media, _) = ask(&api, "GET", FOOS, BOTH, &Value::Null).await;
    assert_eq!((code, media.as_str()), (200, "application/json"));
}

#[tokio::test]
async fn tables_are_text() {
    let api = Api::new();
    let table = ";as=Table;g=meta.k8s.io;v=v1";
    let (code, media, _) =
        ask(&api, "GET", MAPS, &format!("{PROTOBUF}{table},application/json{table}"), &Value::Null).await;
    assert_eq!((code, media.as_str()), (200, "application/json"));
    let (code, ..) = ask(&api, "GET", MAPS, &format!("{PROTOBUF}{table}"), &Value::Null).await;
    assert_eq!(code, 406);
}

/// Reads the frames of a watch.
struct Frames {
    body: Body,
    pending: BytesMut,
}

impl Frames {
    async fn open(api: &Api, path: &str) -> Frames {
        let accept = "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch";
        let request = Request::builder().uri(path).header(header::ACCEPT, accept);
        let response = api.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], format!("{PROTOBUF};stream=watch"));
        Frames { body: response.into_body(), pending: BytesMut::new() }
    }

    /// The type and the object of the next event.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some(length) =
                self.pending.first_chunk().map(|length| u32::from_be_bytes(*length) as usize)
                && self.pending.len() >= 4 + length
            {
                self.pending.advance(4);
                return event(&self.pending.split_to(length));
            }
            let frame = self.body.frame().await.expect("the watch goes on").expect("bodies never fail");
            self.pending.extend_from_slice(&frame.into_data().expect("there are no trailers"));
        }
    }
}

/// Takes a WatchEvent apart: its type, and the body in its extension.
fn event(message: &[u8]) -> (String, Value) {
    let (&[0x0a, length], rest) = message.split_first_chunk().unwrap() else {
        panic!("no type: {message:?}")
    };
    let (kind, rest) = rest.split_at(length.into());
    assert_eq!(rest[0], 0x12);
    let body = rest.windows(4).position(|window| window == protobuf::MAGIC).expect("the object is a body");
    let object = protobuf::decode(&rest[body..]).unwrap().value;
    (String::from_utf8(kind.to_vec()).unwrap(), object)
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_a_stream_of_frames() {
    let api = Api::new();
    let first = api.post(MAPS, &map("a", "1")).await.ok();
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    let (mut one, mut other) = (Frames::open(&api, &path).await, Frames::open(&api, &path).await);
    for watch in [&mut one, &mut other] {
        assert_eq!(watch.next().await, ("ADDED".to_owned(), first.clone()));
        let (kind, bookmark) = watch.next().await;
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(bookmark["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    }
    let second = api.put(&format!("{MAPS}/a"), &map("a", "2")).await.ok();
    let deleted = api.delete(&format!("{MAPS}/a"), &json!({})).await;
    assert_eq!(deleted.code, 200);
    for watch in [&mut one, &mut other] {
        assert_eq!(watch.next().await, ("MODIFIED".to_owned(), second.clone()));
        let (kind, object) = watch.next().await;
        assert_eq!((kind.as_str(), &object["data"]), ("DELETED", &second["data"]));
        assert!(object["metadata"]["resourceVersion"] != second["metadata"]["resourceVersion"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_deleted_in_its_last_state() {
    let api = Api::new();
    let watched = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    api.post(MAPS, &map("a", "1")).await.ok();
    let before = api.merge(&format!("{MAPS}/a"), &watched("web")).await.ok();
    let mut watch = Frames::open(&api, &format!("{MAPS}?watch=1&labelSelector=app=web")).await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), before.clone()));
    let after = api.merge(&format!("{MAPS}/a"), &watched("db")).await.ok();
    let (kind, object) = watch.next().await;
    assert_eq!((kind.as_str(), &object["metadata"]["labels"]["app"]), ("DELETED", &json!("web")));
    assert_eq!(object["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_past_is_told_in_protobuf_that_it_is_gone() {
    let api = Api::new();
    let first = api.post(MAPS, &map("a", "1")).await.ok();
    api.post(MAPS, &map("b", "1")).await.ok();
    api.server.compact();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let accept = "application/vnd.kubernetes.protobuf;stream=watch";
    let (code, media, body) =
        ask(&api, "GET", &format!("{MAPS}?watch=1&resourceVersion={version}"), accept, &Value::Null).await;
    // Either at once, or as the only event of the watch.
    let status = if media == PROTOBUF { protobuf::decode(&body).unwrap().value } else { event(&body[4..]).1 };
    assert_eq!((status["code"].as_u64(), &status["reason"]), (Some(410), &json!("Expired")), "{code}");
}
