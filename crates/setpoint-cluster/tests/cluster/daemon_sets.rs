//! DaemonSets on simulated nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use setpoint::k8s_openapi::api::core::v1::{Node, Pod};
use setpoint::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use setpoint::kube::{Client, ResourceExt};
use setpoint_cluster::{Cluster, Controllers};
use setpoint_sim::{Swarm, World};

use crate::support::{create, events, field, object, pods, until};

const SECOND: Duration = Duration::from_secs(1);

fn set(spec: Value) -> DaemonSet {
    let mut set = json!({
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "a", "image": "v1"}]},
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    object(set)
}

fn sets(client: Client) -> Api<DaemonSet> {
    Api::namespaced(client, "default")
}

/// The images of the living pods, by node.
async fn images(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let mut images: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods(cluster.client()).list(&ListParams::default()).await.unwrap().items {
        if pod.metadata.deletion_timestamp.is_none() {
            let spec = pod.spec.unwrap();
            let node = spec.node_name.unwrap_or_default();
            images.entry(node).or_default().push(spec.containers[0].image.clone().unwrap());
        }
    }
    images
}

async fn settle(cluster: &Cluster, nodes: i32) -> DaemonSet {
    until("all are up to date and available", async || {
        let set = sets(cluster.client()).get("agent").await.unwrap();
        let status = set.status.clone()?;
        let is_settled = status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.updated_number_scheduled.unwrap_or(0) == nodes
            && status.number_available.unwrap_or(0) == nodes;
        is_settled.then_some(set)
    })
    .await
}

async fn patch<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: setpoint::kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}})
}

