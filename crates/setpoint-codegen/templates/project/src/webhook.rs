//! What is filled in and checked before a `Widget` is stored.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use setpoint::webhook::{AdmissionRequest, Certificates, Mutation, Verdict, WebhookServer};

use crate::NAME;
use crate::api;

/// The label that every object gets.
pub const LABEL: &str = "app.kubernetes.io/managed-by";

/// The server with both webhooks.
pub fn server(certificates: Certificates) -> WebhookServer {
    WebhookServer::new(certificates).mutate("/mutate", fill_in).validate("/validate", check)
}

async fn fill_in(request: AdmissionRequest<api::Widget>) -> Mutation<api::Widget> {
    let Some(mut object) = request.object else { return Mutation::none() };
    if object.labels().contains_key(LABEL) {
        return Mutation::none();
    }
    object.labels_mut().insert(LABEL.to_owned(), NAME.to_owned());
    Mutation::to(object)
}

async fn check(request: AdmissionRequest<api::Widget>) -> Verdict {
    let Some(object) = request.object else { return Verdict::allow() };
{% if plain %}
    if object.spec.message.trim().is_empty() {
        return Verdict::deny("spec.message: there is nothing but space in it");
    }
    Verdict::allow()
{% else %}
    // What a schema cannot say. A rule to begin with: replace it by yours.
    if object.name_any().ends_with("-forbidden") {
        return Verdict::deny("metadata.name: this one is forbidden");
    }
    Verdict::allow()
{% endif %}
}

/// Tells a cluster where this process answers: for development. In a cluster config/webhook does it.
pub async fn register(client: &Client, url: &str, ca_bundle: &str) -> Result<(), kube::Error> {
    let parameters = PatchParams::apply(NAME).force();
    let mutating = configuration("MutatingWebhookConfiguration", "/mutate", url, ca_bundle);
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(NAME, &parameters, &Patch::Apply(mutating)).await?;
    let validating = configuration("ValidatingWebhookConfiguration", "/validate", url, ca_bundle);
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(NAME, &parameters, &Patch::Apply(validating)).await?;
    Ok(())
}

fn configuration(kind: &str, path: &str, url: &str, ca_bundle: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "widgets.acme.example",
            "clientConfig": {
                "url": format!("{url}{path}"),
                "caBundle": ByteString(ca_bundle.as_bytes().to_vec()),
            },
            "rules": [{
                "apiGroups": ["acme.example"],
                "apiVersions": ["v1alpha1"],
                "resources": ["widgets"],
                "operations": ["CREATE", "UPDATE"],
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    })
}
