//! The custom resource, from whose type the CustomResourceDefinition is made.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted: a network with one subnet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "samplecrd.k8s.io",
    version = "v1",
    kind = "Network",
    doc = "A network with one subnet, in Neutron.",
    namespaced,
    status = "NetworkStatus",
    printcolumn = r#"{"name": "CIDR", "type": "string", "jsonPath": ".spec.cidr"}"#,
    printcolumn = r#"{"name": "Gateway", "type": "string", "jsonPath": ".spec.gateway"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// The addresses of the subnet, such as 192.168.0.0/16.
    pub cidr: String,
    /// The address of the router, one of the CIDR's. Neutron takes the first if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Neutron's id of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// Neutron's id of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: Neutron has what the spec says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "setpoint::conditions::schema")]
    pub conditions: Vec<Condition>,
}

/// The CustomResourceDefinition of [`Network`].
pub fn crd() -> CustomResourceDefinition {
    let mut crd = Network::crd();
    // Groups below k8s.io belong to Kubernetes; this is an example.
    let value = "unapproved, an example".to_owned();
    crd.annotations_mut().insert("api-approved.kubernetes.io".to_owned(), value);
    crd
}
