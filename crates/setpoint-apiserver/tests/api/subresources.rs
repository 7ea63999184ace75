//! What has a path below an object.

mod certificates;
mod custom;
mod pods;

use serde_json::{Value, json};

use crate::support::{Api, DEPLOYMENTS, MAPS, PODS, deployment, map, pod, version};

#[tokio::test]
async fn a_workload_is_scaled_through_its_scale() {
    let api = Api::new();
    let created = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web/scale");
    let scale = api.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 3}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=web"}));
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    let patched = api.merge(&path, &json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!(patched["spec"]["replicas"], 5);
    let mut scale = patched;
    scale["spec"]["replicas"] = 0.into();
    api.put(&path, &scale).await.ok();
    let object = api.get(&format!("{DEPLOYMENTS}/web")).await.ok();
    assert_eq!((&object["spec"]["replicas"], &object["metadata"]["generation"]), (&json!(0), &json!(3)));
    assert_eq!(api.put(&path, &scale).await.reason(), "Conflict", "its version is stale by now");
    let negative = api.merge(&path, &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.code, 422);
    assert!(negative.message().contains("spec.replicas: Invalid value: -1"), "{}", negative.message());
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/none/scale")).await.code, 404);
    assert_eq!(api.get(&format!("{MAPS}/a/scale")).await.code, 404);
}

#[tokio::test]
async fn a_binding_places_a_pod_once() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "node-1"}});
    let bound = api.post(&format!("{PODS}/web/binding"), &binding).await;
    assert_eq!(bound.code, 201);
    let placed = api.get(&format!("{PODS}/web")).await.ok();
    assert_eq!(placed["spec"]["nodeName"], "node-1");
    assert_eq!(placed["status"]["conditions"][0]["type"], "PodScheduled");
    let again = api.post(&format!("{PODS}/web/binding"), &binding).await;
    assert_eq!((again.code, again.reason()), (409, "Conflict"));
    api.post(PODS, &pod("other")).await.ok();
    let old = json!({"metadata": {"name": "other"}, "target": {"name": "node-2"}});
    api.post("/api/v1/namespaces/default/bindings", &old).await.ok();
    assert_eq!(api.get(&format!("{PODS}/other")).await.ok()["spec"]["nodeName"], "node-2");
    let nowhere = json!({"metadata": {"name": "web"}, "target": {}});
    let nowhere = api.post(&format!("{PODS}/web/binding"), &nowhere).await;
    assert_eq!(nowhere.code, 422);
}

#[tokio::test]
async fn a_binding_is_for_the_pod_that_it_was_decided_for() {
    let api = Api::new();
    let created = api.post(PODS, &pod("web")).await.ok();
    let path = format!("{PODS}/web/binding");
    let nominated = json!({"status": {"nominatedNodeName": "node-2"}});
    let newer = api.merge(&format!("{PODS}/web/status"), &nominated).await.ok();
    let binding = |metadata: Value| json!({"metadata": metadata, "target": {"name": "node-1"}});
    let other = api.post(&path, &binding(json!({"name": "other"}))).await;
    other.refused(400, "name in URL does not match name in Binding object");
    let stale = json!({"name": "web", "resourceVersion": created["metadata"]["resourceVersion"]});
    assert_eq!(api.post(&path, &binding(stale)).await.reason(), "Conflict");
    let uid = api.post(&path, &binding(json!({"name": "web", "uid": "another"}))).await;
    assert_eq!(uid.reason(), "Conflict");
    let nowhere = api.post(&path, &json!({"metadata": {"name": "web"}, "target": {"name": "a node"}})).await;
    assert_eq!(nowhere.code, 422);
    let fresh = json!({"name": "web", "resourceVersion": newer["metadata"]["resourceVersion"]});
    assert_eq!(api.post(&path, &binding(fresh)).await.code, 201);
    let placed = api.get(&format!("{PODS}/web")).await.ok();
    assert_eq!(placed["spec"]["nodeName"], "node-1");
    assert_eq!(placed["status"]["nominatedNodeName"], Value::Null);
    assert_eq!(placed["metadata"]["generation"], 1, "a binding is no change of intent");
}

