//! `/ephemeralcontainers` and `/resize` of a pod take their own fields from a request, and nothing else.

use serde_json::{Value, json};

use crate::support::{Api, PODS, pod};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn debugger(name: &str) -> Value {
    json!({"name": name, "image": "busybox", "targetContainerName": "web"})
}

/// A pod with resources; Burstable.
fn sized(name: &str) -> Value {
    let mut sized = pod(name);
    sized["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}});
    sized
}

/// What may have changed is left out.
fn without(object: &Value, pointers: &[&str]) -> Value {
    let mut rest = object.clone();
    let always = ["/metadata/resourceVersion", "/metadata/generation", "/metadata/managedFields"];
    for pointer in always.iter().chain(pointers) {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        if let Some(parent) = rest.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(field);
        }
    }
    rest
}

/// Everything that somebody may try to slip in beside the fields of a subresource.
fn tampered(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["labels"] = json!({"app": "evil"});
    pod["metadata"]["annotations"] = json!({"a": "evil"});
    pod["metadata"]["finalizers"] = json!(["evil.example/hold"]);
    pod["spec"]["containers"][0]["image"] = "evil".into();
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    pod["spec"]["serviceAccountName"] = "admin".into();
    pod["spec"]["serviceAccount"] = "admin".into();
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["nodeName"] = "node-1".into();
    pod["status"]["phase"] = "Succeeded".into();
    pod
}

#[tokio::test]
async fn a_put_of_ephemeral_containers_changes_nothing_else_of_the_pod() {
    let api = Api::new();
    let created = api.post(PODS, &pod("web")).await.ok();
    let mut wanted = tampered(&created);
    wanted["spec"]["ephemeralContainers"] = json!([debugger("debug")]);
    let changed = api.put(&format!("{PODS}/web/ephemeralcontainers"), &wanted).await.ok();
    assert_eq!(changed["spec"]["ephemeralContainers"][0]["image"], "busybox");
    assert_eq!(changed["metadata"]["generation"], 2);
    let ours = ["/spec/ephemeralContainers"];
    assert_eq!(without(&changed, &ours), without(&created, &ours));
    assert_eq!(api.get(&format!("{PODS}/web")).await.ok(), changed);
}

#[tokio::test]
async fn a_put_may_carry_ephemeral_containers_alone() {
    let api = Api::new();
    let created = api.post(PODS, &pod("web")).await.ok();
    let wanted = json!({"metadata": {"name": "web"}, "spec": {"ephemeralContainers": [debugger("debug")]}});
    let changed = api.put(&format!("{PODS}/web/ephemeralcontainers"), &wanted).await.ok();
    assert_eq!(changed["spec"]["ephemeralContainers"][0]["name"], "debug");
    let ours = ["/spec/ephemeralContainers"];
    assert_eq!(without(&changed, &ours), without(&created, &ours));
}

#[tokio::test]
async fn every_sort_of_patch_takes_only_the_ephemeral_containers() {
    let patches = [
        (
            "application/json-patch+json",
            json!([
                {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"},
                {"op": "add", "path": "/metadata/labels", "value": {"app": "evil"}},
                {"op": "replace", "path": "/status/phase", "value": "Failed"},
                {"op": "add", "path": "/spec/ephemeralContainers", "value": [debugger("debug")]},
            ]),
        ),
        (
            "application/merge-patch+json",
            json!({
                "metadata": {"labels": {"app": "evil"}}, "status": {"phase": "Failed"},
                "spec": {
                    "containers": [{"name": "web", "image": "evil"}], "ephemeralContainers": [debugger("debug")],
                },
            }),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({
                "metadata": {"labels": {"app": "evil"}}, "status": {"phase": "Failed"},
                "spec": {
                    "containers": [{"name": "web", "image": "evil"}], "ephemeralContainers": [debugger("debug")],
                },
            }),
        ),
        (
            "application/apply-patch+yaml",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "web", "labels": {"app": "evil"}}, "status": {"phase": "Failed"},
                "spec": {
                    "containers": [{"name": "web", "image": "evil"}], "ephemeralContainers": [debugger("debug")],
                },
            }),
        ),
    ];
    for (media, patch) in patches {
        let api = Api::new();
        let created = api.post(PODS, &pod("web")).await.ok();
        let path = format!("{PODS}/web/ephemeralcontainers?fieldManager=debugger");
        let path = if media.contains("apply") { format!("{path}&force=true") } else { path };
        let changed = api.call("PATCH", &path, media, patch.to_string()).await.ok();
        assert_eq!(changed["spec"]["ephemeralContainers"][0]["name"], "debug", "{media}");
        let ours = ["/spec/ephemeralContainers"];
        assert_eq!(without(&changed, &ours), without(&created, &ours), "{media}");
        let entries = changed["metadata"]["managedFields"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["manager"] == "debugger").expect("an entry");
        let fields = entry["fieldsV1"].as_object().unwrap();
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["f:spec"], "{media}");
        let spec = fields["f:spec"].as_object().unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), ["f:ephemeralContainers"], "{media}");
    }
}

