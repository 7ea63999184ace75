//! What is particular to informers that ask for protobuf.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{
    Env, InformerBuilder, Metrics, Object, ReflectorConfig, ScopedResource, SharedInformer,
    SharedInformerFactory,
};
use setpoint_apiserver::ApiServer;
use setpoint_kinds::protobuf;

use super::script::{Server, builder, cached, json_server, object, plain, server};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn accept(server: &mut Server) -> String {
    server.next().await.headers["accept"].to_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn built_in_kinds_are_asked_for_in_protobuf_and_others_in_json() {
    let (client, mut server) = server();
    let config = ReflectorConfig { protobuf: true, ..ReflectorConfig::default() };
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1)).config(config);
    factory.informer::<ConfigMap>().start();
    assert_eq!(accept(&mut server).await, format!("{PROTOBUF},application/json"));
    let widgets = ApiResource {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    };
    let widgets = ScopedResource::namespaced(widgets);
    factory.dynamic(&widgets).start();
    assert_eq!(accept(&mut server).await, "application/json");
    factory.dynamic_metadata(&widgets).start();
    let partial = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(
        accept(&mut server).await,
        format!("{PROTOBUF};{partial},application/json;{partial},application/json")
    );
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_may_answer_in_json_now_and_in_protobuf_then() {
    let (client, mut server) = json_server();
    let informer = builder(client).config(plain()).build();
    informer.start();
    server.next().await.list("10", &[object("a", 3), object("b", 4)]);
    let watch = server.next().await.watch();
    watch.event("ADDED", &object("c", 11));
    informer.wait_for_version(&setpoint::Scope::Cluster, &"11".into()).await;
    watch.close();
    let mut frame = Vec::new();
    let changed = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "a", "namespace": "default", "uid": "a", "resourceVersion": "12"}});
    protobuf::append_event("MODIFIED", &protobuf::encode(&changed).unwrap(), &mut frame);
    server.next().await.answer(
        200,
        &[("content-type", "application/vnd.kubernetes.protobuf;stream=watch")],
        frame,
    );
    informer.wait_for_version(&setpoint::Scope::Cluster, &"12".into()).await;
    assert_eq!(cached(&informer), ["a@12", "b@4", "c@11"]);
    let a = informer.lister().namespace("default").get("a").unwrap();
    assert_eq!(a.data.as_ref().unwrap()["k"], "v");
}

/// The reports of an informer that has the object `a`, whose watch is answered with these bytes.
async fn reports(body: Vec<u8>) -> (Vec<String>, Vec<String>) {
    let (client, mut server) = server();
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = told.clone();
    let informer = builder(client).config(plain()).on_error(move |error| told.lock().push(error.to_string()));
    let informer = informer.build();
    informer.start();
    server.next().await.list("10", &[object("a", 3)]);
    server.next().await.answer(200, &[("content-type", PROTOBUF)], body);
    server.next().await;
    let reports = reports.lock().clone();
    (reports, cached(&informer))
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_and_what_is_no_frame_are_reported_and_the_cache_stays() {
    for (body, words) in [
        (b"\0\0\0\x20\x0a\x05ADDED".to_vec(), "in the middle of a frame"),
        (b"<html>not today</html>".to_vec(), "not a watch event: <html>not today</html>"),
        (b"\0\0\0\x07nothing".to_vec(), "not a watch event: nothing"),
    ] {
        let (reports, cached) = reports(body).await;
        assert!(reports.len() == 1 && reports[0].contains(words), "{reports:?}");
        assert_eq!(cached, ["a@3"]);
    }
}

/// A frame with an object of these bytes.
fn frame(kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut body = protobuf::Envelope::start("v1", "ConfigMap", raw.len());
    body.extend_from_slice(raw);
    body.extend_from_slice(protobuf::Envelope::END);
    let mut frame = Vec::new();
    protobuf::append_event(kind, &body, &mut frame);
    frame
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_skipped_and_reported() {
    // Its data are a number.
    let bad = frame("ADDED", b"\x0a\x0a\x0a\x01b\x1a\x01n\x32\x0211\x10\x07");
    let good = frame("ADDED", b"\x0a\x0a\x0a\x01c\x1a\x01n\x32\x0212");
    // In two parts, which nobody writes, and with a field that nobody knows.
    let odd = frame("ADDED", b"\x0a\x06\x0a\x01d\x1a\x01n\x0a\x04\x32\x0213\xf8\x07\x01");
    let (reports, cached) = reports([bad, good, odd].concat()).await;
    assert_eq!(reports, ["configmaps: skipped n/b: wrong wire type 0 of field ConfigMap.data"]);
    assert_eq!(cached, ["a@3", "c@12", "d@13"]);
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"empty": ""}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"port": "http", "path": "/"}},
            }],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

