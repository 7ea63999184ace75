//! The Deployment of a Foo.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::json;
use setpoint::owner::controller_reference;

use crate::Foo;

/// The Deployment that a Foo asks for: nginx, and owned by the Foo, by which it is found and deleted.
pub fn new_deployment(foo: &Foo) -> Result<Deployment, serde_json::Error> {
    let labels = json!({"app": "nginx", "controller": foo.name_any()});
    serde_json::from_value(json!({
        "metadata": {
            "name": foo.spec.deployment_name,
            "namespace": foo.namespace(),
            "ownerReferences": [controller_reference(foo)],
        },
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }))
}
