//! A whole cluster runs the same way again: all controllers and two nodes in one process.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use setpoint_cluster::Cluster;
use setpoint_sim::{BURST, Explorer, Scenario, Seat, Swarm, World, check_determinism};
use tokio::time::sleep;

use super::{deployment, named, object, template};

fn number(name: &str, unless_set: u64) -> u64 {
    std::env::var(name).map_or(unless_set, |text| text.parse().expect("a number"))
}

/// A burst of ReplicaSets in a cluster whose connections break now and then, for two minutes.
async fn many_sets(world: World) {
    world.faults().swarm(Swarm::every(0.02));
    let cluster = Cluster::builder(world.client_named("cluster")).env(world.env().clone()).nodes(2).start();
    let set = |n| {
        let mut named = named("set");
        named["name"] = format!("set-{n}").into();
        let selector = json!({"matchLabels": {"app": "web"}});
        let spec = json!({"replicas": 1, "selector": selector, "template": template("a")});
        object::<ReplicaSet>(json!({"metadata": named, "spec": spec}))
    };
    world.burst(set).await.expect("ReplicaSets");
    sleep(Duration::from_secs(60)).await;
    world.faults().heal();
    sleep(Duration::from_secs(60)).await;
    let pods: Api<Pod> = Api::default_namespaced(world.direct());
    assert_eq!(pods.list(&ListParams::default()).await.expect("pods").items.len(), BURST);
    cluster.stop().await.expect("a cluster that ends");
}

#[test]
fn a_cluster_under_a_swarm_of_faults_runs_the_same_way_twice() {
    check_determinism(0..2, many_sets).unwrap_or_else(|error| panic!("{error}"));
}

/// A Deployment and its rollout.
fn rollout(_: &World) -> Scenario {
    Scenario::new()
        .controller("cluster", |seat: Seat| async move {
            Cluster::builder(seat.client()).env(seat.env()).nodes(2).start().ended().await
        })
        .apply(&deployment("a"))
        .apply(&deployment("b"))
}

#[test]
#[allow(clippy::print_stdout, reason = "what it prints is compared with other runs of it")]
fn a_seed_gives_the_same_rollout_again_and_another_seed_another_order() {
    let explorer = Explorer::new("rollout", rollout);
    let seeds = number("SETPOINT_SIM_SEEDS", 2);
    let digest = explorer.check_determinism(0..seeds).unwrap_or_else(|error| panic!("{error}"));
    assert!((1..seeds).any(|seed| explorer.hash(seed) != explorer.hash(0)));
    println!("all seeds: {digest:016x}");
}
