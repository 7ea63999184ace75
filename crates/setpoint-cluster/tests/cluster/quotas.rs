//! Quotas: what is used follows what is there.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, Service};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use setpoint_cluster::Cluster;

use crate::support::{create, events, field, object, pod, pods, until};

fn quotas(cluster: &Cluster) -> Api<ResourceQuota> {
    Api::namespaced(cluster.client(), "default")
}

async fn quota(cluster: &Cluster, spec: Value) {
    create(&quotas(cluster), &object(json!({"metadata": {"name": "q"}, "spec": spec}))).await;
}

/// Waits until the quota says that so much is in use.
async fn used(cluster: &Cluster, expected: Value) {
    let mut found = Value::Null;
    for _ in 0..600 {
        found = field(&quotas(cluster).get("q").await.unwrap(), "/status/used");
        if found == expected {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("after ten minutes {found} is in use instead of {expected}");
}

fn busy(name: &str) -> setpoint::k8s_openapi::api::core::v1::Pod {
    let resources = json!({"requests": {"cpu": "500m"}});
    pod(name, json!({}), json!({"containers": [{"name": "a", "image": "b", "resources": resources}]}))
}

#[tokio::test(start_paused = true)]
async fn usage_follows_what_comes_and_goes() {
    let cluster = Cluster::in_process().await.unwrap();
    let (pods, maps) = (pods(cluster.client()), Api::<ConfigMap>::namespaced(cluster.client(), "default"));
    create(&pods, &busy("before")).await;
    let hard = json!({
        "pods": "2", "requests.cpu": "1", "count/pods": "9", "services": "2", "services.nodeports": "1",
        "configmaps": "2", "count/deployments.apps": "1", "count/nothing.example.com": "1"
    });
    quota(&cluster, json!({"hard": hard})).await;
    // The service `kubernetes` is in this namespace.
    let mut expected = json!({
        "pods": "1", "requests.cpu": "500m", "count/pods": "1", "services": "1", "services.nodeports": "0",
        "configmaps": "0", "count/deployments.apps": "0"
    });
    used(&cluster, expected.clone()).await;
    create(&pods, &busy("second")).await;
    let refused = pods.create(&PostParams::default(), &busy("third")).await.unwrap_err().to_string();
    assert!(refused.contains("exceeded quota: q, requested: pods=1,requests.cpu=500m"), "{refused}");
    pods.delete("before", &DeleteParams::default()).await.unwrap();
    expected["count/pods"] = "1".into();
    used(&cluster, expected.clone()).await;
    create(&maps, &object(json!({"metadata": {"name": "a"}}))).await;
    expected["configmaps"] = "1".into();
    used(&cluster, expected.clone()).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    expected["configmaps"] = "0".into();
    used(&cluster, expected.clone()).await;
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}], "selector": {"a": "b"}});
    create(&services, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let patch = json!({"spec": {"type": "ClusterIP"}});
    services.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    expected["services"] = "2".into();
    used(&cluster, expected.clone()).await;
    // Other limits are taken over at once.
    let patch = json!({"spec": {"hard": {"pods": "7"}}});
    quotas(&cluster).patch("q", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("the new limit", async || {
        let quota = quotas(&cluster).get("q").await.unwrap();
        (field(&quota, "/status/hard/pods") == "7").then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_gives_room_for_another() {
    let cluster = Cluster::in_process().await.unwrap();
    quota(&cluster, json!({"hard": {"pods": "1", "count/pods": "5"}})).await;
    used(&cluster, json!({"pods": "0", "count/pods": "0"})).await;
    let pods = pods(cluster.client());
    let short = json!({"sim.setpoint.dev/exit-code": "0", "sim.setpoint.dev/fail-after": "2s"});
    create(&pods, &pod("short", short, json!({"restartPolicy": "Never"}))).await;
    assert!(pods.create(&PostParams::default(), &busy("next")).await.is_err());
    used(&cluster, json!({"pods": "0", "count/pods": "1"})).await;
    create(&pods, &busy("next")).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_as_many_pods_as_there_is_room_for() {
    let cluster = Cluster::in_process().await.unwrap();
    quota(&cluster, json!({"hard": {"pods": "2"}})).await;
    used(&cluster, json!({"pods": "0"})).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let spec = json!({"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    create(&deployments, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    until("two are there", async || {
        let web = deployments.get("web").await.unwrap();
        (field(&web, "/status/availableReplicas") == 2).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let web = deployments.get("web").await.unwrap();
    let conditions = field(&web, "/status/conditions");
    let failure =
        conditions.as_array().unwrap().iter().find(|condition| condition["type"] == "ReplicaFailure");
    let message = failure.expect("a ReplicaFailure")["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"),
        "{message}"
    );
    let patch = json!({"spec": {"hard": {"pods": "4"}}});
    quotas(&cluster).patch("q", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("all are there", async || {
        let web = deployments.get("web").await.unwrap();
        (field(&web, "/status/availableReplicas") == 4).then_some(())
    })
    .await;
    used(&cluster, json!({"pods": "4"})).await;
    assert!(!events(&cluster, "web").await.is_empty());
    cluster.stop().await.unwrap();
}

/// `tides.example.com`, of which these versions are served.
fn tides(served: &[&str]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &&str| {
        json!({
            "name": name, "served": served.contains(name), "storage": *name == "v1", "schema": schema
        })
    };
    let versions: Vec<Value> = ["v1alpha1", "v1"].iter().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tides.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "tides", "singular": "tide", "kind": "Tide"}
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_counted_in_another_version_once_the_first_is_served_no_more() {
    let cluster = Cluster::in_process().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    create(&definitions, &object(tides(&["v1alpha1"]))).await;
    let api = |version: &str| {
        let kind = GroupVersionKind::gvk("example.com", version, "Tide");
        let resource = ApiResource::from_gvk_with_plural(&kind, "tides");
        Api::<DynamicObject>::namespaced_with(cluster.client(), "default", &resource)
    };
    let tide = json!({"apiVersion": "example.com/v1alpha1", "kind": "Tide", "metadata": {"name": "high"}});
    until("the kind is served", async || {
        api("v1alpha1").create(&PostParams::default(), &object(tide.clone())).await.ok()
    })
    .await;
    quota(&cluster, json!({"hard": {"count/tides.example.com": "3"}})).await;
    used(&cluster, json!({"count/tides.example.com": "1"})).await;
    let patch = json!({"spec": {"versions": tides(&["v1"])["spec"]["versions"]}});
    definitions.patch("tides.example.com", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("the object can be deleted in the new version", async || {
        api("v1").delete("high", &DeleteParams::default()).await.ok()
    })
    .await;
    used(&cluster, json!({"count/tides.example.com": "0"})).await;
}
