//! Quotas and limit ranges: what is in use, and how writes are refused.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Kubectl, Scenario, sorted, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a quota of pods and resources", run: resources },
    Scenario { name: "a quota with scopes", run: scopes },
    Scenario { name: "a quota of services, claims and counts", run: counts },
    Scenario { name: "a quota that a deployment runs into", run: deployment },
    Scenario { name: "limit ranges", run: ranges },
];

fn create(kubectl: &Kubectl, object: &Value) -> Result<()> {
    kubectl.file("object.json", object.to_string())?;
    kubectl.ok("create -f object.json").map(drop)
}

/// What kubectl says about an object that is refused.
fn refused(kubectl: &Kubectl, object: &Value) -> Result<String> {
    kubectl.file("object.json", object.to_string())?;
    let finished = kubectl.run("create -f object.json", None)?;
    if finished.status.success() {
        bail!("it was created: {object}");
    }
    Ok(finished.stderr.trim().to_owned())
}

fn pod(name: &str, resources: &Value, more: &Value) -> Value {
    let mut spec = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "b", "resources": resources}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// Makes a quota, and waits until it knows what is in use.
fn quota(kubectl: &Kubectl, name: &str, spec: &Value) -> Result<()> {
    let metadata = json!({"name": name});
    create(
        kubectl,
        &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}),
    )?;
    let number = spec["hard"].as_object().map_or(0, serde_json::Map::len);
    let names = "{{range $k, $v := .status.used}}{{$k}} {{end}}";
    let line = format!("get resourcequota {name} -o go-template='{names}'");
    wait_for_words(kubectl, &line, number).map(drop)
}

/// What a quota says is in use.
fn used(kubectl: &Kubectl, name: &str) -> Result<String> {
    let amounts = "{{range $k, $v := .status.used}}{{$k}}={{$v}} {{end}}";
    let line = format!("get resourcequota {name} -o go-template='{amounts}'");
    Ok(kubectl.ok(&line)?.trim().to_owned())
}

/// Waits until a quota says that so much of something is in use.
fn wait_used(kubectl: &Kubectl, name: &str, resource: &str, amount: &str) -> Result<()> {
    let line = format!("get resourcequota {name} -o go-template='{{{{index .status.used \"{resource}\"}}}}'");
    wait(kubectl, &line, amount)
}

fn resources(kubectl: &Kubectl) -> Result<String> {
    let hard = json!({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "count/pods": "5"});
    quota(kubectl, "small", &json!({"hard": hard}))?;
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"memory": "512Mi"}});
    let silent = refused(kubectl, &pod("silent", &json!({}), &json!({})))?;
    create(kubectl, &pod("a", &asks("600m"), &json!({})))?;
    wait_used(kubectl, "small", "pods", "1")?;
    let greedy = refused(kubectl, &pod("b", &asks("500m"), &json!({})))?;
    create(kubectl, &pod("b", &asks("400m"), &json!({})))?;
    wait_used(kubectl, "small", "pods", "2")?;
    let third = refused(kubectl, &pod("c", &asks("1m"), &json!({})))?;
    let full = used(kubectl, "small")?;
    kubectl.ok("delete pod a --wait")?;
    wait_used(kubectl, "small", "pods", "1")?;
    Ok(format!("{silent} | {greedy} | {third} | {full} | {}", used(kubectl, "small")?))
}

fn scopes(kubectl: &Kubectl) -> Result<String> {
    quota(kubectl, "idle", &json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}))?;
    quota(kubectl, "short", &json!({"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["Terminating"]}))?;
    let expression = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["quota-high"]});
    quota(
        kubectl,
        "high",
        &json!({"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}}),
    )?;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "quota-high"}, "value": 5});
    create(kubectl, &class)?;
    create(kubectl, &pod("idle", &json!({}), &json!({})))?;
    wait_used(kubectl, "idle", "pods", "1")?;
    let idle = refused(kubectl, &pod("idle-2", &json!({}), &json!({})))?;
    let asks = json!({"requests": {"cpu": "500m"}});
    create(kubectl, &pod("short", &asks, &json!({"activeDeadlineSeconds": 3600})))?;
    wait_used(kubectl, "short", "pods", "1")?;
    let short = refused(kubectl, &pod("short-2", &asks, &json!({"activeDeadlineSeconds": 3600})))?;
    let high = refused(kubectl, &pod("high", &asks, &json!({"priorityClassName": "quota-high"})));
    kubectl.ok("delete priorityclass quota-high")?;
    create(kubectl, &pod("other", &asks, &json!({})))?;
    let all = ["idle", "short", "high"].map(|name| used(kubectl, name));
    let [a, b, c] = all;
    Ok(format!("{idle} | {short} | {} | {} {} {}", high?, a?, b?, c?))
}

