//! Autoscalers.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use setpoint::k8s_openapi::api::core::v1::ConfigMap;
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use setpoint::kube::core::GroupVersionKind;
use setpoint::kube::{Api, ResourceExt};
use setpoint_cluster::Cluster;

use crate::support::{create, events, field, object, pods, until};

fn deployments(cluster: &Cluster) -> Api<Deployment> {
    Api::namespaced(cluster.client(), "default")
}

fn autoscalers(cluster: &Cluster) -> Api<HorizontalPodAutoscaler> {
    Api::namespaced(cluster.client(), "default")
}

/// A Deployment whose pods ask for one processor, and use as much as `annotations` say.
async fn deployment(cluster: &Cluster, replicas: u32, annotations: Value) {
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let template = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [{"name": "a", "image": "b", "resources": resources}]}
    });
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    create(&deployments(cluster), &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    available(cluster, replicas).await;
}

async fn available(cluster: &Cluster, replicas: u32) {
    until(&format!("{replicas} pods"), async || {
        let web = deployments(cluster).get("web").await.unwrap();
        let is_so = field(&web, "/status/availableReplicas") == replicas
            && field(&web, "/status/replicas") == replicas;
        is_so.then_some(())
    })
    .await;
}

async fn autoscaler(cluster: &Cluster, spec: Value) {
    let mut spec = spec;
    if spec["scaleTargetRef"].is_null() {
        spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    }
    create(&autoscalers(cluster), &object(json!({"metadata": {"name": "h"}, "spec": spec}))).await;
}

