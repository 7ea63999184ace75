//! Which node a pod gets, and what a pod that gets none says.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::Node;
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_cluster::Cluster;
use setpoint_sim::{Match, World};

use crate::support::{condition, create, events, field, phase, pod, pod_until, pods};

async fn cluster(nodes: usize) -> Cluster {
    Cluster::in_process_with(|builder| builder.nodes(nodes)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_over_the_nodes() {
    let cluster = cluster(3).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    crate::support::until("three nodes that take pods", async || {
        let list = nodes.list(&Default::default()).await.unwrap();
        let free = list.items.iter().filter(|node| field(*node, "/spec/taints").is_null()).count();
        (free == 3).then_some(())
    })
    .await;
    let api = pods(cluster.client());
    for n in 0..9 {
        create(&api, &pod(&format!("p{n}"), json!({}), json!({}))).await;
    }
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for n in 0..9 {
        let pod = phase(&cluster, &format!("p{n}"), "Running").await;
        *counts.entry(field(&pod, "/spec/nodeName").as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [3, 3, 3]);
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_impossible_request_is_explained_in_a_condition_and_an_event() {
    let cluster = cluster(3).await;
    let requests = json!([{"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "1000"}}}]);
    let nodes: Api<Node> = Api::all(cluster.client());
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    crate::support::until("a node", async || nodes.get_opt("node-3").await.unwrap()).await;
    nodes.patch("node-3", &PatchParams::default(), &Patch::Merge(&taint)).await.unwrap();
    create(&pods(cluster.client()), &pod("big", json!({}), json!({"containers": requests}))).await;
    let why = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.";
    let big = pod_until(&cluster, "big", |pod| {
        field(pod, "/status/conditions")
            .as_array()
            .is_some_and(|conditions| conditions.iter().any(|c| c["message"] == why))
    })
    .await;
    assert_eq!(condition(&big, "PodScheduled"), ("False".into(), "Unschedulable".into(), why.into()));
    assert_eq!(field(&big, "/status/phase"), "Pending");
    assert!(events(&cluster, "big").await.contains(&("FailedScheduling".into(), why.into())));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_gets_the_place_of_one_that_goes() {
    let cluster = cluster(1).await;
    let api = pods(cluster.client());
    let half =
        json!({"containers": [{"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "20"}}}]});
    create(&api, &pod("first", json!({}), half.clone())).await;
    phase(&cluster, "first", "Running").await;
    create(&api, &pod("second", json!({}), half)).await;
    pod_until(&cluster, "second", |pod| field(pod, "/status/conditions/0/reason") == "Unschedulable").await;
    api.delete("first", &DeleteParams::default()).await.unwrap();
    phase(&cluster, "second", "Running").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_gets_no_pods_until_it_is_uncordoned() {
    let cluster = cluster(1).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    crate::support::until("a node", async || nodes.get_opt("node-1").await.unwrap()).await;
    let cordon = |is_on: bool| Patch::Merge(json!({"spec": {"unschedulable": is_on}}));
    nodes.patch("node-1", &PatchParams::default(), &cordon(true)).await.unwrap();
    create(&pods(cluster.client()), &pod("web", json!({}), json!({}))).await;
    let waits = pod_until(&cluster, "web", |pod| !field(pod, "/status/conditions/0").is_null()).await;
    assert_eq!(condition(&waits, "PodScheduled").2, "0/1 nodes are available: 1 node(s) were unschedulable.");
    nodes.patch("node-1", &PatchParams::default(), &cordon(false)).await.unwrap();
    phase(&cluster, "web", "Running").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_pods_are_bound_and_started_while_each_write_takes_long() {
    let world = World::seeded(1);
    let cluster = Cluster::builder(world.client_named("cluster")).env(world.env().clone()).start();
    let nodes: Api<Node> = Api::all(world.direct());
    crate::support::until("a node that takes pods", async || {
        nodes.get_opt("node-1").await.unwrap().filter(|node| field(node, "/spec/taints").is_null())
    })
    .await;
    let second = Duration::from_secs(1);
    for slow in
        [Match::create("pods/binding"), Match::patch("pods/status"), Match::create("events.events.k8s.io")]
    {
        world.faults().on(slow).delay_response(second).always();
    }
    let (api, begun) = (pods(world.direct()), world.now());
    for n in 0..64 {
        create(&api, &pod(&format!("p{n}"), json!({}), json!({}))).await;
    }
    crate::support::until("all run", async || {
        let list = api.list(&Default::default()).await.unwrap();
        list.items.iter().all(|pod| field(pod, "/status/phase") == "Running").then_some(())
    })
    .await;
    let took = world.now() - begun;
    assert!(took < 8 * second, "a binding and two statuses of each, with a second for each: {took:?}");
    cluster.stop().await.unwrap();
}
