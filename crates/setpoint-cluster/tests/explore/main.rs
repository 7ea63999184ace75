//! The built-in controllers, each with every fault at every point. Together they take minutes: `cargo xtask explore`, and
//! `cargo xtask soak`. The quickest is in every run.

mod found;
mod order;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Secret, Service, ServiceAccount};
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
    explore(scaled);
}

fn scaled(_: &World) -> Scenario {
    scenario("replicaset", "scheduler,node-lifecycle", 1).apply(&replica_set(3)).apply(&replica_set(1))
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
        let spec = json!({"schedule": "5 0 * * *", "jobTemplate": {"spec": {"template": pod}}});
        let cron_job: CronJob = object(json!({"metadata": named("night"), "spec": spec}));
        scenario("cronjob", "job,scheduler,node-lifecycle", 1)
            .apply(&cron_job)
            .step("it is after five past midnight", |_| async {
                sleep(Duration::from_secs(400)).await;
                Ok::<_, String>(())
            })
            // A CronJob runs once for a time, and not for a time before it was there.
            .without(PointKind::ChildDeleted)
            .without(PointKind::Recreated)
    });
}

#[test]
#[ignore = "takes a minute"]
fn garbage_collector_controller() {
    explore(owner_and_dependents);
}

fn owner_and_dependents(_: &World) -> Scenario {
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
    explore(service_of_pods);
}

fn service_of_pods(_: &World) -> Scenario {
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let service: Service = object(json!({"metadata": named("web"), "spec": spec}));
    scenario("endpointslice", "replicaset,scheduler,node-lifecycle", 1)
        .apply(&service)
        .apply(&replica_set(2))
        .apply(&replica_set(1))
        .delete(&service)
}

#[test]
#[ignore = "takes a minute"]
fn resourcequota_controller() {
    explore(|_| {
        let hard = json!({"pods": "5", "requests.cpu": "4", "services": "2", "count/configmaps": "3"});
        let quota: ResourceQuota = object(json!({"metadata": named("limits"), "spec": {"hard": hard}}));
        let map = |name: &str| object::<ConfigMap>(json!({"metadata": named(name)}));
        let resources = json!({"requests": {"cpu": "1"}});
        let container = json!({"name": "main", "image": "a", "resources": resources});
        let pod =
            |name: &str| object::<Pod>(json!({"metadata": named(name), "spec": {"containers": [container]}}));
        scenario("resourcequota", "", 0)
            .apply(&quota)
            .apply(&pod("a"))
            .apply(&pod("b"))
            .apply(&map("m"))
            .delete(&pod("a"))
            .delete(&map("m"))
    });
}

#[test]
#[ignore = "takes a minute"]
fn horizontal_pod_autoscaler_controller() {
    explore(|_| {
        let reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"});
        let metric = json!({"name": "load"});
        let target = json!({"type": "AverageValue", "averageValue": "10"});
        let autoscaler = |load: &str| -> HorizontalPodAutoscaler {
            let metrics = json!([{"type": "External", "external": {"metric": metric, "target": target}}]);
            let spec = json!({"scaleTargetRef": reference, "maxReplicas": 4, "metrics": metrics});
            let annotations = json!({"sim.setpoint.dev/metric-load": load});
            object(json!({
                "metadata": {"name": "web", "namespace": "default", "annotations": annotations}, "spec": spec
            }))
        };
        scenario("horizontal-pod-autoscaler", "replicaset,scheduler,node-lifecycle", 1)
            // It looks at its metrics every 15 seconds.
            .quiet(Duration::from_secs(40))
            .apply(&replica_set(1))
            .apply(&autoscaler("30"))
            .apply(&autoscaler("35"))
            .mask(|_, object| {
                if object["kind"] == "HorizontalPodAutoscaler" {
                    // When, and by how many steps, depends on the way.
                    object["status"]["lastScaleTime"] = Value::Null;
                    object["status"]["conditions"] = Value::Null;
                }
            })
    });
}

/// The controller of token secrets needs a key.
async fn tokens(seat: Seat) -> Result<(), ClusterError> {
    let signer = seat.world().server().token_signer();
    let controllers = Controllers::parse("serviceaccount-token").expect(NAMES);
    let cluster = Cluster::builder(seat.client()).env(seat.env()).controllers(controllers).nodes(0);
    cluster.token_signer(signer).root_ca("CA").start().ended().await
}

#[test]
#[ignore = "takes a minute"]
fn serviceaccount_token_controller() {
    explore(account_and_token);
}

fn account_and_token(_: &World) -> Scenario {
    let account: ServiceAccount = object(json!({"metadata": named("builder")}));
    let annotations = json!({"kubernetes.io/service-account.name": "builder"});
    let metadata = json!({"name": "token", "namespace": "default", "annotations": annotations});
    let secret: Secret = object(json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"}));
    Scenario::new()
        .controller("serviceaccount-token", tokens)
        .rest(Duration::from_secs(300))
        .apply(&account)
        .apply(&secret)
        .delete(&account)
        // It has uids in it.
        .mask(|_, object| {
            if object["data"]["token"].is_string() {
                object["data"]["token"] = "<token>".into();
            }
        })
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