fn cpu(percent: u32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

/// The status and the reason of a condition.
fn condition(autoscaler: &HorizontalPodAutoscaler, type_: &str) -> String {
    let conditions = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.into_iter().find(|condition| condition.type_ == type_);
    found
        .map(|found| format!("{} {}", found.status, found.reason.clone().unwrap_or_default()))
        .unwrap_or_default()
}

async fn conditions(cluster: &Cluster, type_: &str, expected: &str) -> HorizontalPodAutoscaler {
    until(&format!("{type_} {expected}"), async || {
        let found = autoscalers(cluster).get("h").await.unwrap();
        (condition(&found, type_) == expected).then_some(found)
    })
    .await
}

/// Lets all pods use so much.
async fn annotate(cluster: &Cluster, name: &str, value: &str) {
    let patch = json!({"metadata": {"annotations": {name: value}}});
    for pod in pods(cluster.client()).list(&ListParams::default()).await.unwrap() {
        pods(cluster.client())
            .patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_follows_its_load_up_and_after_five_minutes_down() {
    let cluster = Cluster::in_process().await.unwrap();
    deployment(&cluster, 2, json!({"sim.setpoint.dev/usage-cpu": "500m"})).await;
    autoscaler(&cluster, json!({"minReplicas": 1, "maxReplicas": 10, "metrics": cpu(50)})).await;
    let still = conditions(&cluster, "ScalingActive", "True ValidMetricFound").await;
    assert_eq!(condition(&still, "AbleToScale"), "True ReadyForNewScale");
    assert_eq!(condition(&still, "ScalingLimited"), "False DesiredWithinRange");
    assert_eq!(
        field(&still, "/status/currentMetrics/0/resource/current"),
        json!({"averageUtilization": 50, "averageValue": "500m"})
    );
    annotate(&cluster, "sim.setpoint.dev/usage-cpu", "1").await;
    // The new pods use half of a processor, as the template says: 2 × 100 % and 2 × 50 % are 75 %, and so on.
    until("more pods", async || {
        let web = deployments(&cluster).get("web").await.unwrap();
        web.spec.replicas.filter(|replicas| *replicas >= 6)
    })
    .await;
    let told = events(&cluster, "h").await;
    let reason = "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(told.contains(&("SuccessfulRescale".to_owned(), reason.to_owned())), "{told:?}");
    annotate(&cluster, "sim.setpoint.dev/usage-cpu", "10m").await;
    let held = conditions(&cluster, "AbleToScale", "True ScaleDownStabilized").await;
    assert!(field(&held, "/status/desiredReplicas").as_i64().unwrap() >= 6);
    tokio::time::sleep(Duration::from_secs(330)).await;
    annotate(&cluster, "sim.setpoint.dev/usage-cpu", "10m").await;
    available(&cluster, 1).await;
    let told = events(&cluster, "h").await;
    let reason = "New size: 1; reason: All metrics below target";
    assert!(told.contains(&("SuccessfulRescale".to_owned(), reason.to_owned())), "{told:?}");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bounds_come_before_metrics() {
    let cluster = Cluster::in_process().await.unwrap();
    deployment(&cluster, 2, json!({"sim.setpoint.dev/usage-cpu": "500m"})).await;
    autoscaler(&cluster, json!({"minReplicas": 3, "maxReplicas": 5, "metrics": cpu(50)})).await;
    available(&cluster, 3).await;
    let note = "New size: 3; reason: Current number of replicas below Spec.MinReplicas";
    assert!(events(&cluster, "h").await.contains(&("SuccessfulRescale".to_owned(), note.to_owned())));
    let scale = |replicas: u32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments(&cluster).patch("web", &PatchParams::default(), &scale(8)).await.unwrap();
    available(&cluster, 5).await;
    let note = "New size: 5; reason: Current number of replicas above Spec.MaxReplicas";
    assert!(events(&cluster, "h").await.contains(&("SuccessfulRescale".to_owned(), note.to_owned())));
    // Nothing is scaled that was scaled to nothing by hand.
    deployments(&cluster).patch("web", &PatchParams::default(), &scale(0)).await.unwrap();
    conditions(&cluster, "ScalingActive", "False ScalingDisabled").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(deployments(&cluster).get("web").await.unwrap().spec.replicas, Some(0));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_said() {
    let cluster = Cluster::in_process().await.unwrap();
    autoscaler(&cluster, json!({"maxReplicas": 5, "metrics": cpu(50)})).await;
    let lost = conditions(&cluster, "AbleToScale", "False FailedGetScale").await;
    let message =
        "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found";
    assert_eq!(field(&lost, "/status/conditions/0/message"), message);
    deployment(&cluster, 2, json!({})).await;
    let silent = conditions(&cluster, "ScalingActive", "False FailedGetResourceMetric").await;
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let told = events(&cluster, "h").await;
    assert!(told.contains(&("FailedGetResourceMetric".to_owned(), why.to_owned())), "{told:?}");
    let whole = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
    );
    assert!(told.contains(&("FailedComputeMetricsReplicas".to_owned(), whole)), "{told:?}");
    assert_eq!(field(&silent, "/status/desiredReplicas"), 0);
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_metric_scales() {
    let cluster = Cluster::in_process().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let annotations = json!({"sim.setpoint.dev/metric-hits": "40"});
    create(&maps, &object(json!({"metadata": {"name": "front", "annotations": annotations}}))).await;
    deployment(
        &cluster,
        2,
        json!({
            "sim.setpoint.dev/metric-queue": "20", "sim.setpoint.dev/usage-memory.a": "512Mi"
        }),
    )
    .await;
    let front = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "front"});
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    for (metric, replicas, current) in [
        (
            json!({"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": average("10")}}),
            4,
            json!({"averageValue": "20"}),
        ),
        (
            json!({"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": front, "target": {"type": "Value", "value": "20"}}}),
            4,
            json!({"value": "40"}),
        ),
        (
            json!({"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": front, "target": average("10")}}),
            4,
            json!({"averageValue": "20"}),
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": "mail"}, "target": average("10")}}),
            3,
            json!({"averageValue": "15"}),
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "a", "target": average("256Mi")}}),
            4,
            json!({"averageValue": "512Mi"}),
        ),
    ] {
        let patch = json!({"spec": {"replicas": 2}});
        deployments(&cluster).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        available(&cluster, 2).await;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let metadata = json!({"name": "h", "annotations": {"sim.setpoint.dev/metric-mail": "30"}});
        let spec = json!({"maxReplicas": 10, "metrics": [metric], "scaleTargetRef": target});
        create(&autoscalers(&cluster), &object(json!({"metadata": metadata, "spec": spec}))).await;
        let found = until(&format!("{metric}"), async || {
            let found = autoscalers(&cluster).get("h").await.unwrap();
            (field(&found, "/status/desiredReplicas") == replicas).then_some(found)
        })
        .await;
        let status = field(&found, "/status/currentMetrics/0");
        let status = status.as_object().unwrap().values().find(|value| value.is_object()).unwrap().clone();
        assert_eq!(status["current"], current, "{metric}");
        autoscalers(&cluster).delete("h", &Default::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_metrics_api_is_asked_where_there_is_one_and_custom_kinds_are_scaled() {
    let cluster = Cluster::in_process().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = |group: &str, kind: &str, plural: &str, version: Value| {
        json!({
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, test"}},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [version],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()}
            }
        })
    };
    let metrics = json!({"name": "v1beta1", "served": true, "storage": true, "schema": schema});
    create(&definitions, &object(definition("metrics.k8s.io", "PodMetrics", "pods", metrics))).await;
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"});
    let farms = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}, "scale": scale}});
    create(&definitions, &object(definition("example.com", "Farm", "farms", farms))).await;
    deployment(&cluster, 2, json!({"sim.setpoint.dev/usage-cpu": "100m"})).await;
    let at = |group: &str, version: &str, kind: &str, plural: &str| {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::<DynamicObject>::namespaced_with(cluster.client(), "default", &resource)
    };
    let farm = json!({
        "apiVersion": "example.com/v1", "kind": "Farm", "metadata": {"name": "f"}, "spec": {"replicas": 2}
    });
    let farms = at("example.com", "v1", "Farm", "farms");
    farms.create(&Default::default(), &object(farm)).await.unwrap();
    let status = json!({"status": {"replicas": 2, "selector": "app=web"}});
    farms.patch_status("f", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let now = cluster.env().now().to_string();
    for pod in pods(cluster.client()).list(&ListParams::default()).await.unwrap() {
        let metrics = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": pod.name_any(), "labels": {"app": "web"}},
            "timestamp": now, "window": "0s", "containers": [{"name": "a", "usage": {"cpu": "1500m"}}]
        });
        at("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
            .create(&Default::default(), &object(metrics))
            .await
            .unwrap();
    }
    let target = json!({"apiVersion": "example.com/v1", "kind": "Farm", "name": "f"});
    autoscaler(&cluster, json!({"maxReplicas": 10, "metrics": cpu(100), "scaleTargetRef": target})).await;
    until("the farm grows", async || {
        let farm = farms.get("f").await.unwrap();
        (farm.data["spec"]["replicas"] == 3).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_autoscalers_of_the_same_pods_do_nothing() {
    let cluster = Cluster::in_process().await.unwrap();
    deployment(&cluster, 2, json!({"sim.setpoint.dev/usage-cpu": "1"})).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2, "metrics": cpu(100)});
    create(&autoscalers(&cluster), &object(json!({"metadata": {"name": "other"}, "spec": spec}))).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    autoscaler(&cluster, json!({"minReplicas": 1, "maxReplicas": 5, "metrics": cpu(10)})).await;
    conditions(&cluster, "ScalingActive", "False AmbiguousSelector").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(deployments(&cluster).get("web").await.unwrap().spec.replicas, Some(2));
    cluster.stop().await.unwrap();
}
