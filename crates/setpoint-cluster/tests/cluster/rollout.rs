//! What a rollout costs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::kube::Api;
use setpoint_cluster::Cluster;
use setpoint_sim::{Match, World};

use crate::support::{create, field, object, until};

const PODS: usize = 100;
/// Milliseconds if the compiler has optimized; without, and on a machine that does other things, still far below
/// what it would be if the cluster waited in real time, or did its work several times.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });
/// A pod is made, bound, said to be coming and said to run; four events tell of it.
const REQUESTS_PER_POD: usize = 8;
/// What the Deployment and its set say about themselves, on the way.
const OTHER_REQUESTS: usize = 60;

fn deployment() -> Deployment {
    object(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        }},
    }))
}

async fn roll_out(deployments: &Api<Deployment>) {
    create(deployments, &deployment()).await;
    until("all are available", async || {
        let web = deployments.get("web").await.unwrap();
        (field(&web, "/status/availableReplicas") == PODS).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "it is about real time")]
async fn a_hundred_pods_roll_out_in_hardly_any_real_time() {
    let cluster = Cluster::in_process().await.unwrap();
    let begun = std::time::Instant::now();
    roll_out(&Api::namespaced(cluster.client(), "default")).await;
    let took = begun.elapsed();
    assert!(took < LONGEST, "{took:?}");
    cluster.stop().await.unwrap();
}

#[test]
fn a_rollout_asks_the_server_for_no_more_than_it_needs() {
    World::run(5, async |world| {
        let cluster =
            Cluster::builder(world.client_named("cluster")).env(world.env().clone()).nodes(2).start();
        tokio::time::sleep(Duration::from_secs(15)).await;
        let ours = Match::any().client("cluster");
        let before = world.trace().requests(&ours).count();
        roll_out(&Api::namespaced(world.direct(), "default")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let trace = world.trace();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for entry in trace.requests(&ours).skip(before) {
            let kind = format!("{:?} {}", entry.request.verb, entry.request.group_resource());
            *kinds.entry(kind).or_default() += 1;
        }
        let total: usize = kinds.values().sum();
        assert!(total <= PODS * REQUESTS_PER_POD + OTHER_REQUESTS, "{total}: {kinds:#?}");
        cluster.stop().await.unwrap();
    });
}
