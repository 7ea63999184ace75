//! ValidatingAdmissionPolicies: CEL expressions that decide about writes.

mod params;
mod policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::attributes::Attributes;
use super::conditions::Variables;
use super::matching::{self, Matching};
use super::plugins::Plugin;
use super::registered::Registered;
use super::review;
use crate::cel;
use crate::convert;
use crate::handlers::get::read;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use policy::{Decision, Policy};

/// The policies and bindings of a server, compiled once until they change.
#[derive(Default)]
pub(crate) struct Policies {
    policies: Registered<BTreeMap<String, Policy>>,
    bindings: Registered<Vec<Binding>>,
}

/// What puts a policy into force.
struct Binding {
    name: String,
    policy: String,
    params: Value,
    matching: Option<Matching>,
    actions: Vec<String>,
}

impl Binding {
    fn parse(binding: &Value) -> Binding {
        let spec = &binding["spec"];
        let resources = &spec["matchResources"];
        let actions = spec["validationActions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Binding {
            name: object::name(binding).to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            params: spec["paramRef"].clone(),
            matching: (!resources.is_null()).then(|| Matching::parse(resources, "resourceRules")),
            actions: actions.map(str::to_owned).collect(),
        }
    }

    /// Without rules of its own, a binding takes what its policy takes.
    async fn matches(
        &self,
        core: &Core,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool> {
        match &self.matching {
            None => Ok(true),
            Some(matching) => Ok(matching.selects(core, attributes, object).await?),
        }
    }
}

fn registration(plural: &str) -> &'static Arc<Resource> {
    Registry::built_in().expect("admissionregistration.k8s.io", "v1", plural)
}

/// Asks the policies that are in force whether an object may be written, or deleted when there is none.
pub(super) async fn validate(core: &Core, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let is_off = !core.plugins.has(Plugin::ValidatingAdmissionPolicy);
    if is_off || matching::is_exempt(&attributes.request.resource) {
        return Ok(());
    }
    let bindings =
        core.policies.bindings.current(core, registration("validatingadmissionpolicybindings"), |found| {
            found.iter().map(Binding::parse).collect()
        });
    let bindings = bindings.await?;
    if bindings.is_empty() {
        return Ok(());
    }
    let policies =
        core.policies.policies.current(core, registration("validatingadmissionpolicies"), |found| {
            found.iter().map(|policy| (object::name(policy).to_owned(), Policy::parse(policy))).collect()
        });
    let policies = policies.await?;
    let mut denials = Vec::new();
    for (name, policy) in policies.iter() {
        let Some(resource) = policy.matching.matches(core, attributes, object).await? else { continue };
        let mut question = None;
        for binding in bindings.iter().filter(|binding| binding.policy == *name) {
            if !binding.matches(core, attributes, object).await? {
                continue;
            }
            let question = match &question {
                Some(question) => question,
                None => question.insert(Question::new(core, attributes, &resource, object).await?),
            };
            let decisions = decide(core, policy, binding, attributes, question).await?;
            for decision in decisions {
                act(attributes, name, binding, decision, &mut denials);
            }
        }
    }
    match denials.into_iter().next() {
        None => Ok(()),
        Some((message, reason)) => Err(denial(attributes, object, message, &reason)),
    }
}

/// What expressions are told about a request.
struct Question {
    object: cel::Value,
    old: cel::Value,
    request: cel::Value,
    namespace: cel::Value,
}

impl Question {
    async fn new(
        core: &Core,
        attributes: &Attributes<'_>,
        resource: &Resource,
        object: Option<&Value>,
    ) -> Result<Question> {
        let asked = &attributes.request.resource;
        let in_version = |object: &Value| {
            if std::ptr::eq(&**asked, resource) {
                return object.clone();
            }
            convert::to_served(resource, convert::to_stored(asked, object.clone()))
        };
        let (new, old) = (object.map(in_version), attributes.old.map(in_version));
        let review = review::question(attributes, resource, "", new.as_ref(), old.as_ref());
        let mut request = review["request"].clone();
        if let Some(fields) = request.as_object_mut() {
            for name in ["uid", "object", "oldObject"] {
                fields.remove(name);
            }
        }
        let value = |object: Option<Value>| object.as_ref().map_or(cel::Value::Null, cel::of_json);
        let namespaces = Registry::built_in().expect("", "v1", "namespaces");
        let namespace = match attributes.namespace() {
            _ if !asked.is_namespaced() => None,
            "" => None,
            name => read(core, &namespaces.key(None, name)).await?,
        };
        let namespace = namespace.map(|record| object::decode(&record.value, record.revision));
        Ok(Question {
            object: value(new),
            old: value(old),
            request: cel::of_json(&request),
            namespace: value(namespace),
        })
    }

    fn variables(&self, params: Option<&Value>) -> Variables<'static> {
        let params = params.map_or(cel::Value::Null, cel::of_json);
        vec![
            ("object", Ok(self.object.clone())),
            ("oldObject", Ok(self.old.clone())),
            ("request", Ok(self.request.clone())),
            ("namespaceObject", Ok(self.namespace.clone())),
            ("params", Ok(params)),
        ]
    }
}

/// What a policy says, once for each object of its parameters.
async fn decide(
    core: &Core,
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes<'_>,
    question: &Question,
) -> Result<Vec<Decision>> {
    let params = match params::collect(core, policy, &binding.params, attributes.namespace()).await? {
        Ok(params) => params,
        Err(why) => {
            let decision = Decision::error(format!("failed to configure binding: {why}"));
            return Ok(if policy.is_needed { vec![decision] } else { Vec::new() });
        }
    };
    Ok(params.iter().flat_map(|params| policy.decide(question.variables(params.as_ref()))).collect())
}

fn act(
    attributes: &Attributes<'_>,
    policy: &str,
    binding: &Binding,
    decision: Decision,
    denials: &mut Vec<(String, String)>,
) {
    for action in &binding.actions {
        match action.as_str() {
            "Deny" => {
                let message = format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {}",
                    binding.name, decision.message
                );
                denials.push((message, decision.reason.clone()));
            }
            "Warn" => attributes.request.warn(&format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                binding.name, decision.message
            )),
            _ => tracing::info!(
                policy,
                binding = binding.name,
                message = decision.message,
                "a write fails a policy that audits"
            ),
        }
    }
}

fn denial(attributes: &Attributes<'_>, object: Option<&Value>, message: String, reason: &str) -> Status {
    let resource = attributes.request.resource.group_resource();
    let mut status = Status::forbidden(resource, attributes.name(object), &message).because(message);
    let (code, reason) = match reason {
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    status.code = code;
    status.reason = reason.into();
    status
}

/// What match conditions of a webhook are told.
pub(super) async fn variables(
    core: &Core,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: Option<&Value>,
) -> Result<Variables<'static>> {
    Ok(Question::new(core, attributes, resource, object).await?.variables(None))
}
