//! Mutating and validating admission webhooks.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;

use super::attributes::Attributes;
use super::conditions::Conditions;
use super::matching::{self, Matching};
use super::plugins::Plugin;
use super::policies;
use super::registered::Registered;
use super::review::{self, Response};
use crate::convert;
use crate::patch;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::webhook;

/// The registered webhooks of a server.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: Registered<Vec<Webhook>>,
    validating: Registered<Vec<Webhook>>,
}

/// One webhook of a configuration.
pub(super) struct Webhook {
    name: String,
    matching: Matching,
    conditions: Conditions,
    client_config: Value,
    limit: Duration,
    /// Whether the request fails if the webhook cannot be asked.
    is_needed: bool,
    /// Whether it wants to be asked again when another one changes what it has seen.
    asks_again: bool,
}

impl Webhook {
    fn parse(webhook: &Value) -> Webhook {
        let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        Webhook {
            name: webhook["name"].as_str().unwrap_or_default().to_owned(),
            matching: Matching::parse(webhook, "rules"),
            conditions: Conditions::parse(&webhook["matchConditions"]),
            client_config: webhook["clientConfig"].clone(),
            limit: Duration::from_secs(seconds),
            is_needed: webhook["failurePolicy"] != "Ignore",
            asks_again: webhook["reinvocationPolicy"] == "IfNeeded",
        }
    }

    /// The resource in whose version the webhook is asked, if it is.
    async fn matches(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Arc<Resource>>> {
        let matched = self.matching.matches(core, attributes, object).await?;
        let Some(resource) = matched else { return Ok(None) };
        if self.conditions.is_empty() {
            return Ok(Some(resource));
        }
        let variables = policies::variables(core, attributes, &resource, object).await?;
        match self.conditions.hold(&variables) {
            Ok(holds) => Ok(holds.then_some(resource)),
            Err(_) if !self.is_needed => Ok(None),
            Err(why) => {
                let asked = attributes.request.resource.group_resource();
                Err(Status::forbidden(asked, attributes.name(object), &why))
            }
        }
    }

    /// Asks; the answer is a patch, if it wants one. That it cannot be asked may do no harm.
    async fn ask(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        resource: &Resource,
        object: Option<&Value>,
        mutates: bool,
    ) -> Result<Option<Vec<u8>>> {
        let asked = &attributes.request.resource;
        let in_version = async |object: Option<&Value>| match object {
            Some(object) if !std::ptr::eq(&**asked, resource) => {
                convert::webhook::between(core, asked, resource, object.clone()).await.map(Some)
            }
            object => Ok(object.cloned()),
        };
        let uid = core.env.uuid();
        let (new, old) = (in_version(object).await?, in_version(attributes.old).await?);
        let question = review::question(attributes, resource, &uid, new.as_ref(), old.as_ref());
        let why = match webhook::call(core, &self.client_config, &question, self.limit).await {
            Err(error) => format!("failed to call webhook: {error}"),
            Ok(answer) => match Response::read(&answer, &uid, &self.name, mutates) {
                Ok(response) => {
                    response.warnings.iter().for_each(|text| attributes.request.warn(text));
                    return response.denial.map_or(Ok(response.patch), Err);
                }
                Err(why) => format!("received invalid webhook response: {why}"),
            },
        };
        tracing::warn!(webhook = self.name, why, "a webhook gave no answer");
        if self.is_needed {
            return Err(Status::internal(format!("failed calling webhook {:?}: {why}", self.name)));
        }
        Ok(None)
    }
}

async fn registered(core: &Core, of: &Registered<Vec<Webhook>>, plural: &str) -> Result<Arc<Vec<Webhook>>> {
    let resource = Registry::built_in().expect("admissionregistration.k8s.io", "v1", plural);
    of.current(core, resource, |configurations| {
        let webhooks = configurations.iter().flat_map(|one| one["webhooks"].as_array().into_iter().flatten());
        webhooks.map(Webhook::parse).collect()
    })
    .await
}

/// The mutating webhooks, of which some may be asked about this resource.
pub(super) async fn mutating(core: &Core, resource: &Resource) -> Result<Arc<Vec<Webhook>>> {
    if matching::is_exempt(resource) || !core.plugins.has(Plugin::MutatingAdmissionWebhook) {
        return Ok(Arc::default());
    }
    registered(core, &core.admission.mutating, "mutatingwebhookconfigurations").await
}

/// The changes that webhooks make to one object: each is asked once, and some of them a second time.
pub(super) struct Mutation<'a, F> {
    webhooks: &'a [Webhook],
    /// Gives what a webhook has made the form of its kind.
    form: F,
    /// What each webhook that was asked has left behind.
    left: Vec<Option<Option<Value>>>,
    is_second_round: bool,
}

impl<'a, F: Fn(Value) -> Result<Value>> Mutation<'a, F> {
    pub(super) fn new(webhooks: &'a [Webhook], form: F) -> Mutation<'a, F> {
        Mutation { webhooks, form, left: vec![None; webhooks.len()], is_second_round: false }
    }

    /// Lets webhooks change the object, one after the other, and says whether one did. On a delete there is no object,
    /// and nothing can be changed. The second time those are asked that want to be, if others have changed the object
    /// since.
    pub(super) async fn round(
        &mut self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: &mut Option<Value>,
    ) -> Result<bool> {
        let mut is_changed = false;
        for (webhook, left) in self.webhooks.iter().zip(&mut self.left) {
            let is_due = match &left {
                None => !self.is_second_round,
                Some(last) => self.is_second_round && webhook.asks_again && last != object,
            };
            if !is_due {
                continue;
            }
            let matched = webhook.matches(core, attributes, object.as_ref()).await?;
            let Some(resource) = matched else { continue };
            let asked = webhook.ask(core, attributes, &resource, object.as_ref(), true).await?;
            if let (Some(patch), Some(current)) = (asked, &object) {
                let patched = patched(core, webhook, attributes, &resource, current, &patch).await?;
                *object = Some((self.form)(patched)?);
                is_changed = true;
            }
            *left = Some(object.clone());
        }
        self.is_second_round = true;
        Ok(is_changed)
    }
}

/// The object with what the webhook wants to have changed.
async fn patched(
    core: &Core,
    webhook: &Webhook,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: &Value,
    patch: &[u8],
) -> Result<Value> {
    let asked = &attributes.request.resource;
    let apply = |object: &Value| {
        let why = |status: Status| format!("failed calling webhook {:?}: {status}", webhook.name);
        patch::apply_json(object, patch).map_err(|status| Status::internal(why(status)))
    };
    if std::ptr::eq(&**asked, resource) {
        return apply(object);
    }
    let converted = convert::webhook::between(core, asked, resource, object.clone()).await?;
    convert::webhook::between(core, resource, asked, apply(&converted)?).await
}

/// Asks the validating webhooks, all at once; the first refusal in order of their names counts.
pub(super) async fn validate(core: &Core, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let is_off = !core.plugins.has(Plugin::ValidatingAdmissionWebhook);
    if is_off || matching::is_exempt(&attributes.request.resource) {
        return Ok(());
    }
    let webhooks = registered(core, &core.admission.validating, "validatingwebhookconfigurations").await?;
    let mut asked = Vec::new();
    for webhook in webhooks.iter() {
        if let Some(resource) = webhook.matches(core, attributes, object).await? {
            asked.push(async move { webhook.ask(core, attributes, &resource, object, false).await });
        }
    }
    for outcome in join_all(asked).await {
        outcome?;
    }
    Ok(())
}