async fn cluster(nodes: usize) -> Cluster {
    let cluster = Cluster::in_process_with(|builder| builder.nodes(nodes)).await.unwrap();
    tokio::time::sleep(SECOND).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn each_node_that_will_do_has_one_pod() {
    let cluster = cluster(3).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    patch(&nodes, "node-3", json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})).await;
    create(&sets(cluster.client()), &set(json!({}))).await;
    let settled = settle(&cluster, 2).await;
    assert_eq!(images(&cluster).await.into_keys().collect::<Vec<_>>(), ["node-1", "node-2"]);
    let pod = pods(cluster.client()).list(&ListParams::default()).await.unwrap().items.remove(0);
    let revisions: Api<ControllerRevision> = Api::namespaced(cluster.client(), "default");
    let revision = revisions.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!(pod.labels()["controller-revision-hash"], revision.labels()["controller-revision-hash"]);
    assert_eq!(pod.labels()["pod-template-generation"], "1");
    assert_eq!(field(&settled, "/status/currentNumberScheduled"), 2);
    // A cordon does not keep them away, a taint that drives out does; one that only keeps away lets them stay.
    patch(&nodes, "node-1", json!({"spec": {"unschedulable": true}})).await;
    patch(&nodes, "node-2", json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(images(&cluster).await.into_keys().collect::<Vec<_>>(), ["node-1", "node-2"]);
    assert_eq!(field(&sets(cluster.client()).get("agent").await.unwrap(), "/status/numberMisscheduled"), 1);
    patch(&nodes, "node-2", json!({"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}})).await;
    patch(&nodes, "node-3", json!({"spec": {"taints": null}})).await;
    settle(&cluster, 2).await;
    until("the pods have moved", async || {
        let nodes: Vec<_> = images(&cluster).await.into_keys().collect();
        (nodes == ["node-1", "node-3"]).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rollout_ends_old_pods_first_a_few_at_a_time() {
    let cluster = cluster(6).await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
    create(&sets(cluster.client()), &set(json!({"updateStrategy": rolling, "minReadySeconds": 2}))).await;
    settle(&cluster, 6).await;
    patch(&sets(cluster.client()), "agent", image("v2")).await;
    let mut least = 6;
    loop {
        tokio::time::sleep(SECOND / 5).await;
        let set = sets(cluster.client()).get("agent").await.unwrap();
        let status = set.status.clone().unwrap();
        let living: usize = images(&cluster).await.values().map(Vec::len).sum();
        least = least.min(living);
        assert!(images(&cluster).await.values().all(|pods| pods.len() == 1));
        if status.observed_generation == set.metadata.generation && status.updated_number_scheduled == Some(6)
        {
            break;
        }
    }
    assert_eq!(least, 4);
    settle(&cluster, 6).await;
    assert!(images(&cluster).await.values().all(|images| images == &["v2"]));
    // Back to the first template: its revision is used again.
    patch(&sets(cluster.client()), "agent", image("v1")).await;
    settle(&cluster, 6).await;
    let revisions: Api<ControllerRevision> = Api::namespaced(cluster.client(), "default");
    let mut numbers: Vec<_> =
        revisions.list(&ListParams::default()).await.unwrap().items.iter().map(|r| r.revision).collect();
    numbers.sort();
    assert_eq!(numbers, [Some(2), Some(3)]);
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_surge_a_new_pod_is_available_before_the_old_one_goes() {
    let cluster = cluster(3).await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    create(&sets(cluster.client()), &set(json!({"updateStrategy": rolling}))).await;
    settle(&cluster, 3).await;
    patch(&sets(cluster.client()), "agent", image("v2")).await;
    let is_ready = |pod: &Pod| field(pod, "/status/containerStatuses/0/ready") == true;
    loop {
        tokio::time::sleep(SECOND / 10).await;
        let all = pods(cluster.client()).list(&ListParams::default()).await.unwrap().items;
        let living: Vec<_> = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        assert!(living.len() <= 4);
        let nodes: std::collections::BTreeSet<_> = living
            .iter()
            .filter(|pod| is_ready(pod))
            .map(|pod| field(*pod, "/spec/nodeName").to_string())
            .collect();
        assert_eq!(nodes.len(), 3, "each node is served");
        if living.iter().all(|pod| field(*pod, "/spec/containers/0/image") == "v2") {
            break;
        }
    }
    settle(&cluster, 3).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_go_and_failed_pods_are_replaced() {
    let cluster = cluster(2).await;
    create(&sets(cluster.client()), &set(json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    settle(&cluster, 2).await;
    patch(&sets(cluster.client()), "agent", image("v2")).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(images(&cluster).await.values().all(|images| images == &["v1"]));
    pods(cluster.client()).delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    settle(&cluster, 2).await;
    assert!(images(&cluster).await.values().all(|images| images == &["v2"]));
    // A node of somebody else comes, and goes again.
    let nodes: Api<Node> = Api::all(cluster.client());
    let resources = json!({"cpu": "1", "memory": "1Gi", "pods": "10"});
    let other =
        json!({"metadata": {"name": "other"}, "status": {"allocatable": resources, "capacity": resources}});
    create(&nodes, &object(other)).await;
    until("three", async || {
        let set = sets(cluster.client()).get("agent").await.unwrap();
        (field(&set, "/status/desiredNumberScheduled") == 3).then_some(())
    })
    .await;
    nodes.delete("other", &DeleteParams::default()).await.unwrap();
    until("two", async || {
        let set = sets(cluster.client()).get("agent").await.unwrap();
        (field(&set, "/status/desiredNumberScheduled") == 2).then_some(())
    })
    .await;
    // Evicted pods fail.
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    for pod in pods(cluster.client()).list(&ListParams::default()).await.unwrap().items {
        let api = pods(cluster.client());
        api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&evicted)).await.unwrap();
    }
    settle(&cluster, 2).await;
    let told = events(&cluster, "agent").await;
    assert!(told.iter().any(|(reason, _)| reason == "FailedDaemonPod"), "{told:?}");
    cluster.stop().await.unwrap();
}

/// How many nodes have a living pod that is ready, and whether one has two living pods.
fn served(pods: &[Pod]) -> (usize, bool) {
    let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut nodes: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    for pod in living {
        let node = field(
            pod,
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                               /nodeSelectorTerms/0/matchFields/0/values/0",
        );
        let entry = nodes.entry(node.to_string()).or_default();
        entry.0 += 1;
        entry.1 |= field(pod, "/status/containerStatuses/0/ready") == true;
    }
    (nodes.values().filter(|(_, is_ready)| *is_ready).count(), nodes.values().any(|(count, _)| *count > 1))
}

/// A rollout while the controller dies and the network fails. The nodes and the scheduler live on.
async fn crash_a_rollout(world: World) {
    let others = Controllers::parse("scheduler,node-lifecycle").unwrap();
    let nodes =
        Cluster::builder(world.direct()).env(world.env().clone()).controllers(others).nodes(4).start();
    let start = || {
        let controllers = Controllers::parse("daemonset").unwrap();
        let builder = Cluster::builder(world.client_named("controllers")).env(world.env().clone());
        builder.controllers(controllers).nodes(0).start()
    };
    let mut controllers = start();
    create(&sets(world.direct()), &set(json!({}))).await;
    settle(&nodes, 4).await;
    patch(&sets(world.direct()), "agent", image("v2")).await;
    world.faults().swarm(Swarm::every(0.03));
    for _ in 0..10 {
        let pause = world.env().random_range(1..=2_000);
        for _ in 0..pause / 50 {
            tokio::time::sleep(SECOND / 20).await;
            let (ready, is_crowded) =
                served(&pods(world.direct()).list(&ListParams::default()).await.unwrap().items);
            assert!(ready >= 3 && !is_crowded, "{ready} nodes are served");
        }
        drop(controllers);
        controllers = start();
    }
    world.faults().heal();
    settle(&nodes, 4).await;
    assert!(images(&nodes).await.values().all(|images| images == &["v2"]));
    drop(controllers);
    nodes.stop().await.unwrap();
}

#[test]
fn the_bounds_hold_when_the_controller_dies_anywhere() {
    for seed in 0..10 {
        World::run(seed, crash_a_rollout);
    }
}