#[tokio::test]
async fn an_ephemeral_container_is_added_and_then_stays() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let path = format!("{PODS}/web/ephemeralcontainers");
    let add = json!({"spec": {"ephemeralContainers": [debugger("debug")]}});
    api.call("PATCH", &path, "application/strategic-merge-patch+json", add.to_string()).await.ok();
    let other = json!({"spec": {"ephemeralContainers": [debugger("other")]}});
    let both =
        api.call("PATCH", &path, "application/strategic-merge-patch+json", other.to_string()).await.ok();
    assert_eq!(both["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
    let gone = api.merge(&path, &json!({"spec": {"ephemeralContainers": null}})).await;
    assert_eq!(gone.code, 422);
    assert!(gone.message().contains("existing ephemeral containers \"debug\" may not be removed"));
    let mut changed = debugger("debug");
    changed["image"] = "evil".into();
    let changed = json!({"spec": {"ephemeralContainers": [changed, debugger("other")]}});
    let changed = api.merge(&path, &changed).await;
    assert_eq!(changed.code, 422);
    assert!(changed.message().contains("existing ephemeral containers \"debug\" may not be changed"));
    let mut whole = api.get(&format!("{PODS}/web")).await.ok();
    whole["spec"]["ephemeralContainers"] = json!([debugger("third")]);
    assert_eq!(api.put(&format!("{PODS}/web"), &whole).await.code, 422, "the pod itself does not take them");
}

#[tokio::test]
async fn a_static_pod_takes_no_ephemeral_containers() {
    let api = Api::new();
    let mut mirror = pod("static");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["spec"]["nodeName"] = "node-1".into();
    api.post(PODS, &mirror).await.ok();
    let wanted = json!({"spec": {"ephemeralContainers": [debugger("debug")]}});
    api.merge(&format!("{PODS}/static/ephemeralcontainers"), &wanted).await.refused(
        422,
        "Pod \"static\" is invalid: : Forbidden: static pods do not support ephemeral containers",
    );
    let wanted = json!({"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "1"}}}]}});
    let path = format!("{PODS}/static/resize");
    let resized =
        api.call("PATCH", &path, "application/strategic-merge-patch+json", wanted.to_string()).await;
    resized.refused(422, "Pod \"static\" is invalid: : Forbidden: static pods cannot be resized");
}

/// Refuses pods with an image that has `evil` in its name, on some resources.
async fn forbid_evil(api: &Api, resources: &[&str]) {
    let policy = json!({
        "metadata": {"name": "images"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": resources,
            }]},
            "validations": [{
                "expression": "!object.spec.containers.exists(c, c.image == 'evil') && \
                               !(has(object.spec.ephemeralContainers) && \
                                 object.spec.ephemeralContainers.exists(c, c.image == 'evil'))",
                "message": "no evil images",
            }],
        },
    });
    api.post(POLICIES, &policy).await.ok();
    let binding = json!({
        "metadata": {"name": "images"}, "spec": {"policyName": "images", "validationActions": ["Deny"]},
    });
    api.post(BINDINGS, &binding).await.ok();
}

#[tokio::test]
async fn a_policy_on_pods_cannot_be_passed_through_a_subresource() {
    let api = Api::new();
    forbid_evil(&api, &["pods"]).await;
    api.post(PODS, &sized("web")).await.ok();
    let path = format!("{PODS}/web");
    let evil = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]);
    let media = "application/json-patch+json";
    let refused = api.call("PATCH", &path, media, evil.to_string()).await;
    assert!(refused.message().contains("no evil images"), "{}", refused.message());
    for part in ["ephemeralcontainers", "resize", "status"] {
        api.call("PATCH", &format!("{path}/{part}"), media, evil.to_string()).await.ok();
        assert_eq!(api.get(&path).await.ok()["spec"]["containers"][0]["image"], "nginx", "{part}");
    }
}

