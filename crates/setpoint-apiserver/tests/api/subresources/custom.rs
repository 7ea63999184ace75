//! The subresources of custom resources take what their definition says.

use serde_json::{Value, json};

use crate::support::Api;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

async fn defined() -> Api {
    let api = Api::new();
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "data": {"type": "string"},
        },
    });
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size.count", "statusReplicasPath": ".status.count"},
                },
            }],
        },
    });
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    api
}

fn without_version(object: &Value) -> Value {
    let mut rest = object.clone();
    for field in ["resourceVersion", "managedFields", "generation"] {
        rest["metadata"].as_object_mut().unwrap().remove(field);
    }
    rest
}

#[tokio::test]
async fn a_status_is_all_that_its_path_takes() {
    let api = defined().await;
    let foo = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a", "labels": {"a": "b"}},
        "spec": {"size": {"count": 1}, "x": "y"}, "status": {"count": 9}, "data": "d",
    });
    let created = api.post(FOOS, &foo).await.ok();
    assert_eq!(created.get("status"), None);
    let tampered = json!({
        "metadata": {"labels": {"a": "evil"}, "annotations": {"a": "evil"}, "finalizers": ["example.com/evil"]},
        "spec": {"size": {"count": 7}, "x": "evil"}, "status": {"count": 1}, "data": "evil",
    });
    let mut expect = created.clone();
    expect["status"] = json!({"count": 1});
    let changed = api.merge(&format!("{FOOS}/a/status"), &tampered).await.ok();
    assert_eq!(without_version(&changed), without_version(&expect));
    assert_eq!(changed["metadata"]["generation"], 1);
    let mut put = changed.clone();
    put["spec"] = json!({});
    put["data"] = "evil".into();
    put["metadata"]["labels"] = json!({});
    put.as_object_mut().unwrap().remove("status");
    let changed = api.put(&format!("{FOOS}/a/status"), &put).await.ok();
    assert_eq!(without_version(&changed), without_version(&created));
    let main = api.merge(&format!("{FOOS}/a"), &json!({"data": "new", "status": {"count": 5}})).await.ok();
    assert_eq!((&main["data"], main.get("status")), (&json!("new"), None));
    assert_eq!(main["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_scale_writes_the_replicas_where_the_definition_has_them() {
    let api = defined().await;
    let foo = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"size": {"count": 1, "unit": "u"}},
    });
    let created = api.post(FOOS, &foo).await.ok();
    let wanted =
        json!({"metadata": {"labels": {"a": "evil"}}, "spec": {"replicas": 4}, "status": {"replicas": 8}});
    api.merge(&format!("{FOOS}/a/scale"), &wanted).await.ok();
    let scaled = api.get(&format!("{FOOS}/a")).await.ok();
    let mut expect = created.clone();
    expect["spec"]["size"]["count"] = 4.into();
    assert_eq!(without_version(&scaled), without_version(&expect));
    assert_eq!(scaled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn replicas_that_are_nowhere_can_be_set_by_a_scale_but_not_read() {
    let api = defined().await;
    for name in ["put", "patched"] {
        let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}});
        api.post(FOOS, &foo).await.ok();
        assert_eq!(api.get(&format!("{FOOS}/{name}/scale")).await.code, 500, "as in kube-apiserver");
    }
    let nothing = api.merge(&format!("{FOOS}/patched/scale"), &json!({})).await;
    nothing.refused(400, "the spec replicas field \".spec.size.count\" cannot be empty");
    api.merge(&format!("{FOOS}/patched/scale"), &json!({"spec": {"replicas": 2}})).await.ok();
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "put"}, "spec": {"replicas": 2}});
    api.put(&format!("{FOOS}/put/scale"), &scale).await.ok();
    for name in ["put", "patched"] {
        assert_eq!(api.get(&format!("{FOOS}/{name}")).await.ok()["spec"], json!({"size": {"count": 2}}));
    }
}
