//! Autoscalers, with a metrics API made of custom resources, so that all clusters have the same metrics.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Kubectl, Scenario, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "an autoscaler within its bounds", run: bounds },
    Scenario { name: "an autoscaler without its target, or metrics", run: missing },
    Scenario { name: "an autoscaler by processor time", run: processor },
    Scenario { name: "an autoscaler with a behavior", run: behavior },
];

fn apply(kubectl: &Kubectl, object: &Value) -> Result<()> {
    kubectl.file("object.json", object.to_string())?;
    kubectl.ok("apply -f object.json").map(drop)
}

/// The API `metrics.k8s.io`, if nobody has made it yet.
fn metrics_api(kubectl: &Kubectl) -> Result<()> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1beta1", "served": true, "storage": true, "schema": schema});
    let names = json!({"kind": "PodMetrics", "plural": "pods", "singular": "podmetrics"});
    let annotations = json!({"api-approved.kubernetes.io": "unapproved, for a comparison"});
    apply(
        kubectl,
        &json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pods.metrics.k8s.io", "annotations": annotations},
            "spec": {"group": "metrics.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
        }),
    )?;
    kubectl.ok("wait --for=condition=established crd/pods.metrics.k8s.io --timeout=55s").map(drop)
}

/// Says that every pod uses so much of a processor.
fn measure(kubectl: &Kubectl, cpu: &str) -> Result<()> {
    let pods = kubectl.ok("get pods -o jsonpath='{.items[*].metadata.name}'")?;
    for pod in pods.split_whitespace() {
        // The year is one in which every pod has been ready for a window.
        apply(
            kubectl,
            &json!({
                "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
                "metadata": {"name": pod, "labels": {"app": "web"}},
                "timestamp": "2099-01-01T00:00:00Z", "window": "10s",
                "containers": [{"name": "nginx", "usage": {"cpu": cpu, "memory": "10Mi"}}]
            }),
        )?;
    }
    Ok(())
}

fn deployment(kubectl: &Kubectl, replicas: usize) -> Result<()> {
    kubectl.ok(&format!("create deployment web --image=nginx --replicas={replicas}"))?;
    kubectl.ok("set resources deployment/web --requests=cpu=1")?;
    kubectl.ok("rollout status deployment/web --timeout=55s")?;
    wait_for_words(kubectl, "get pods -o name", replicas).map(drop)
}

fn autoscaler(kubectl: &Kubectl, more: &Value) -> Result<()> {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut spec =
        json!({"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 6, "metrics": metrics});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let metadata = json!({"name": "web"});
    apply(
        kubectl,
        &json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}),
    )
}

/// What an autoscaler says.
fn state(kubectl: &Kubectl) -> Result<String> {
    let status = "{.status.currentReplicas} {.status.desiredReplicas} {.status.currentMetrics}";
    let status = kubectl.ok(&format!("get hpa web -o jsonpath='{status}'"))?;
    let conditions = "{range .status.conditions[*]}{.type}={.status}:{.reason} {end}";
    let conditions = sorted(kubectl, "hpa web", conditions)?;
    Ok(format!("{status} | {conditions}"))
}

fn events(kubectl: &Kubectl) -> Result<String> {
    let path = "{range .items[?(@.involvedObject.kind==\"HorizontalPodAutoscaler\")]}{.type}:{.reason}:{.message}{\"\\n\"}{end}";
    let text = kubectl.ok(&format!("get events -o jsonpath='{path}'"))?;
    let mut lines: Vec<&str> = text.lines().filter(|line| line.contains("Rescale")).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.join(", "))
}

fn replicas(kubectl: &Kubectl, number: &str) -> Result<()> {
    wait(
        kubectl,
        "get deployment web -o jsonpath='{.spec.replicas} {.status.availableReplicas}'",
        &format!("{number} {number}"),
    )
}

fn condition(kubectl: &Kubectl, type_: &str, expected: &str) -> Result<()> {
    let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].reason}}");
    wait(kubectl, &format!("get hpa web -o jsonpath='{path}'"), expected)
}

fn bounds(kubectl: &Kubectl) -> Result<String> {
    metrics_api(kubectl)?;
    deployment(kubectl, 1)?;
    autoscaler(kubectl, &json!({}))?;
    replicas(kubectl, "2")?;
    kubectl.ok("scale deployment/web --replicas=8")?;
    replicas(kubectl, "6")?;
    kubectl.ok("scale deployment/web --replicas=0")?;
    condition(kubectl, "ScalingActive", "ScalingDisabled")?;
    wait(kubectl, "get hpa web -o jsonpath='{.status.desiredReplicas}'", "0")?;
    Ok(format!("{} | {}", state(kubectl)?, events(kubectl)?))
}

fn missing(kubectl: &Kubectl) -> Result<String> {
    metrics_api(kubectl)?;
    autoscaler(kubectl, &json!({}))?;
    condition(kubectl, "AbleToScale", "FailedGetScale")?;
    let lost = "{.status.conditions[?(@.type==\"AbleToScale\")].message}";
    let lost = kubectl.ok(&format!("get hpa web -o jsonpath='{lost}'"))?;
    deployment(kubectl, 2)?;
    condition(kubectl, "ScalingActive", "FailedGetResourceMetric")?;
    let silent = "{.status.conditions[?(@.type==\"ScalingActive\")].message}";
    let silent = kubectl.ok(&format!("get hpa web -o jsonpath='{silent}'"))?;
    Ok(format!("{lost} | {silent} | {}", state(kubectl)?))
}

fn processor(kubectl: &Kubectl) -> Result<String> {
    metrics_api(kubectl)?;
    deployment(kubectl, 2)?;
    measure(kubectl, "500m")?;
    autoscaler(kubectl, &json!({}))?;
    condition(kubectl, "AbleToScale", "ReadyForNewScale")?;
    let still = state(kubectl)?;
    // Two pods at 75 % with a target of 50 % are three.
    measure(kubectl, "750m")?;
    replicas(kubectl, "3")?;
    measure(kubectl, "500m")?;
    condition(kubectl, "AbleToScale", "ReadyForNewScale")?;
    measure(kubectl, "100m")?;
    condition(kubectl, "AbleToScale", "ScaleDownStabilized")?;
    Ok(format!("{still} | {} | {}", state(kubectl)?, events(kubectl)?))
}

fn behavior(kubectl: &Kubectl) -> Result<String> {
    metrics_api(kubectl)?;
    deployment(kubectl, 2)?;
    measure(kubectl, "2")?;
    let up = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]});
    let down = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    autoscaler(kubectl, &json!({"behavior": {"scaleUp": up, "scaleDown": down}}))?;
    replicas(kubectl, "3")?;
    measure(kubectl, "2")?;
    condition(kubectl, "ScalingLimited", "ScaleUpLimit")?;
    let limited = state(kubectl)?;
    measure(kubectl, "10m")?;
    replicas(kubectl, "2")?;
    Ok(format!("{limited} | {}", events(kubectl)?))
}
