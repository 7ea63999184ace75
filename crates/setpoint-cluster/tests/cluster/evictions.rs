//! Pods that have to go: by a taint, with their node, or as far as a budget allows.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::k8s_openapi::api::core::v1::{Node, Pod, ReplicationController};
use setpoint::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use setpoint::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use setpoint::kube::{self, ResourceExt};
use setpoint_cluster::Cluster;
use setpoint_sim::World;

use crate::support::{create, events, field, object, phase, pod, pods, until};

async fn taint(cluster: &Cluster, node: &str, taints: Value) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let patch = json!({"spec": {"taints": taints}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn is_there(cluster: &Cluster, name: &str) -> bool {
    let pod = pods(cluster.client()).get_opt(name).await.unwrap();
    pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
}

#[tokio::test(start_paused = true)]
async fn a_taint_drives_pods_away_when_their_patience_is_over() {
    let cluster = Cluster::in_process().await.unwrap();
    let tolerating = |seconds: Option<i64>| json!({"tolerations": [{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]});
    create(&pods(cluster.client()), &pod("plain", json!({}), json!({}))).await;
    create(&pods(cluster.client()), &pod("patient", json!({}), tolerating(Some(60)))).await;
    create(&pods(cluster.client()), &pod("stoic", json!({}), tolerating(None))).await;
    for name in ["plain", "patient", "stoic"] {
        phase(&cluster, name, "Running").await;
    }
    let gone = json!([{"key": "gone", "effect": "NoExecute"}]);
    taint(&cluster, "node-1", gone.clone()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!is_there(&cluster, "plain").await && is_there(&cluster, "patient").await);
    let told = events(&cluster, "plain").await;
    let note = "Marking for deletion Pod default/plain".to_owned();
    assert!(told.contains(&("TaintManagerEviction".to_owned(), note)), "{told:?}");
    // The taint goes in time; the next one counts anew.
    taint(&cluster, "node-1", json!([])).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(is_there(&cluster, "patient").await);
    taint(&cluster, "node-1", gone).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(is_there(&cluster, "patient").await);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!is_there(&cluster, "patient").await && is_there(&cluster, "stoic").await);
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_dead_node_are_replaced_elsewhere() {
    let cluster = Cluster::in_process_with(|builder| builder.nodes(2)).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    create(&deployments, &deployment(4)).await;
    until("four are available", async || available(&deployments).await.filter(|count| *count == 4)).await;
    cluster.nodes().kill("node-2");
    // 50 s until it is missed, five minutes of patience.
    tokio::time::sleep(Duration::from_secs(330)).await;
    assert!(available(&deployments).await.unwrap() < 4);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(available(&deployments).await, Some(4));
    // The node is taken away for good: what it had is forgotten.
    let nodes: Api<Node> = Api::all(cluster.client());
    nodes.delete("node-2", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let left = pods(cluster.client()).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 4);
    assert!(left.iter().all(|pod| field(pod, "/spec/nodeName") == "node-1"));
    cluster.stop().await.unwrap();
}

fn deployment(replicas: i32) -> Deployment {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    object(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}}))
}

async fn available(deployments: &Api<Deployment>) -> Option<i32> {
    deployments.get("web").await.unwrap().status?.available_replicas
}

