//! The type, from which the CustomResourceDefinition is made.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted: a Deployment of this name with so many replicas.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    doc = "A Deployment by another name.",
    namespaced,
    status = "FooStatus",
    printcolumn = r#"{"name": "Deployment", "type": "string", "jsonPath": ".spec.deploymentName"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}"#,
    printcolumn = r#"{"name": "Available", "type": "integer", "jsonPath": ".status.availableReplicas"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment.
    #[serde(default)]
    pub deployment_name: String,
    /// How many pods it shall have; one if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many pods of the Deployment can be used.
    #[serde(default)]
    pub available_replicas: i32,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: all replicas are available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "setpoint::conditions::schema")]
    pub conditions: Vec<Condition>,
}

/// The CustomResourceDefinition of [`Foo`].
pub fn crd() -> CustomResourceDefinition {
    let mut crd = Foo::crd();
    // Groups below k8s.io belong to Kubernetes; this one is the group of its example.
    let value = "unapproved, an example".to_owned();
    crd.annotations_mut().insert("api-approved.kubernetes.io".to_owned(), value);
    crd
}