#[tokio::test]
async fn a_policy_on_a_subresource_sees_what_goes_through_it() {
    let api = Api::new();
    forbid_evil(&api, &["pods/ephemeralcontainers"]).await;
    api.post(PODS, &pod("web")).await.ok();
    let mut evil = debugger("debug");
    evil["image"] = "evil".into();
    let path = format!("{PODS}/web/ephemeralcontainers");
    let refused = api.merge(&path, &json!({"spec": {"ephemeralContainers": [evil]}})).await;
    assert!(refused.message().contains("no evil images"), "{}", refused.message());
    api.merge(&path, &json!({"spec": {"ephemeralContainers": [debugger("debug")]}})).await.ok();
    let image = json!({"spec": {"containers": [{"name": "web", "image": "evil"}]}});
    let path = format!("{PODS}/web");
    api.call("PATCH", &path, "application/strategic-merge-patch+json", image.to_string()).await.ok();
}

#[tokio::test]
async fn a_resize_changes_the_resources_of_containers_and_nothing_else() {
    let api = Api::new();
    let created = api.post(PODS, &sized("web")).await.ok();
    let mut wanted = tampered(&created);
    let container = &mut wanted["spec"]["containers"][0];
    container["resources"]["requests"]["cpu"] = "150m".into();
    container["resources"]["limits"]["memory"] = "256Mi".into();
    wanted["spec"]["ephemeralContainers"] = json!([debugger("debug")]);
    let resized = api.put(&format!("{PODS}/web/resize"), &wanted).await.ok();
    let container = &resized["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}})
    );
    assert_eq!(resized["metadata"]["generation"], 2);
    let ours = ["/spec/containers/0/resources"];
    assert_eq!(without(&resized, &ours), without(&created, &ours));
    let patch = json!({"spec": {"containers": [{
        "name": "web", "image": "evil", "resources": {"requests": {"cpu": "160m"}},
    }]}});
    let path = format!("{PODS}/web/resize");
    let media = "application/strategic-merge-patch+json";
    let patched = api.call("PATCH", &path, media, patch.to_string()).await.ok();
    assert_eq!(patched["spec"]["containers"][0]["resources"]["requests"]["cpu"], "160m");
    assert_eq!(patched["spec"]["containers"][0]["image"], "nginx");
}

#[tokio::test]
async fn what_a_resize_may_not_do_is_refused() {
    let api = Api::new();
    let mut other = sized("web");
    other["spec"]["initContainers"] = json!([{
        "name": "first", "image": "nginx", "resources": {"requests": {"cpu": "10m"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }]);
    let created = api.post(PODS, &other).await.ok();
    let resources = "/spec/containers/0/resources";
    let cases = [
        (
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
            vec![
                (
                    resources,
                    json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                ),
                (
                    "/spec/initContainers/0/resources",
                    json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                ),
            ],
        ),
        (
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            vec![(resources, json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}}))],
        ),
        (
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            vec![(resources, json!({"requests": {"cpu": "100m", "memory": "64Mi"}}))],
        ),
        (
            "spec: Forbidden: only cpu and memory resources are mutable",
            vec![("/spec/containers/0/resources/requests/ephemeral-storage", json!("1Gi"))],
        ),
        (
            "spec: Forbidden: only cpu and memory resources are mutable",
            vec![(
                "/spec/containers/0/resizePolicy",
                json!([
                    {"resourceName": "cpu", "restartPolicy": "RestartContainer"},
                    {"resourceName": "memory", "restartPolicy": "NotRequired"},
                ]),
            )],
        ),
        (
            "spec.containers: Forbidden: containers may not be added or removed on resize",
            vec![(
                "/spec/containers",
                json!([{"name": "web", "image": "evil"}, {"name": "b", "image": "evil"}]),
            )],
        ),
        (
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            vec![("/spec/containers/0/name", json!("other"))],
        ),
        (
            "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
            vec![("/spec/initContainers", json!([]))],
        ),
        (
            "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
            vec![("/spec/initContainers/0/resources/requests/ephemeral-storage", json!("1Gi"))],
        ),
    ];
    for (expect, edits) in cases {
        let mut wanted = created.clone();
        for (pointer, value) in edits {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let parent = wanted.pointer_mut(parent).unwrap();
            match field.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[field] = value,
            }
        }
        let refused = api.put(&format!("{PODS}/web/resize"), &wanted).await;
        assert_eq!(refused.code, 422, "{expect}: {}", refused.body);
        assert!(refused.message().contains(expect), "{expect}: {}", refused.message());
        assert_eq!(api.get(&format!("{PODS}/web")).await.ok(), created);
    }
}