async fn evict(cluster: &Cluster, pod: &str) -> Result<(), u16> {
    let evicted = pods(cluster.client()).evict(pod, &EvictParams::default()).await;
    match evicted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let pods = pods(cluster.client()).list(&ListParams::default()).await.unwrap().items;
    let living = pods.iter().filter(|pod: &&Pod| pod.metadata.deletion_timestamp.is_none());
    living.map(|pod| pod.name_any()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_go_no_more_than_it_allows() {
    let cluster = Cluster::in_process().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "default");
    create(&deployments, &deployment(4)).await;
    let spec = json!({"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}});
    create(&budgets, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let allowed = async |count: i32| {
        until(&format!("{count} may go"), async || {
            let status = budgets.get("web").await.unwrap().status?;
            (status.disruptions_allowed == Some(count)).then_some(status)
        })
        .await
    };
    let status = allowed(1).await;
    assert_eq!(
        (status.expected_pods, status.desired_healthy, status.current_healthy),
        (Some(4), Some(3), Some(4))
    );
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.reason.as_str()),
        ("DisruptionAllowed", "SufficientPods")
    );
    let all = names(&cluster).await;
    assert_eq!(evict(&cluster, &all[0]).await, Ok(()));
    assert_eq!(evict(&cluster, &all[1]).await, Err(429));
    // Another one comes, and the next may go.
    allowed(0).await;
    allowed(1).await;
    assert_eq!(evict(&cluster, &all[1]).await, Ok(()));
    until("four are available", async || available(&deployments).await.filter(|count| *count == 4)).await;
    let patch = json!({"spec": {"maxUnavailable": null, "minAvailable": 4}});
    budgets.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    until("none may go", async || {
        let status = budgets.get("web").await.unwrap().status?;
        (status.desired_healthy == Some(4) && status.disruptions_allowed == Some(0)).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

/// Sets of a custom kind, with `spec.replicas` for the scale subresource.
async fn define_sets(cluster: &Cluster) -> Api<DynamicObject> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let count = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema =
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": count, "status": count}}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    create(
        &definitions,
        &object(json!({"metadata": {"name": "clonesets.test.dev"}, "spec": {
            "group": "test.dev", "scope": "Namespaced",
            "names": {"kind": "CloneSet", "plural": "clonesets", "singular": "cloneset"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema,
                          "subresources": {"status": {}, "scale": scale}}],
        }})),
    )
    .await;
    let kind = GroupVersionKind::gvk("test.dev", "v1", "CloneSet");
    let kind = ApiResource::from_gvk_with_plural(&kind, "clonesets");
    let sets: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    until("served", async || sets.list(&ListParams::default()).await.ok().map(drop)).await;
    sets
}

#[tokio::test(start_paused = true)]
async fn a_budget_asks_owners_of_a_custom_kind_how_many_pods_they_want() {
    let cluster = Cluster::in_process().await.unwrap();
    let sets = define_sets(&cluster).await;
    let set = json!({"apiVersion": "test.dev/v1", "kind": "CloneSet", "metadata": {"name": "web"}, "spec": {"replicas": 4}});
    let set = sets.create(&PostParams::default(), &object(set)).await.unwrap();
    let owner = json!([{"apiVersion": "test.dev/v1", "kind": "CloneSet", "name": "web", "uid": set.uid(), "controller": true}]);
    for n in 0..4 {
        let mut pod: Pod = pod(&format!("web-{n}"), json!({}), json!({}));
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod.metadata.owner_references = Some(serde_json::from_value(owner.clone()).unwrap());
        create(&pods(cluster.client()), &pod).await;
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "default");
    let spec = json!({"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}});
    create(&budgets, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let status = until("one may go", async || {
        let status = budgets.get("web").await.unwrap().status?;
        (status.disruptions_allowed == Some(1)).then_some(status)
    })
    .await;
    assert_eq!((status.expected_pods, status.desired_healthy), (Some(4), Some(3)));
    let all = names(&cluster).await;
    assert_eq!(evict(&cluster, &all[0]).await, Ok(()));
    assert_eq!(evict(&cluster, &all[1]).await, Err(429));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_its_pods() {
    let cluster = Cluster::in_process().await.unwrap();
    let controllers: Api<ReplicationController> = Api::namespaced(cluster.client(), "default");
    let template = json!({"metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let spec = json!({"replicas": 3, "template": template});
    create(&controllers, &object(json!({"metadata": {"name": "old"}, "spec": spec}))).await;
    let available = async |count: i32| {
        until(&format!("{count} are available"), async || {
            let status = controllers.get("old").await.unwrap().status?;
            (status.available_replicas.unwrap_or(0) == count && status.replicas == count).then_some(status)
        })
        .await
    };
    let status = available(3).await;
    assert_eq!((status.observed_generation, status.fully_labeled_replicas), (Some(1), Some(3)));
    let first = names(&cluster).await.remove(0);
    pods(cluster.client()).delete(&first, &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    available(3).await;
    let patch = json!({"spec": {"replicas": 1}});
    controllers.patch("old", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    available(1).await;
    let told = events(&cluster, "old").await;
    assert!(
        told.iter()
            .any(|(reason, note)| reason == "SuccessfulDelete" && note.starts_with("Deleted pod: old-"))
    );
    cluster.stop().await.unwrap();
}

#[test]
fn pods_of_a_node_that_is_gone_are_collected_after_a_while() {
    World::run(3, async |world| {
        let nodes: Api<Node> = Api::all(world.direct());
        create(&nodes, &object(json!({"metadata": {"name": "real"}}))).await;
        create(&pods(world.direct()), &pod("lost", json!({}), json!({"nodeName": "real"}))).await;
        let cluster =
            Cluster::builder(world.client_named("cluster")).env(world.env().clone()).nodes(0).start();
        tokio::time::sleep(Duration::from_secs(10)).await;
        nodes.delete("real", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(pods(world.direct()).get_opt("lost").await.unwrap().is_some());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(pods(world.direct()).get_opt("lost").await.unwrap().is_none());
        cluster.stop().await.unwrap();
    });
}
