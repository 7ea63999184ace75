//! Webhooks for `Backup`: one that fills in, one that checks, one that converts between its versions.
//!
//! Everything that a cluster must know (the definition, the two webhook configurations) is [`install`]ed; what it
//! asks is answered by [`server`]. Whom it is to trust, [`certificates`] tell it.

use std::net::SocketAddr;

pub mod backup;

use backup::{GROUP, v1, v1alpha1};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::core::crd::merge_crds;
use kube::{Client, CustomResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::webhook::{
    AdmissionRequest, Certificates, ConversionError, ManagedCertificates, Mutation, Verdict, WebhookServer,
};
use setpoint::{Permissions, Verb};

/// Who applies the definition and the configurations.
const MANAGER: &str = "example-webhooks";
/// The definition of both versions.
const DEFINITION: &str = "backups.backups.setpoint.dev";
/// How long a backup is kept if nobody says so.
const DEFAULT_DAYS: u32 = 30;

/// The server with its three webhooks.
pub fn server(certificates: impl Into<Certificates>) -> WebhookServer {
    WebhookServer::new(certificates)
        .mutate("/mutate", fill_in)
        .validate("/validate", check)
        .convert("/convert", convert)
}

async fn fill_in(request: AdmissionRequest<v1::Backup>) -> Mutation<v1::Backup> {
    let Some(mut backup) = request.object else { return Mutation::none() };
    if backup.spec.retention.is_some() {
        return Mutation::none();
    }
    backup.spec.retention = Some(v1::Retention { days: DEFAULT_DAYS });
    Mutation::to(backup).warn(format!("spec.retention is not set: backups are kept for {DEFAULT_DAYS} days"))
}

async fn check(request: AdmissionRequest<v1::Backup>) -> Verdict {
    let Some(backup) = request.object else { return Verdict::allow() };
    let fields = backup.spec.schedule.cron.split_whitespace().count();
    if fields != 5 {
        return Verdict::deny(format!("spec.schedule.cron has {fields} fields; a cron schedule has five"));
    }
    match backup.spec.retention {
        Some(v1::Retention { days: 0 }) => {
            Verdict::deny("spec.retention.days: keep a backup for a day at least")
        }
        _ => Verdict::allow(),
    }
}

async fn convert(object: DynamicObject, wanted: String) -> Result<DynamicObject, ConversionError> {
    match wanted.strip_prefix(GROUP) {
        Some("/v1") => convert_spec::<v1alpha1::BackupSpec, v1::BackupSpec>(object),
        Some("/v1alpha1") => convert_spec::<v1::BackupSpec, v1alpha1::BackupSpec>(object),
        _ => Err(ConversionError::new(format!("there is no version {wanted}"))),
    }
}

fn convert_spec<From, To>(mut object: DynamicObject) -> Result<DynamicObject, ConversionError>
where
    From: DeserializeOwned + Into<To>,
    To: Serialize,
{
    let spec: From = serde_json::from_value(object.data["spec"].take())?;
    object.data["spec"] = serde_json::to_value(spec.into())?;
    Ok(object)
}

/// Certificates that all replicas share, for a server at an address. They are renewed in time, and the cluster is told to
/// trust them.
pub fn certificates(client: &Client, address: SocketAddr) -> ManagedCertificates {
    ManagedCertificates::new(client.clone(), client.default_namespace(), format!("{MANAGER}-tls"))
        .name(address.ip().to_string())
        .mutating(MANAGER)
        .validating(MANAGER)
        .conversion(DEFINITION)
}

/// The definition of both versions, converted by the webhook at `url`.
pub fn definition(url: &str) -> anyhow::Result<CustomResourceDefinition> {
    let mut definition = merge_crds(vec![v1alpha1::Backup::crd(), v1::Backup::crd()], "v1")?;
    let conversion: CustomResourceConversion = serde_json::from_value(json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config(url, "/convert")}
    }))?;
    definition.spec.conversion = Some(conversion);
    Ok(definition)
}

/// Without a `caBundle`: that is for [`certificates`].
fn client_config(url: &str, path: &str) -> Value {
    json!({"url": format!("{url}{path}")})
}

fn webhook(name: &str, url: &str, path: &str) -> Value {
    json!({
        "name": format!("{name}.{GROUP}"),
        "clientConfig": client_config(url, path),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [{
            // Objects of v1alpha1 are converted before they are asked about.
            "apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["backups"],
            "operations": ["CREATE", "UPDATE"]
        }]
    })
}

/// Tells a cluster about the kind and its webhooks, which it reaches at `url`.
pub async fn install(client: &Client, url: &str) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    apply(&definitions, DEFINITION, &definition(url)?).await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": MANAGER}, "webhooks": [webhook("fill-in", url, "/mutate")]
    });
    apply(&mutating, MANAGER, &configuration).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": MANAGER}, "webhooks": [webhook("check", url, "/validate")]
    });
    apply(&validating, MANAGER, &configuration).await
}

/// What an API server has to allow whoever calls [`install`] and has [`certificates`]: `manifests/rbac.yaml` is made from it.
pub fn permissions(certificates: &ManagedCertificates) -> Permissions {
    let mut needs = certificates.permissions();
    // What is applied for the first time is created.
    let verbs = [Verb::Create, Verb::Patch];
    needs.allow::<CustomResourceDefinition>(&verbs);
    needs.allow::<MutatingWebhookConfiguration>(&verbs);
    needs.allow::<ValidatingWebhookConfiguration>(&verbs);
    needs
}

async fn apply<K, T>(api: &Api<K>, name: &str, object: &T) -> anyhow::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
    T: Serialize + std::fmt::Debug,
{
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await?;
    Ok(())
}
