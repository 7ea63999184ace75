//! The same informer against the in-process API server.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use setpoint::{Env, Metrics, ReflectorConfig, Scope, SharedInformer};
use setpoint_apiserver::ApiServer;

use super::script::{cached, words};

struct World {
    server: ApiServer,
    api: Api<ConfigMap>,
    informer: SharedInformer<ConfigMap>,
    metrics: Metrics,
}

impl World {
    async fn new(config: ReflectorConfig) -> World {
        let server = ApiServer::builder().env(Env::seeded(1)).build();
        let client: Client = server.client();
        let api = Api::namespaced(client.clone(), "default");
        let metrics = Metrics::default();
        let informer = super::form(SharedInformer::builder(client)).namespace("default");
        let informer = informer.config(config).env(Env::seeded(2)).metrics(metrics.clone()).build();
        informer.start();
        informer.wait_for_sync().await;
        World { server, api, informer, metrics }
    }

    async fn create(&self, name: &str) {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.api.create(&PostParams::default(), &map).await.unwrap();
    }

    async fn update(&self, name: &str, value: &str) {
        let mut map = self.api.get(name).await.unwrap();
        map.data = Some(BTreeMap::from([("value".to_owned(), value.to_owned())]));
        self.api.replace(name, &PostParams::default(), &map).await.unwrap();
    }

    /// Waits until the cache has got as far as the server, and compares.
    async fn check(&self) {
        let list = self.api.list(&ListParams::default()).await.unwrap();
        let mut newest: Vec<_> = list.iter().map(words).collect();
        newest.sort_unstable();
        let catch_up = async {
            while cached(&self.informer) != newest {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), catch_up).await.expect("the cache catches up");
    }

    async fn changes(&self) {
        self.create("a").await;
        self.create("b").await;
        self.check().await;
        self.update("a", "1").await;
        self.api.delete("b", &DeleteParams::default()).await.unwrap();
        self.check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_follows_the_server_by_a_streaming_list() {
    let world = World::new(ReflectorConfig::default()).await;
    world.changes().await;
    let map = world.api.get("a").await.unwrap();
    let version = map.resource_version().unwrap().as_str().into();
    world.informer.wait_for_version(&Scope::Namespace("default".into()), &version).await;
    assert_eq!(world.informer.lister().namespace("default").get("a").unwrap().metadata.managed_fields, None);
}

#[tokio::test(start_paused = true)]
async fn a_cache_follows_the_server_by_pages() {
    let world =
        World::new(ReflectorConfig { streaming: false, page_size: 1, ..ReflectorConfig::default() }).await;
    world.changes().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_survives_the_end_of_its_watches_and_of_the_servers_memory() {
    let world = World::new(ReflectorConfig::default()).await;
    world.changes().await;
    world.server.end_watches();
    world.update("a", "2").await;
    world.check().await;
    world.server.end_watches();
    for n in 0..5 {
        world.create(&format!("c{n}")).await;
    }
    world.api.delete("a", &DeleteParams::default()).await.unwrap();
    world.server.compact();
    world.check().await;
    let relists = world.metrics.value(
        "informer_relists_total",
        &[("name", "configmaps"), ("namespace", "default"), ("reason", "expired")],
    );
    assert_eq!(relists, Some(1));
}
