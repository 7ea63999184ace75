//! What is filled in and checked before a `Shop` is stored.

use std::net::SocketAddr;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use setpoint::webhook::{
    AdmissionRequest, Certificates, ManagedCertificates, Mutation, Verdict, WebhookServer,
};

use crate::NAME;
use crate::api;

/// The label that every object gets.
pub const LABEL: &str = "app.kubernetes.io/managed-by";

/// The server with both webhooks.
pub fn server(certificates: impl Into<Certificates>) -> WebhookServer {
    WebhookServer::new(certificates)
        .mutate("/mutate", fill_in)
        .validate("/validate", check)
}

async fn fill_in(request: AdmissionRequest<api::Shop>) -> Mutation<api::Shop> {
    let Some(mut object) = request.object else {
        return Mutation::none();
    };
    if object.labels().contains_key(LABEL) {
        return Mutation::none();
    }
    object
        .labels_mut()
        .insert(LABEL.to_owned(), NAME.to_owned());
    Mutation::to(object)
}

async fn check(request: AdmissionRequest<api::Shop>) -> Verdict {
    let Some(object) = request.object else {
        return Verdict::allow();
    };
    if object.spec.message.trim().is_empty() {
        return Verdict::deny("spec.message: there is nothing but space in it");
    }
    Verdict::allow()
}

/// Certificates that the program makes itself, and renews in time: all replicas share a Secret, and the API server
/// is told whom to trust.
pub fn certificates(client: &Client) -> ManagedCertificates {
    let secret = format!("{NAME}-tls");
    ManagedCertificates::new(client.clone(), client.default_namespace(), secret)
        .mutating(NAME)
        .validating(NAME)
}

/// Tells a cluster that this process answers at an address: for development. In a cluster config/webhook does it.
pub async fn development(
    client: &Client,
    address: SocketAddr,
) -> Result<ManagedCertificates, kube::Error> {
    let url = format!("https://{address}");
    let parameters = PatchParams::apply(NAME).force();
    let mutating = configuration("MutatingWebhookConfiguration", "/mutate", &url);
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(NAME, &parameters, &Patch::Apply(mutating))
        .await?;
    let validating = configuration("ValidatingWebhookConfiguration", "/validate", &url);
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(NAME, &parameters, &Patch::Apply(validating))
        .await?;
    Ok(certificates(client).name(address.ip().to_string()))
}

fn configuration(kind: &str, path: &str, url: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "shops.shop.example.org",
            "clientConfig": {"url": format!("{url}{path}")},
            "rules": [{
                "apiGroups": ["shop.example.org"],
                "apiVersions": ["v1alpha1"],
                "resources": ["shops"],
                "operations": ["CREATE", "UPDATE"],
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    })
}
