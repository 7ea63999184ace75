//! What an informer caches, and how it is set up.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use serde_json::json;
use setpoint::{Env, Metrics, Object, Scope, SharedInformer, SharedInformerFactory};
use tokio::time::{Instant, sleep};

use super::script::{builder, cached, object, plain, server, settle, start};

#[tokio::test(start_paused = true)]
async fn a_bookmark_alone_moves_the_watermark() {
    let (client, mut server) = server();
    let (informer, metrics) = start(client);
    let watch = server.next().await.stream_list("10", &[object("a", 3)]);
    informer.wait_for_sync().await;
    watch.bookmark("25");
    informer.wait_for_version(&Scope::Cluster, &"25".into()).await;
    let labels = [("name", "configmaps"), ("namespace", "")];
    assert_eq!(metrics.value("informer_store_resource_version", &labels), Some(25));
    assert_eq!(metrics.value("informer_store_objects", &[("name", "configmaps")]), Some(1));
}

#[tokio::test(start_paused = true)]
async fn what_arrives_together_becomes_visible_together() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.stream_list("10", &[]);
    informer.wait_for_sync().await;
    let objects: Vec<_> = (11..21).map(|version| object(&format!("o{version}"), version)).collect();
    watch.events("ADDED", &objects);
    loop {
        let (objects, version) =
            informer.lister().view(|view| (view.len(), view.watermark(&Scope::Cluster).cloned()));
        if objects > 0 {
            assert_eq!((objects, version), (10, Some("20".into())));
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_stand_behind_one_lister_each_with_its_watermark() {
    let (client, mut server) = server();
    let informer = builder(client).namespace("red").namespace("blue").build();
    informer.start();
    let mut watches = Vec::new();
    for version in ["10", "20"] {
        let asked = server.next().await;
        let namespace = asked.path.split('/').nth(4).unwrap().to_owned();
        assert!(!informer.has_synced());
        let mut item = object("a", 3);
        item["metadata"]["namespace"] = json!(namespace);
        watches.push((namespace, version, asked.stream_list(version, &[item])));
        settle().await;
    }
    assert!(informer.has_synced());
    for (namespace, version, _) in &watches {
        assert_eq!(informer.watermark(&Scope::Namespace(namespace.as_str().into())), Some((*version).into()));
        assert_eq!(informer.lister().namespace(namespace).list().len(), 1);
    }
    // A list of one namespace says nothing about the other.
    let (namespace, _, watch) = &watches[0];
    watch.error(410, "Expired", "too old");
    let _watch = server.next().await.stream_list("30", &[]);
    settle().await;
    assert!(informer.lister().namespace(namespace).list().is_empty());
    assert_eq!(informer.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn selectors_are_the_servers_business() {
    let (client, mut server) = server();
    let informer =
        builder(client).label_selector("app=web").field_selector("metadata.name=a").namespace("blue").build();
    informer.start();
    let asked = server.next().await;
    assert_eq!(asked.path, "/api/v1/namespaces/blue/configmaps");
    assert_eq!(asked.param("labelSelector"), Some("app=web"));
    assert_eq!(asked.param("fieldSelector"), Some("metadata.name=a"));
}

#[tokio::test(start_paused = true)]
async fn a_metadata_informer_asks_for_metadata_only() {
    let (client, mut server) = server();
    let informer =
        SharedInformer::<PartialObjectMeta<ConfigMap>>::builder(client).env(Env::seeded(1)).build();
    informer.start();
    let asked = server.next().await;
    let accept = asked.headers["accept"].to_str().unwrap().to_owned();
    assert!(accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), "{accept}");
    let mut item = object("a", 3);
    (item["apiVersion"], item["kind"]) = (json!("meta.k8s.io/v1"), json!("PartialObjectMetadata"));
    let _watch = asked.stream_list("10", &[item]);
    informer.wait_for_sync().await;
    assert_eq!(informer.lister().namespace("default").get("a").unwrap().meta().uid.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_informer_knows_what_its_objects_are() {
    let (client, mut server) = server();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
    let resource = setpoint::ScopedResource::namespaced(resource);
    let informer = SharedInformer::<DynamicObject>::dynamic(client, &resource).env(Env::seeded(1)).build();
    informer.start();
    assert_eq!(informer.name(), "foos.example.com");
    let asked = server.next().await;
    assert_eq!(asked.path, "/apis/example.com/v1/foos");
    let mut item = object("a", 3);
    item["spec"] = json!({"replicas": 3});
    let _watch = asked.stream_list("10", &[item]);
    informer.wait_for_sync().await;
    let foo = informer.lister().namespace("default").get("a").unwrap();
    assert_eq!(foo.types.as_ref().unwrap().kind, "Foo");
    assert_eq!(foo.data["spec"]["replicas"], 3);
}

/// What one program wants to know about a config map.
struct KeyCount {
    metadata: ObjectMeta,
    keys: usize,
}

impl Object for KeyCount {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn a_transform_makes_what_is_cached_and_runs_once_an_object() {
    let (client, mut server) = server();
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    let informer = builder(client)
        .transform(move |map: ConfigMap| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            KeyCount { metadata: map.metadata, keys: map.data.map_or(0, |data| data.len()) }
        })
        .build();
    informer.start();
    let mut item = object("a", 3);
    item["data"] = json!({"x": "1", "y": "2"});
    let watch = server.next().await.stream_list("10", &[item]);
    informer.wait_for_sync().await;
    assert_eq!(informer.lister().namespace("default").get("a").unwrap().keys, 2);
    watch.bookmark("11");
    settle().await;
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn trimmed_objects_are_read_as_what_is_left() {
    let (client, mut server) = server();
    let informer = builder(client).trim(|map| map.data = None).build();
    informer.start();
    let mut item = object("a", 3);
    (item["data"], item["immutable"]) = (json!({"x": "1"}), json!(true));
    let _watch = server.next().await.stream_list("10", &[item]);
    informer.wait_for_sync().await;
    let map = informer.lister().namespace("default").get("a").unwrap();
    assert_eq!((map.partial().data.as_ref(), map.partial().immutable), (None, Some(true)));
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_added_late_has_what_is_cached() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.stream_list("10", &[object("a", 3)]);
    informer.wait_for_sync().await;
    informer.add_index("uid", |map: &ConfigMap| map.metadata.uid.clone().into_iter().collect()).unwrap();
    watch.event("ADDED", &object("b", 11));
    settle().await;
    let lister = informer.lister();
    assert_eq!(lister.index_values("uid").unwrap(), ["a", "b"]);
    assert_eq!(lister.by_index("uid", "b").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_informer_asks_nothing_and_stays_readable() {
    let (client, mut server) = server();
    let (informer, _) = start(client);
    let watch = server.next().await.stream_list("10", &[object("a", 3)]);
    informer.wait_for_sync().await;
    informer.shutdown().await;
    assert!(!watch.is_open());
    informer.start();
    server.quiet_for(Duration::from_secs(3600)).await;
    assert_eq!(cached(&informer), ["a@3"]);
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_what_came_and_why_it_was_listed_again() {
    let (client, mut server) = server();
    let metrics = Metrics::default();
    let informer = builder(client).metrics(metrics.clone()).build();
    informer.start();
    let watch = server.next().await.stream_list("10", &[object("a", 3)]);
    watch.event("MODIFIED", &object("a", 11));
    watch.error(410, "Expired", "too old");
    let _watch = server.next().await.stream_list("20", &[]);
    settle().await;
    let text = metrics.render();
    for line in [
        r#"informer_events_total{name="configmaps",namespace="",type="modified"} 1"#,
        r#"informer_relists_total{name="configmaps",namespace="",reason="expired"} 1"#,
        r#"informer_queued_items{name="configmaps",namespace=""} 0"#,
        r#"informer_store_objects{name="configmaps"} 0"#,
        "# TYPE informer_received_bytes counter",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// How old a cache of config maps is, in whole seconds, as the metrics say.
fn age(metrics: &Metrics) -> Option<u64> {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix("setpoint_cache_age_seconds{"))?;
    let (_, seconds) = line.rsplit_once(' ')?;
    Some(seconds.parse::<f64>().unwrap().round() as u64)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_and_says_nothing_makes_no_cache_younger() {
    let (client, mut server) = server();
    let metrics = Metrics::default();
    let informer = builder(client).config(plain()).metrics(metrics.clone()).build();
    informer.start();
    settle().await;
    assert_eq!(age(&metrics), None);
    server.next().await.list("10", &[object("a", 3)]);
    let asked = server.next().await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(age(&metrics), Some(20), "since the list");
    let watch = asked.watch();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(age(&metrics), Some(40), "nothing came on the watch");
    watch.bookmark("11");
    let heard = Instant::now();
    settle().await;
    assert_eq!(age(&metrics), Some(0));
    watch.close();
    let refused = server.next().await.in_pieces(500);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(age(&metrics), Some(heard.elapsed().as_secs()), "nothing but trouble");
    refused.close();
    let watch = server.next().await.watch();
    sleep(Duration::from_secs(20)).await;
    let waited = heard.elapsed().as_secs_f64().round() as u64;
    assert_eq!(age(&metrics), Some(waited));
    watch.event("ADDED", &object("b", 12));
    settle().await;
    assert_eq!(age(&metrics), Some(0));
}

#[tokio::test(start_paused = true)]
async fn of_two_caches_of_a_kind_the_age_of_the_older_is_shown() {
    let metrics = Metrics::default();
    let start = |labels: &str| {
        let (client, server) = server();
        let informer =
            builder(client).config(plain()).label_selector(labels).metrics(metrics.clone()).build();
        informer.start();
        (informer, server)
    };
    let (_one, mut first) = start("tier=front");
    first.next().await.list("10", &[]);
    let one_watch = first.next().await.watch();
    sleep(Duration::from_secs(20)).await;
    let (two, mut second) = start("tier=back");
    settle().await;
    assert_eq!(age(&metrics), Some(20), "the other has not heard anything");
    second.next().await.list("10", &[]);
    let _two_watch = second.next().await.watch();
    settle().await;
    assert_eq!(age(&metrics), Some(20));
    one_watch.bookmark("11");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(age(&metrics), Some(5));
    two.shutdown().await;
    drop(two);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(age(&metrics), Some(10), "the one that stays");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_named_twice_is_watched_once_and_no_name_is_all_of_them() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1)).config(plain());
    let twice = factory.clone().namespace("default").namespace("default").informer::<ConfigMap>();
    twice.start();
    let asked = server.next().await;
    assert_eq!(asked.path, "/api/v1/namespaces/default/configmaps");
    server.quiet_for(Duration::from_secs(30)).await;
    let all = factory.namespace("").informer::<ConfigMap>();
    all.start();
    assert_eq!(server.next().await.path, "/api/v1/configmaps");
}
