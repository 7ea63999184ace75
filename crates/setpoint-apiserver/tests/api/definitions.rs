//! CustomResourceDefinitions and what they define.

mod conversion;
mod objects;
mod schemas;
mod serving;
mod validation;

use serde_json::{Value, json};

use crate::support::Api;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const FOOS: &str = "/apis/samplecontroller.example.com/v1alpha1/namespaces/default/foos";

/// The definition of sample-controller's Foo.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.samplecontroller.example.com"},
        "spec": {
            "group": "samplecontroller.example.com",
            "names": {"kind": "Foo", "plural": "foos", "shortNames": ["fo"], "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "deploymentName": {"type": "string", "description": "What it is called."},
                        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
                    }},
                    "status": {"type": "object", "properties": {
                        "availableReplicas": {"type": "integer"},
                        "selector": {"type": "string"},
                    }},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.availableReplicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        }
    })
}

pub(crate) fn foo(name: &str) -> Value {
    json!({
        "apiVersion": "samplecontroller.example.com/v1alpha1", "kind": "Foo", "metadata": {"name": name},
        "spec": {"deploymentName": name, "replicas": 2}
    })
}

/// A server with Foos.
pub(crate) async fn with_foos() -> Api {
    let api = Api::new();
    api.post(DEFINITIONS, &definition()).await.ok();
    api
}

/// A condition of a definition, as `status reason: message`.
pub(crate) async fn condition(api: &Api, name: &str, kind: &str) -> String {
    let found = api.get(&format!("{DEFINITIONS}/{name}")).await.ok();
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let Some(found) = conditions.iter().find(|condition| condition["type"] == kind) else {
        return "-".into();
    };
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}
