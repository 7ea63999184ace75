//! The built-in controllers, each with every fault at every point. Together they take minutes: `cargo xtask explore`, and
//! `cargo xtask soak`. The quickest is in every run.

mod order;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_cluster::{Cluster, ClusterError, Controllers};
use setpoint_sim::{ObjectId, PointKind, Scenario, Seat, World, explore};
use tokio::time::sleep;

const NAMES: &str = "a name of a controller";

/// Some controllers and nodes as one process.
async fn part(seat: Seat, controllers: &'static str, nodes: usize) -> Result<(), ClusterError> {
    let controllers = Controllers::parse(controllers).expect(NAMES);
    Cluster::builder(seat.client())
        .env(seat.env())
        .controllers(controllers)
        .nodes(nodes)
        .start()
        .ended()
        .await
}

/// One controller that is explored, and what it needs beside it.
fn scenario(explored: &'static str, beside: &'static str, nodes: usize) -> Scenario {
    let scenario = Scenario::new()
        .controller(explored, move |seat| part(seat, explored, 0))
        .rest(Duration::from_secs(300));
    if beside.is_empty() {
        scenario
    } else {
        scenario.beside("others", move |seat| part(seat, beside, nodes))
    }
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn named(name: &str) -> Value {
    json!({"name": name, "namespace": "default"})
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

fn deployment(image: &str) -> Deployment {
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 2, "selector": selector, "template": template(image)});
    object(json!({"metadata": named("web"), "spec": spec}))
}

fn replica_set(replicas: u32) -> ReplicaSet {
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": replicas, "selector": selector, "template": template("a")});
    object(json!({"metadata": named("web"), "spec": spec}))
}

/// How many revisions there were depends on the way.
fn without_history(_: &ObjectId, object: &mut Value) {
    if object["kind"] == "ReplicaSet" && object["spec"]["replicas"] == 0 {
        *object = Value::Null;
    } else if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.contains("revision"));
    }
}

#[test]
#[ignore = "takes a minute"]
fn deployment_controller() {
    explore(|_| {
        scenario("deployment", "replicaset,scheduler,node-lifecycle", 1)
            .apply(&deployment("a"))
            .apply(&deployment("b"))
            .with_history()
            .mask(without_history)
            // Of an old revision nothing is left, and the ReplicaSets of a Deployment that is made anew get other names.
            .without(PointKind::ChildDeleted)
            .without(PointKind::Recreated)
    });
}

#[test]
#[ignore = "takes a minute"]
fn replicaset_controller() {
    explore(|_| {
        scenario("replicaset", "scheduler,node-lifecycle", 1).apply(&replica_set(3)).apply(&replica_set(1))
    });
}

#[test]
#[ignore = "takes a minute"]
fn job_controller() {
    explore(|_| {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}});
        let job: Job =
            object(json!({"metadata": named("sum"), "spec": {"completions": 2, "template": template}}));
        // The pods of a Job that is done do not come back.
        scenario("job", "scheduler,node-lifecycle", 1).apply(&job).without(PointKind::ChildDeleted)
    });
}

#[test]
#[ignore = "takes a minute"]
fn cronjob_controller() {
    explore(|_| {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}});
        let spec = json!({"schedule": "0 1 * * *", "jobTemplate": {"spec": {"template": pod}}});
        let cron_job: CronJob = object(json!({"metadata": named("night"), "spec": spec}));
        scenario("cronjob", "job,scheduler,node-lifecycle", 1).apply(&cron_job).step(
            "it is after one o'clock",
            |_| async {
                sleep(Duration::from_secs(3700)).await;
                Ok::<_, String>(())
            },
        )
    });
}

#[test]
#[ignore = "takes a minute"]
fn garbage_collector_controller() {
    explore(|_| {
        let owner: ConfigMap = object(json!({"metadata": named("owner")}));
        let owned = owner.clone();
        scenario("garbage-collector", "", 0)
            .no_garbage_collection()
            .apply(&owner)
            .step("it has dependents", move |world| {
                let owner = owned.clone();
                async move { dependents(&world, &owner.name_any()).await }
            })
            .delete(&owner)
    });
}

async fn dependents(world: &World, owner: &str) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(world.direct());
    let owner = maps.get(owner).await?;
    for name in ["a", "b"] {
        let metadata = json!({"name": name, "ownerReferences": [owner.controller_owner_ref(&())]});
        maps.create(&PostParams::default(), &object(json!({"metadata": metadata}))).await?;
    }
    Ok(())
}

#[test]
fn namespace_controller() {
    explore(|_| {
        let namespace: Namespace = object(json!({"metadata": {"name": "team"}}));
        let map = |name: &str| object::<ConfigMap>(json!({"metadata": {"name": name, "namespace": "team"}}));
        scenario("namespace", "", 0).apply(&namespace).apply(&map("a")).apply(&map("b")).delete(&namespace)
    });
}

#[test]
#[ignore = "takes a minute"]
fn endpointslice_controller() {
    explore(|_| {
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        let service: Service = object(json!({"metadata": named("web"), "spec": spec}));
        scenario("endpointslice", "replicaset,scheduler,node-lifecycle", 1)
            .apply(&service)
            .apply(&replica_set(2))
            .apply(&replica_set(1))
            .delete(&service)
    });
}

#[test]
#[ignore = "takes a minute"]
fn scheduler() {
    explore(|_| {
        let pod = |name: &str| {
            let spec = json!({"containers": [{"name": "main", "image": "a"}]});
            object::<Pod>(json!({"metadata": named(name), "spec": spec}))
        };
        scenario("scheduler", "node-lifecycle", 2)
            .apply(&pod("a"))
            .apply(&pod("b"))
            .apply(&pod("c"))
            // That there is one is what counts.
            .mask(|_, object| {
                if object["spec"]["nodeName"].is_string() {
                    object["spec"]["nodeName"] = "<node>".into();
                }
            })
    });
}