fn counts(kubectl: &Kubectl) -> Result<String> {
    let hard = json!({
        "services": "3", "services.nodeports": "2", "services.loadbalancers": "1", "persistentvolumeclaims": "2",
        "requests.storage": "3Gi", "none.storageclass.storage.k8s.io/requests.storage": "1Gi",
        "count/deployments.apps": "1", "configmaps": "3", "count/secrets": "1"
    });
    quota(kubectl, "counts", &json!({"hard": hard}))?;
    kubectl.ok("create service nodeport a --tcp=80")?;
    kubectl.ok("create service loadbalancer b --tcp=80")?;
    wait_used(kubectl, "counts", "services.nodeports", "2")?;
    let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let ports = refused(kubectl, &service("c"))?;
    kubectl.ok("patch service b -p '{\"spec\":{\"type\":\"ClusterIP\",\"ports\":[{\"port\":80,\"nodePort\":null}]}}'")?;
    wait_used(kubectl, "counts", "services.loadbalancers", "0")?;
    wait_used(kubectl, "counts", "services.nodeports", "1")?;
    let claim = |name: &str, class: &str, size: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}}}})
    };
    let class = refused(kubectl, &claim("a", "none", "2Gi"))?;
    create(kubectl, &claim("a", "other", "2Gi"))?;
    wait_used(kubectl, "counts", "requests.storage", "2Gi")?;
    let storage = refused(kubectl, &claim("b", "other", "1500Mi"))?;
    kubectl.ok("create deployment web --image=nginx --replicas=0")?;
    wait_used(kubectl, "counts", "count/deployments.apps", "1")?;
    let finished = kubectl.run("create deployment web2 --image=nginx --replicas=0", None)?;
    let deployments = finished.stderr.trim().to_owned();
    kubectl.ok("create configmap a")?;
    kubectl.ok("create secret generic a")?;
    wait_used(kubectl, "counts", "count/secrets", "1")?;
    let full = used(kubectl, "counts")?;
    for object in ["deployment web", "configmap a", "secret a", "service a", "service b"] {
        kubectl.ok(&format!("delete {object}"))?;
    }
    for (resource, amount) in
        [("count/deployments.apps", "0"), ("count/secrets", "0"), ("services", "0"), ("configmaps", "1")]
    {
        wait_used(kubectl, "counts", resource, amount)?;
    }
    Ok(format!("{ports} | {class} | {storage} | {deployments} | {full} | {}", used(kubectl, "counts")?))
}

fn deployment(kubectl: &Kubectl) -> Result<String> {
    quota(kubectl, "few", &json!({"hard": {"pods": "2"}}))?;
    kubectl.ok("create deployment web --image=nginx --replicas=3")?;
    wait(kubectl, "get deployment web -o jsonpath='{.status.availableReplicas}'", "2")?;
    let reason = "{.status.conditions[?(@.type==\"ReplicaFailure\")].reason}";
    wait(kubectl, &format!("get deployment web -o jsonpath='{reason}'"), "FailedCreate")?;
    kubectl.ok("patch resourcequota few -p '{\"spec\":{\"hard\":{\"pods\":\"3\"}}}'")?;
    wait(kubectl, "get deployment web -o jsonpath='{.status.availableReplicas}'", "3")?;
    wait_used(kubectl, "few", "pods", "3")?;
    let events = "{range .items[?(@.involvedObject.kind==\"ReplicaSet\")]}{.type}:{.reason} {end}";
    Ok(format!("{} | {}", used(kubectl, "few")?, sorted(kubectl, "events", events)?))
}

fn ranges(kubectl: &Kubectl) -> Result<String> {
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m", "memory": "256Mi"}, "defaultRequest": {"cpu": "100m"},
         "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "maxLimitRequestRatio": {"cpu": "10"}},
        {"type": "Pod", "max": {"memory": "1Gi"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    ]);
    create(
        kubectl,
        &json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": limits}}),
    )?;
    // kube-apiserver learns of it by a watch, and has no other sign that it did.
    let is_there = || -> Result<Option<()>> {
        kubectl.file("object.json", pod("probe", &json!({}), &json!({})).to_string())?;
        let made = kubectl.ok(
            "create -f object.json --dry-run=server -o jsonpath='{.spec.containers[0].resources.limits.cpu}'",
        )?;
        Ok((made == "500m").then_some(()))
    };
    super::poll(super::LIMIT, is_there)?.context("the limit range has no effect")?;
    create(kubectl, &pod("a", &json!({"requests": {"memory": "64Mi"}}), &json!({})))?;
    let made = "{.spec.containers[0].resources} {.metadata.annotations.kubernetes\\.io/limit-ranger}";
    let made = kubectl.ok(&format!("get pod a -o jsonpath='{made}'"))?;
    let mut all = vec![made];
    for resources in [
        json!({"limits": {"cpu": "2"}}),
        json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "50m"}}),
        json!({"requests": {"cpu": "60m"}, "limits": {"cpu": "900m"}}),
        json!({"limits": {"memory": "2Gi"}}),
    ] {
        all.push(refused(kubectl, &pod("b", &resources, &json!({})))?);
    }
    for size in ["100Mi", "3Gi"] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "x", "resources": {"requests": {"storage": size}}});
        all.push(refused(kubectl, &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}))?);
    }
    Ok(all.join(" | "))
}