#[tokio::test]
async fn a_pod_on_a_node_that_cannot_resize_stays_as_it_is() {
    let api = Api::new();
    api.post(PODS, &sized("web")).await.ok();
    let running = |resources: Value| {
        let mut status = json!({
            "name": "web", "image": "nginx", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        });
        if !resources.is_null() {
            status["resources"] = resources;
        }
        json!({"status": {"containerStatuses": [status]}})
    };
    api.merge(&format!("{PODS}/web/status"), &running(Value::Null)).await.ok();
    let wanted =
        json!({"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "110m"}}}]}});
    let path = format!("{PODS}/web/resize");
    let media = "application/strategic-merge-patch+json";
    api.call("PATCH", &path, media, wanted.to_string()).await.refused(
        422,
        "Pod \"web\" is invalid: spec: Forbidden: Pod running on node without support for resize",
    );
    api.merge(&format!("{PODS}/web/status"), &running(json!({"requests": {"cpu": "100m"}}))).await.ok();
    api.call("PATCH", &path, media, wanted.to_string()).await.ok();
}

#[tokio::test]
async fn a_pod_itself_takes_neither_a_status_nor_other_resources() {
    let api = Api::new();
    let created = api.post(PODS, &sized("web")).await.ok();
    let mut wanted = created.clone();
    wanted["status"]["phase"] = "Succeeded".into();
    assert_eq!(api.put(&format!("{PODS}/web"), &wanted).await.ok(), created, "nothing was written");
    wanted["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m".into();
    assert_eq!(api.put(&format!("{PODS}/web"), &wanted).await.code, 422);
}

#[tokio::test]
async fn a_namespace_is_finalized_with_its_metadata_and_keeps_its_status() {
    let api = Api::new();
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.ok();
    let mut wanted = api.get("/api/v1/namespaces/team").await.ok();
    wanted["spec"]["finalizers"] = json!(["example.com/more", "kubernetes"]);
    wanted["metadata"]["labels"]["a"] = "b".into();
    wanted["status"]["phase"] = "Terminating".into();
    let changed = api.put("/api/v1/namespaces/team/finalize", &wanted).await.ok();
    assert_eq!(changed["spec"]["finalizers"], json!(["example.com/more", "kubernetes"]));
    assert_eq!(changed["metadata"]["labels"]["a"], "b");
    assert_eq!(changed["status"]["phase"], "Active");
}

#[tokio::test]
async fn a_status_writes_the_metadata_that_the_kind_lets_it_write() {
    let api = Api::new();
    let flows = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let flow = json!({
        "metadata": {"name": "f"},
        "spec": {"matchingPrecedence": 500, "priorityLevelConfiguration": {"name": "exempt"}},
    });
    api.post(flows, &flow).await.ok();
    let tampered = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/hold"]}});
    let kept = api.merge(&format!("{flows}/f/status"), &tampered).await.ok();
    assert_eq!((&kept["metadata"]["labels"], &kept["metadata"]["finalizers"]), (&Value::Null, &Value::Null));
    // The controllers of definitions take their finalizer off through the status.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    api.post(definitions, &definition).await.ok();
    let path = format!("{definitions}/foos.example.com/status");
    let taken = api.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(taken["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn a_condition_keeps_the_generation_that_it_is_about() {
    let api = Api::new();
    api.post(PODS, &pod("web")).await.ok();
    let path = format!("{PODS}/web/status");
    let ready = |generation: Value| {
        let mut condition = json!({"type": "Ready", "status": "True"});
        if !generation.is_null() {
            condition["observedGeneration"] = generation;
        }
        json!({"status": {"conditions": [condition, {"type": "Initialized", "status": "True"}]}})
    };
    api.merge(&path, &ready(json!(3))).await.ok();
    let kept = api.merge(&path, &ready(Value::Null)).await.ok();
    assert_eq!(kept["status"]["conditions"][0]["observedGeneration"], 3);
    assert_eq!(kept["status"]["conditions"][1].get("observedGeneration"), None);
    let newer = api.merge(&path, &ready(json!(4))).await.ok();
    assert_eq!(newer["status"]["conditions"][0]["observedGeneration"], 4);
}
