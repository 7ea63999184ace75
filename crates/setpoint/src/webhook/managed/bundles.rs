//! Whom an API server trusts when it calls: `caBundle`, wherever it is configured.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// Something that says whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Mutating(String),
    Validating(String),
    Conversion(String),
}

impl Caller {
    /// Puts the bundle there, if it is not. Says whether something was written. What is not there (yet) is no failure.
    ///
    /// Nothing but the bundles changes, and only at the version that was read: who edits the rest at the same time loses
    /// nothing, and the next look sees what they wrote.
    pub(super) async fn tell(&self, client: &Client, bundle: &str) -> Result<bool, kube::Error> {
        let (resource, name) = match self {
            Caller::Mutating(name) => (ApiResource::erase::<MutatingWebhookConfiguration>(&()), name),
            Caller::Validating(name) => (ApiResource::erase::<ValidatingWebhookConfiguration>(&()), name),
            Caller::Conversion(name) => (ApiResource::erase::<CustomResourceDefinition>(&()), name),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let Some(object) = api.get_opt(name).await? else { return Ok(false) };
        let bundle = json!(ByteString(bundle.as_bytes().to_vec()));
        let Some(mut patch) = self.change(&object.data, &bundle) else { return Ok(false) };
        patch["metadata"] = json!({"resourceVersion": object.metadata.resource_version});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(kind = resource.kind, name, "updated the caBundle of a webhook");
        Ok(true)
    }

    /// What differs, as a merge patch; none if nothing does.
    fn change(&self, object: &Value, bundle: &Value) -> Option<Value> {
        match self {
            Caller::Mutating(_) | Caller::Validating(_) => {
                let mut webhooks = object.get("webhooks")?.as_array()?.clone();
                let configs = webhooks.iter_mut().filter_map(|webhook| webhook.get_mut("clientConfig"));
                let mut differs = false;
                for config in configs.filter(|config| config.get("caBundle") != Some(bundle)) {
                    config["caBundle"] = bundle.clone();
                    differs = true;
                }
                differs.then(|| json!({"webhooks": webhooks}))
            }
            Caller::Conversion(_) => {
                let config = object.pointer("/spec/conversion/webhook/clientConfig")?;
                let webhook = json!({"clientConfig": {"caBundle": bundle}});
                let differs = config.get("caBundle") != Some(bundle);
                differs.then(|| json!({"spec": {"conversion": {"webhook": webhook}}}))
            }
        }
    }
}