/// What an informer with these settings caches, once it has all of it.
async fn caches<K, T>(
    client: &Client,
    set: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K, T>,
) -> Arc<T>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
    T: Object,
{
    let informer = set(SharedInformer::<K>::builder(client.clone()).env(Env::seeded(2))).build();
    informer.start();
    informer.wait_for_sync().await;
    let objects = informer.lister().list();
    informer.shutdown().await;
    assert_eq!(objects.len(), 1);
    objects[0].clone()
}

async fn with_pod() -> (ApiServer, Client) {
    let server = ApiServer::builder().env(Env::seeded(1)).build();
    let client: Client = server.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod()).unwrap()).await.unwrap();
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_is_the_same_in_all_forms() {
    let (_server, client) = with_pod().await;
    let expected = caches::<Pod, _>(&client, |builder| builder).await;
    assert_eq!(expected.spec.as_ref().unwrap().termination_grace_period_seconds, Some(0));
    for streaming in [true, false] {
        let config = ReflectorConfig { streaming, ..ReflectorConfig::default() };
        let set = |builder: InformerBuilder<Pod>| builder.config(config.clone()).protobuf();
        assert_eq!(caches(&client, set).await, expected);
        assert_eq!(caches(&client, |builder| set(builder).eager()).await, expected);
        assert_eq!(caches(&client, |builder| set(builder).compact()).await, expected);
        let without_spec = |mut pod: Pod| {
            pod.spec = None;
            pod
        };
        let transformed = caches(&client, |builder| set(builder).transform(without_spec)).await;
        assert_eq!(*transformed, without_spec((*expected).clone()));
    }
    let managed = |pod: &Pod| pod.metadata.managed_fields.clone();
    assert_eq!(managed(&expected), None);
    let kept = caches::<Pod, _>(&client, |builder| builder.keep_managed_fields()).await;
    assert_eq!(caches::<Pod, _>(&client, |builder| builder.keep_managed_fields().protobuf()).await, kept);
    assert!(managed(&kept).is_some());
}

#[tokio::test(start_paused = true)]
async fn less_is_received_than_in_json() {
    let (_server, client) = with_pod().await;
    let mut received = Vec::new();
    for asks in [false, true] {
        let metrics = Metrics::default();
        let config = ReflectorConfig { protobuf: asks, ..ReflectorConfig::default() };
        caches::<Pod, _>(&client, |builder| builder.config(config).metrics(metrics.clone())).await;
        let labels = [("name", "pods"), ("namespace", "")];
        received.push(metrics.value("informer_received_bytes_total", &labels).unwrap());
    }
    let [json, protobuf] = received[..] else { unreachable!("two were asked") };
    assert!(protobuf > 100 && protobuf * 4 < json * 3, "{protobuf} bytes, {json} in JSON");
}

#[tokio::test(start_paused = true)]
async fn metadata_and_objects_without_a_type_are_the_same_as_in_json() {
    let (_server, client) = with_pod().await;
    let set = |builder: InformerBuilder<PartialObjectMeta<Pod>>| builder;
    let expected = caches(&client, set).await;
    let read = caches(&client, |builder: InformerBuilder<PartialObjectMeta<Pod>>| builder.protobuf()).await;
    assert_eq!((&read.types, &read.metadata), (&expected.types, &expected.metadata));
    assert_eq!(read.metadata.labels.as_ref().unwrap()["app"], "web");
    let pods = ScopedResource::of::<Pod>();
    let mut objects = Vec::new();
    for asks in [false, true] {
        let builder = SharedInformer::<DynamicObject>::dynamic(client.clone(), &pods).env(Env::seeded(2));
        let informer = if asks { builder.protobuf() } else { builder }.build();
        informer.start();
        informer.wait_for_sync().await;
        objects.push(informer.lister().list()[0].clone());
    }
    assert_eq!(objects[0], objects[1]);
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_are_read_without_the_object() {
    let (_server, client) = with_pod().await;
    let seen = Arc::new(Mutex::new(None));
    let told = seen.clone();
    let informer = SharedInformer::<Pod>::builder(client).env(Env::seeded(2)).protobuf().build();
    let handler = setpoint::HandlerFns::new().on_add(move |pod: &setpoint::Held<Pod>, _| {
        *told.lock() = Some((pod.meta().clone(), pod.uid()));
    });
    let handler = informer.add_handler(handler);
    informer.start();
    tokio::time::timeout(Duration::from_secs(60), handler.wait_for_sync()).await.unwrap();
    let (meta, uid) = seen.lock().take().unwrap();
    assert_eq!(meta, informer.lister().list()[0].metadata);
    assert!(meta.uid == uid && uid.is_some() && meta.managed_fields.is_none());
}
