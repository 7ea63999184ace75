//! The same seed gives the same cluster, down to the bytes of its requests.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use setpoint::k8s_openapi::api::batch::v1::Job;
use setpoint::k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use setpoint::kube::Api;
use setpoint::kube::api::DeleteParams;
use setpoint_cluster::Cluster;
use setpoint_sim::{Swarm, World, check_determinism};
use tokio::time::sleep;

use crate::support::{create, object, pod};

/// All controllers and three nodes, with a burst of Deployments and something of other kinds, while requests fail and the server restarts for a minute;
/// then much of it is deleted.
async fn whole_cluster(world: World) {
    world.faults().swarm(Swarm::every(0.02));
    let cluster = Cluster::builder(world.client_named("cluster")).env(world.env().clone()).nodes(3);
    let cluster = cluster.token_signer(world.server().token_signer()).root_ca("CA").start();
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let selector = json!({"matchLabels": labels});
    let deployment = |n: usize| -> Deployment {
        let spec = json!({"replicas": 1 + n % 2, "selector": selector, "template": template});
        object(json!({"metadata": {"name": format!("web-{n}"), "namespace": "default"}, "spec": spec}))
    };
    world.burst(deployment).await.unwrap();
    let client = || world.direct();
    let services: Api<Service> = Api::namespaced(client(), "default");
    let spec = json!({"selector": labels, "ports": [{"port": 80}]});
    create(&services, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let sets: Api<StatefulSet> = Api::namespaced(client(), "default");
    let set = json!({"replicas": 2, "serviceName": "web", "selector": selector, "template": template});
    create(&sets, &object(json!({"metadata": {"name": "db"}, "spec": set}))).await;
    let daemons: Api<DaemonSet> = Api::namespaced(client(), "default");
    let daemon = json!({"selector": selector, "template": template});
    create(&daemons, &object(json!({"metadata": {"name": "agent"}, "spec": daemon}))).await;
    let jobs: Api<Job> = Api::namespaced(client(), "default");
    let once = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    create(&jobs, &object(json!({"metadata": {"name": "sum"}, "spec": {"template": once}}))).await;
    let namespaces: Api<Namespace> = Api::all(client());
    create(&namespaces, &object(json!({"metadata": {"name": "team"}}))).await;
    create(&Api::namespaced(client(), "team"), &pod("guest", json!({}), json!({}))).await;
    let secrets: Api<Secret> = Api::namespaced(client(), "default");
    let account = json!({"kubernetes.io/service-account.name": "default"});
    let metadata = json!({"name": "token", "annotations": account});
    let token = json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"});
    create(&secrets, &object(token)).await;
    for _ in 0..4 {
        sleep(Duration::from_secs(15)).await;
        // All watches break at once.
        world.restart_server();
    }
    world.faults().heal();
    let deployments: Api<Deployment> = Api::namespaced(client(), "default");
    deployments.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    drop(cluster);
}

#[test]
fn a_whole_cluster_under_a_swarm_of_faults_runs_the_same_way_twice() {
    check_determinism(0..3, whole_cluster).unwrap_or_else(|error| panic!("{error}"));
}