#[tokio::test]
async fn a_volume_remembers_when_its_phase_changed() {
    let api = Api::new();
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    });
    let created = api.post(volumes, &volume).await.ok();
    let first = &created["status"]["lastPhaseTransitionTime"];
    let path = format!("{volumes}/v/status");
    let replaced = json!({"metadata": {"name": "v"}, "status": {"phase": "Pending", "message": "m"}});
    let same = api.put(&path, &replaced).await.ok();
    assert_eq!(&same["status"]["lastPhaseTransitionTime"], first);
    let old = json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
    let given = api.merge(&path, &old).await.ok();
    assert_eq!(given["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
    let released = api.merge(&path, &json!({"status": {"phase": "Released"}})).await.ok();
    assert_eq!(&released["status"]["lastPhaseTransitionTime"], first, "the clock stands still here");
}

#[tokio::test]
async fn an_eviction_respects_the_disruption_budget() {
    let api = Api::new();
    let mut web = pod("web");
    web["metadata"]["labels"] = json!({"app": "web"});
    api.post(PODS, &web).await.ok();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let running = json!({"status": {"phase": "Running", "conditions": ready}});
    api.merge(&format!("{PODS}/web/status"), &running).await.ok();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    api.post(budgets, &budget).await.ok();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    let path = format!("{PODS}/web/eviction");
    assert_eq!(api.post(&path, &eviction).await.code, 429, "nobody has looked at the budget yet");
    let status = |allowed: u8| {
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})
    };
    api.merge(&format!("{budgets}/b/status"), &status(0)).await.ok();
    let refused = api.post(&path, &eviction).await;
    assert_eq!((refused.code, refused.reason()), (429, "TooManyRequests"));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "DisruptionBudget");
    let mut second = budget.clone();
    second["metadata"]["name"] = json!("c");
    api.post(budgets, &second).await.ok();
    let unclear = api.post(&path, &eviction).await;
    // Operators compare the text.
    let why =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((unclear.code, unclear.message(), &unclear.body["reason"]), (500, why, &Value::Null));
    api.delete(&format!("{budgets}/c"), &Value::Null).await.ok();
    api.merge(&format!("{budgets}/b/status"), &status(1)).await.ok();
    assert_eq!(api.post(&path, &eviction).await.code, 201);
    assert_eq!(api.get(&format!("{PODS}/web")).await.code, 404);
    let spent = api.get(&format!("{budgets}/b")).await.ok();
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert!(spent["status"]["disruptedPods"]["web"].is_string());
}

/// A pod that is not ready is no loss, where the budget says so or enough others are ready; and a pod that goes says why.
#[tokio::test]
async fn an_eviction_spends_nothing_for_a_pod_that_is_not_ready() {
    let api = Api::new();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": selector}});
    api.post(budgets, &budget).await.ok();
    let status = |generation: u8, healthy: u8| {
        json!({"status": {"observedGeneration": generation, "disruptionsAllowed": 0,
        "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3}})
    };
    let evict = async |name: &str| {
        let mut web = pod(name);
        web["metadata"]["labels"] = json!({"app": "web"});
        // It stays, so that it can be looked at.
        web["metadata"]["finalizers"] = json!(["example.com/hold"]);
        api.post(PODS, &web).await.ok();
        api.merge(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": "Running"}})).await.ok();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let code = api.post(&format!("{PODS}/{name}/eviction"), &eviction).await.code;
        let pod = api.get(&format!("{PODS}/{name}")).await.ok();
        (code, pod["metadata"]["deletionTimestamp"].is_string(), pod["status"]["conditions"][0].clone())
    };
    api.merge(&format!("{budgets}/b/status"), &status(1, 1)).await.ok();
    let (code, is_deleted, condition) = evict("few").await;
    assert_eq!((code, is_deleted, condition), (429, false, Value::Null));
    api.merge(&format!("{budgets}/b/status"), &status(1, 2)).await.ok();
    let (code, is_deleted, condition) = evict("enough").await;
    assert_eq!((code, is_deleted), (201, true));
    assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionTarget"), &json!("True")));
    assert_eq!(condition["reason"], "EvictionByEvictionAPI");
    assert_eq!(condition["message"], "Eviction API: evicting");
    api.merge(&format!("{budgets}/b"), &json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}))
        .await
        .ok();
    api.merge(&format!("{budgets}/b/status"), &status(2, 0)).await.ok();
    assert_eq!(evict("always").await.0, 201);
    assert_eq!(api.get(&format!("{budgets}/b")).await.ok()["status"].get("disruptedPods"), None);
}

#[tokio::test]
async fn what_needs_a_kubelet_says_so() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    for path in ["log", "exec", "attach", "portforward", "proxy"] {
        let answer = api.get(&format!("{PODS}/web/{path}")).await;
        assert_eq!(answer.code, 503, "{path}: {}", answer.body);
        assert!(answer.message().contains("kubelet"), "{}", answer.message());
        assert_eq!(api.get(&format!("{PODS}/none/{path}")).await.code, 404);
    }
}

#[tokio::test]
async fn both_event_apis_show_the_same_events() {
    let api = Api::new();
    let core = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c",
        "reportingInstance": "i", "action": "Start", "reason": "Started", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "web", "namespace": "default"}, "note": "it runs"
    });
    api.post(new, &event).await.ok();
    let seen = api.get(&format!("{core}/e")).await.ok();
    assert_eq!((&seen["message"], &seen["involvedObject"]["name"]), (&json!("it runs"), &json!("web")));
    assert_eq!((&seen["apiVersion"], &seen["reportingComponent"]), (&json!("v1"), &json!("c")));
    let selected = api.get(&format!("{core}?fieldSelector=involvedObject.name%3Dweb")).await;
    assert_eq!(selected.names(), ["e"]);
    let selected = api.get(&format!("{new}?fieldSelector=regarding.name%3Dother")).await;
    assert_eq!(selected.names(), [""; 0]);
    let listed = api.get(new).await.ok();
    assert_eq!(listed["items"][0]["note"], "it runs");
    let mut watch = api.watch(&format!("{new}?watch=true")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["regarding"]["name"], "web");
}

