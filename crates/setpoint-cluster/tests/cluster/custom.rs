//! The collector and kinds that definitions bring, which come and go while it runs.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::core::v1::ConfigMap;
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube::api::{DeleteParams, PostParams, PropagationPolicy};
use setpoint::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use setpoint::kube::{Api, Client, ResourceExt};
use setpoint_cluster::{Cluster, Controllers};
use setpoint_sim::{Match, Swarm, World};

use crate::support::{create, object, until};

const SETTLED: Duration = Duration::from_secs(20);

fn definition(kind: &str, plural: &str) -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    object(json!({
        "metadata": {"name": format!("{plural}.test.dev")},
        "spec": {
            "group": "test.dev", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    }))
}

fn definitions(client: Client) -> Api<CustomResourceDefinition> {
    Api::all(client)
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn customs(client: Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("test.dev", "v1", kind);
    Api::namespaced_with(client, "default", &ApiResource::from_gvk_with_plural(&kind, plural))
}

fn widgets(client: Client) -> Api<DynamicObject> {
    customs(client, "Widget", "widgets")
}

/// Defines a kind, and waits until it is served.
async fn define(client: Client, kind: &str, plural: &str) {
    create(&definitions(client.clone()), &definition(kind, plural)).await;
    let objects = customs(client, kind, plural);
    until("served", async || objects.list(&Default::default()).await.ok().map(drop)).await;
}

fn owned_by(api_version: &str, kind: &str, owner: &impl ResourceExt) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": owner.name_any(), "uid": owner.uid(),
            "blockOwnerDeletion": true}])
}

fn map(name: &str, owners: Value) -> ConfigMap {
    object(json!({"metadata": {"name": name, "ownerReferences": owners}}))
}

async fn widget(api: &Api<DynamicObject>, name: &str, owners: Value) -> DynamicObject {
    let meta = json!({"name": name, "ownerReferences": owners});
    let widget = object(json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": meta}));
    api.create(&PostParams::default(), &widget).await.unwrap()
}

async fn collector() -> Cluster {
    let only = Controllers::parse("garbage-collector").unwrap();
    Cluster::in_process_with(|builder| builder.controllers(only).nodes(0)).await.unwrap()
}

/// A widget owned by a map, and a map owned by that widget: `a` ← `b` ← `c`. And an unconcerned widget.
async fn chain(client: Client) {
    let (maps, widgets) = (maps(client.clone()), widgets(client));
    let a = create(&maps, &map("a", json!([]))).await;
    let b = widget(&widgets, "b", owned_by("v1", "ConfigMap", &a)).await;
    create(&maps, &map("c", owned_by("test.dev/v1", "Widget", &b))).await;
    widget(&widgets, "other", json!([])).await;
}

async fn chain_is_gone(client: Client) {
    let (maps, widgets) = (maps(client.clone()), widgets(client));
    until("a, b and c are gone", async || {
        let is_gone = maps.get_opt("a").await.unwrap().is_none()
            && widgets.get_opt("b").await.unwrap().is_none()
            && maps.get_opt("c").await.unwrap().is_none();
        is_gone.then_some(())
    })
    .await;
    widgets.get("other").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_custom_object_goes_with_its_built_in_owner_and_takes_its_own_dependents_along() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let server = setpoint_apiserver::ApiServer::builder().build();
        define(server.client(), "Widget", "widgets").await;
        let only = Controllers::parse("garbage-collector").unwrap();
        let cluster = Cluster::builder(server.client()).controllers(only).nodes(0).start();
        chain(server.client()).await;
        tokio::time::sleep(SETTLED).await;
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        maps(server.client()).delete("a", &parameters).await.unwrap();
        chain_is_gone(server.client()).await;
        cluster.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_while_the_collector_runs_is_collected_too() {
    let cluster = collector().await;
    tokio::time::sleep(SETTLED).await;
    define(cluster.client(), "Widget", "widgets").await;
    chain(cluster.client()).await;
    tokio::time::sleep(SETTLED).await;
    maps(cluster.client()).delete("a", &DeleteParams::default()).await.unwrap();
    chain_is_gone(cluster.client()).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_objects_of_a_deleted_definition_owned_goes_too() {
    let cluster = collector().await;
    define(cluster.client(), "Widget", "widgets").await;
    define(cluster.client(), "Gadget", "gadgets").await;
    chain(cluster.client()).await;
    let (maps, gadgets) = (maps(cluster.client()), customs(cluster.client(), "Gadget", "gadgets"));
    tokio::time::sleep(SETTLED).await;
    definitions(cluster.client()).delete("widgets.test.dev", &DeleteParams::default()).await.unwrap();
    until("c is gone", async || maps.get_opt("c").await.unwrap().is_none().then_some(())).await;
    maps.get("a").await.unwrap();
    // The collector goes on with the kinds that are left.
    let a = maps.get("a").await.unwrap();
    let gadget = json!({"apiVersion": "test.dev/v1", "kind": "Gadget",
        "metadata": {"name": "g", "ownerReferences": owned_by("v1", "ConfigMap", &a)}});
    gadgets.create(&PostParams::default(), &object(gadget)).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    until("g is gone", async || gadgets.get_opt("g").await.unwrap().is_none().then_some(())).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_again_is_collected_again() {
    let cluster = collector().await;
    define(cluster.client(), "Widget", "widgets").await;
    chain(cluster.client()).await;
    tokio::time::sleep(SETTLED).await;
    let definitions = definitions(cluster.client());
    definitions.delete("widgets.test.dev", &DeleteParams::default()).await.unwrap();
    until("c is gone", async || maps(cluster.client()).get_opt("c").await.unwrap().is_none().then_some(()))
        .await;
    tokio::time::sleep(SETTLED).await;
    maps(cluster.client()).delete("a", &DeleteParams::default()).await.unwrap();
    define(cluster.client(), "Widget", "widgets").await;
    chain(cluster.client()).await;
    tokio::time::sleep(SETTLED).await;
    maps(cluster.client()).delete("a", &DeleteParams::default()).await.unwrap();
    chain_is_gone(cluster.client()).await;
    cluster.stop().await.unwrap();
}

/// The collector sees the deletion of a definition late, or only that everything is gone: what the objects owned
/// goes all the same.
#[test]
fn under_faults_nothing_is_left_of_a_deleted_definition() {
    for seed in 0..20 {
        World::run(seed, async |world| {
            define(world.direct(), "Widget", "widgets").await;
            chain(world.direct()).await;
            let cluster = Cluster::builder(world.client_named("collector"))
                .env(world.env().clone())
                .controllers(Controllers::parse("garbage-collector").unwrap())
                .nodes(0)
                .start();
            tokio::time::sleep(SETTLED).await;
            // Each request and each watch meets something, and events come late.
            world.faults().swarm(Swarm::every(0.1).on(Match::any().client("collector")));
            world.restart_server();
            tokio::time::sleep(Duration::from_millis(world.env().random_range(0..=2_000))).await;
            definitions(world.direct()).delete("widgets.test.dev", &DeleteParams::default()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            world.faults().heal();
            until(&format!("c is gone, seed {seed}"), async || {
                maps(world.direct()).get_opt("c").await.unwrap().is_none().then_some(())
            })
            .await;
            maps(world.direct()).get("a").await.unwrap();
            cluster.stop().await.unwrap();
        });
    }
}
