//! Informers that a process shares.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::core::DynamicObject;
use setpoint::{Env, InformerBuilder, ScopedResource, SharedInformer, SharedInformerFactory};

use super::script::{object, server};

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_the_same_gets_the_same_informer() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1));
    let (one, two) = (factory.informer::<ConfigMap>(), factory.clone().informer::<ConfigMap>());
    let other = factory.informer_with(|builder| builder.label_selector("app=web"));
    let _: &setpoint::SharedInformer<ConfigMap> = &other;
    factory.start();
    factory.start();
    let asked = [server.next().await, server.next().await];
    server.quiet_for(Duration::from_secs(1)).await;
    for asked in asked {
        let items = if asked.param("labelSelector").is_some() { vec![] } else { vec![object("a", 3)] };
        std::mem::forget(asked.stream_list("10", &items));
    }
    factory.wait_for_cache_sync(Duration::from_secs(5)).await.unwrap();
    assert_eq!((one.lister().len(), two.lister().len(), other.lister().len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn two_transforms_of_one_kind_have_a_cache_each() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1));
    let strip = |builder: InformerBuilder<ConfigMap>| builder.transform(strip_data);
    let label = |value: &'static str| {
        factory.informer_with(move |builder: InformerBuilder<ConfigMap>| {
            builder.transform(move |mut map: ConfigMap| {
                map.metadata.labels = Some([("is".to_owned(), value.to_owned())].into());
                map
            })
        })
    };
    let (whole, bare, again) =
        (factory.informer::<ConfigMap>(), factory.informer_with(strip), factory.informer_with(strip));
    // One closure in the source, but not one closure: each has captured something else.
    let (red, blue) = (label("red"), label("blue"));
    factory.start();
    for _ in 0..4 {
        let mut item = object("a", 3);
        item["data"] = serde_json::json!({"key": "value"});
        std::mem::forget(server.next().await.stream_list("10", &[item]));
    }
    server.quiet_for(Duration::from_secs(1)).await;
    factory.wait_for_cache_sync(Duration::from_secs(5)).await.unwrap();
    let get = |informer: &SharedInformer<ConfigMap>| informer.lister().namespace("default").get("a").unwrap();
    assert_eq!((get(&whole).data.is_some(), get(&bare).data.is_some()), (true, false));
    let colour = |informer| get(informer).metadata.labels.as_ref().unwrap()["is"].clone();
    assert_eq!((colour(&red), colour(&blue)), ("red".to_owned(), "blue".to_owned()));
    assert!(std::sync::Arc::ptr_eq(&get(&bare), &get(&again)), "the same function is the same cache");
}

fn strip_data(mut map: ConfigMap) -> ConfigMap {
    map.data = None;
    map
}

#[tokio::test(start_paused = true)]
async fn start_starts_what_was_asked_for_since_the_last_time() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1));
    let _maps = factory.informer::<ConfigMap>();
    factory.start();
    assert_eq!(server.next().await.path, "/api/v1/configmaps");
    let _secrets = factory.metadata::<Secret>();
    factory.start();
    assert_eq!(server.next().await.path, "/api/v1/secrets");
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_in_no_namespace_are_watched_in_the_cluster() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1)).namespace("blue").namespace("red");
    let _typed = factory.informer::<Node>();
    factory.start();
    assert_eq!(server.next().await.path, "/api/v1/nodes");
    let _metadata = factory.dynamic_metadata(&ScopedResource::of::<Node>());
    factory.start();
    assert_eq!(server.next().await.path, "/api/v1/nodes");
    let _dynamic = factory.dynamic(&ScopedResource::of::<Node>());
    factory.start();
    assert_eq!(server.next().await.path, "/api/v1/nodes");
    let _namespaced = factory.informer::<Secret>();
    factory.start();
    let mut paths = [server.next().await.path, server.next().await.path];
    paths.sort();
    assert_eq!(paths, ["/api/v1/namespaces/blue/secrets", "/api/v1/namespaces/red/secrets"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_caches_says_which_have_not_synced_and_why() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1)).namespace("blue");
    let _maps = factory.informer::<ConfigMap>();
    let secrets = ScopedResource::of::<Secret>();
    let dynamic: setpoint::SharedInformer<DynamicObject> = factory.dynamic(&secrets);
    factory.start();
    let script = async {
        let mut open = Vec::new();
        loop {
            let asked = server.next().await;
            if asked.path.ends_with("configmaps") {
                open.push(asked.stream_list("10", &[]));
            } else {
                asked.fail(403, "Forbidden", "secrets is forbidden");
            }
        }
    };
    let wait = factory.wait_for_cache_sync(Duration::from_secs(10));
    let error =
        tokio::select! { biased; result = wait => result.unwrap_err(), () = script => unreachable!() };
    assert_eq!(
        error.to_string(),
        "these caches have not synced: secrets (secrets in namespace blue: the server answered 403 Forbidden: secrets is forbidden)"
    );
    assert!(!dynamic.has_synced());
    assert_eq!(
        factory.synced_by_kind(),
        [("configmaps".to_owned(), true), ("secrets".to_owned(), false)].into()
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_every_informer() {
    let (client, mut server) = server();
    let factory = SharedInformerFactory::new(client).env(Env::seeded(1));
    let _maps = factory.informer::<ConfigMap>();
    factory.start();
    let watch = server.next().await.stream_list("10", &[]);
    factory.wait_for_cache_sync(Duration::from_secs(5)).await.unwrap();
    factory.shutdown().await;
    assert!(!watch.is_open());
}
