//! What the examples and the projects of `setpoint new` ensure.

use serde_json::{Value, json};
use setpoint_sim::World;

use super::{api_of, ensured_again};

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "widget", "app.kubernetes.io/instance": "one"})
}

fn pod_template(restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": labels()},
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    })
}

/// As in the templates of owned kinds, in the examples and in the guides.
fn shapes() -> Vec<Value> {
    let ports = json!([{"name": "http", "port": 80}]);
    let bodies = [
        ("v1", "ConfigMap", json!({"data": {"message": "hello", "text": ""}})),
        ("v1", "Secret", json!({"data": {"message": "aGVsbG8="}})),
        ("v1", "ServiceAccount", json!({})),
        ("v1", "Service", json!({"spec": {"selector": labels(), "ports": ports}})),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("v1", "ResourceQuota", json!({"spec": {"hard": {"pods": "10"}}})),
        ("batch/v1", "Job", json!({"spec": {"template": pod_template("Never")}})),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "0 * * * *",
                "jobTemplate": {"spec": {"template": pod_template("Never")}}}}),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": {"matchLabels": labels()}, "template": pod_template("Always")}}),
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 1, "selector": {"matchLabels": labels()},
                "template": pod_template("Always")}}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"replicas": 1, "serviceName": "one",
                "selector": {"matchLabels": labels()}, "template": pod_template("Always")}}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"ingressClassName": null, "rules": [{"http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "one", "port": {"number": 80}}},
            }]}}]}}),
        ),
    ];
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u",
        "controller": true, "blockOwnerDeletion": true});
    let whole = |(api_version, kind, body): (&str, &str, Value)| {
        let mut object = body;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "one", "namespace": "default", "ownerReferences": [owner]});
        object
    };
    bodies.into_iter().map(whole).collect()
}

#[test]
fn a_second_ensure_of_what_the_examples_want_writes_nothing() {
    World::run(5, async |world| {
        let client = world.client_named("controller");
        for wanted in shapes() {
            assert_eq!(ensured_again(&world, &client, &wanted).await, 0, "{wanted}");
            // Nor in the types of k8s-openapi, which say no more than was said.
            let live = api_of(client.clone(), &wanted).get("one").await.unwrap();
            assert_eq!(live.metadata.name.as_deref(), Some("one"));
        }
    });
}