#[tokio::test]
async fn a_horizontal_pod_autoscaler_is_one_object_in_two_versions() {
    let api = Api::new();
    let v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let v2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let object = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "targetCPUUtilizationPercentage": 80}});
    let created = api.post(v1, &object).await.ok();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &json!(80))
    );
    let other = api.get(&format!("{v2}/h")).await.ok();
    assert_eq!(other["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    assert_eq!(version(&other), version(&created));
    api.merge(&format!("{v2}/h"), &json!({"spec": {"maxReplicas": 7}})).await.ok();
    assert_eq!(api.get(&format!("{v1}/h")).await.ok()["spec"]["maxReplicas"], 7);
}

#[tokio::test]
async fn questions_are_answered_and_not_stored() {
    let api = Api::new();
    let who = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(who.code, 201);
    let user = &who.body["status"]["userInfo"];
    assert_eq!(user["username"], "kubernetes-admin");
    assert!(user["groups"].as_array().unwrap().contains(&"system:authenticated".into()));
    let may = |attributes: Value| json!({"spec": {"resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = api.post(path, &may(json!({"verb": "delete", "resource": "nodes"}))).await.ok();
    assert_eq!(answer["status"]["allowed"], true);
    let mut other = may(json!({"verb": "get", "resource": "pods"}));
    other["spec"]["user"] = "jane".into();
    let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &other).await.ok();
    assert_eq!(answer["status"]["allowed"], false);
    assert_eq!(api.get(path).await.code, 405);
}

#[tokio::test]
async fn nothing_is_created_in_a_dry_scale() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web/scale?dryRun=All");
    assert_eq!(api.merge(&path, &json!({"spec": {"replicas": 5}})).await.ok()["spec"]["replicas"], 5);
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/web")).await.ok()["spec"]["replicas"], 3);
    api.post(MAPS, &map("a", "x")).await.ok();
}

/// What kube-apiserver 1.37 answers.
#[tokio::test]
async fn the_body_of_a_subresource_names_the_object_of_the_path() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let (binding, eviction) = (format!("{PODS}/web/binding"), format!("{PODS}/web/eviction"));
    let bindings = "/api/v1/namespaces/default/bindings".to_owned();
    let scale = format!("{DEPLOYMENTS}/web/scale");
    let other_name = |kind: &str| format!("name in URL does not match name in {kind} object");
    let none =
        "the name of the object (web based on URL) was undeterminable: name must be provided".to_owned();
    let other = "the name of the object (other) does not match the name on the URL (web)".to_owned();
    let elsewhere = "the namespace of the provided object does not match the namespace sent on the request";
    for (method, path, metadata, message) in [
        ("POST", &binding, json!({}), other_name("Binding")),
        ("POST", &binding, Value::Null, other_name("Binding")),
        ("POST", &binding, json!({"name": "web", "namespace": "kube-system"}), elsewhere.to_owned()),
        ("POST", &bindings, json!({}), "Name parameter required.".to_owned()),
        ("POST", &bindings, json!({"name": "web", "namespace": "kube-system"}), elsewhere.to_owned()),
        ("POST", &eviction, json!({}), other_name("Eviction")),
        ("POST", &eviction, json!({"name": "web", "namespace": "kube-system"}), elsewhere.to_owned()),
        ("PUT", &scale, json!({}), none),
        ("PUT", &scale, json!({"name": "other"}), other),
        ("PUT", &scale, json!({"name": "web", "namespace": "kube-system"}), elsewhere.to_owned()),
    ] {
        let body = json!({"metadata": metadata, "target": {"name": "n"}, "spec": {"replicas": 7}});
        let body = match path.rsplit('/').next() {
            Some("eviction") => json!({"metadata": metadata}),
            Some("scale") => json!({"metadata": metadata, "spec": {"replicas": 7}}),
            _ => body,
        };
        let answer = api.call(method, path, "application/json", body.to_string()).await;
        assert_eq!((answer.code, answer.message()), (400, message.as_str()), "{method} {path} {body}");
    }
    assert_eq!(api.get(&format!("{PODS}/web")).await.ok()["spec"].get("nodeName"), None);
    assert_ne!(api.get(&format!("{DEPLOYMENTS}/web")).await.ok()["spec"]["replicas"], 7);
}
