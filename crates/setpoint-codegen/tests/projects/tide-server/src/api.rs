//! The kind `Tide`: what its objects say. OpenAPI, and so `kubectl explain`, is made from it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tides.example.org",
    version = "v1alpha1",
    kind = "Tide",
    namespaced,
    plural = "tides"
)]
#[serde(rename_all = "camelCase")]
pub struct TideSpec {
    /// What it has to say. A field to begin with: replace it by yours.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
    /// To whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}
