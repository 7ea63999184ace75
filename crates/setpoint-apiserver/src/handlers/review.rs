//! Questions to the server that look like creates: who am I, may I do this. Nothing is stored.

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Payload};
use crate::authenticate::Verified;
use crate::authorize::{self, Attributes};
use crate::field_error::FieldError;
use crate::options::WriteOptions;
use crate::rbac::Rule;
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result, Status};
use crate::user::User;

/// Whether creating an object of this resource is a question.
pub(crate) fn is_review(group: &str, plural: &str) -> bool {
    matches!(group, "authentication.k8s.io" | "authorization.k8s.io") && plural.ends_with("reviews")
}

pub(crate) async fn handle(core: &Core, request: &ResourceRequest) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "CreateOptions")?;
    let input = request.decode(request.expected(), options.field_validation)?;
    let mut review = input.object;
    review["status"] = match request.resource.plural() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&request.user)}),
        "selfsubjectaccessreviews" => {
            validate(request, &review)?;
            decide(core, &request.user, &review["spec"]).await?
        }
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            validate(request, &review)?;
            decide(core, &subject(&review["spec"]), &review["spec"]).await?
        }
        "selfsubjectrulesreviews" => rules(core, &request.user, &review["spec"]).await?,
        "tokenreviews" => token(core, &review["spec"]).await?,
        _ => return Err(Status::no_such_path()),
    };
    let mut answer = Answer::new(StatusCode::CREATED, Payload::Other(review));
    answer.warnings = input.warnings;
    answer.respond(request)
}

/// A user as reviews and the audit log tell it.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

async fn token(core: &Core, spec: &Value) -> Result<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<String> = serde_json::from_value(spec["audiences"].clone()).unwrap_or_default();
    if audiences.is_empty() {
        audiences.extend_from_slice(core.authenticator.audiences());
    }
    Ok(match core.authenticator.verify(core, token, &audiences).await {
        Ok(Verified { user, audiences }) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}

fn subject(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    User::new(spec["user"].as_str().unwrap_or_default(), groups)
}

/// Whether the question makes sense, in kube-apiserver's words.
fn validate(request: &ResourceRequest, review: &Value) -> Result<()> {
    let spec = &review["spec"];
    let given = |field: &str| spec.get(field).filter(|value| !value.is_null());
    let plural = request.resource.plural();
    let is_local = plural == "localsubjectaccessreviews";
    let mut errors = Vec::new();
    if given("resourceAttributes").is_some() == given("nonResourceAttributes").is_some() {
        let shown = given("nonResourceAttributes").cloned().unwrap_or_default();
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", shown, why));
    }
    let has_groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if plural != "selfsubjectaccessreviews"
        && spec["user"].as_str().unwrap_or_default().is_empty()
        && !has_groups
    {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    let nothing = Map::new();
    let metadata = review["metadata"].as_object().unwrap_or(&nothing);
    let is_set = |(field, value): (&String, &Value)| {
        !(value.is_null() || field == "managedFields" || is_local && field == "namespace")
    };
    if metadata.iter().any(is_set) {
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", review["metadata"].clone(), why));
    }
    if is_local {
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
        let asked = given("resourceAttributes").map(|about| about["namespace"].as_str().unwrap_or_default());
        if let Some(asked) = asked.filter(|asked| *asked != namespace) {
            let field = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(field, asked, "must match metadata.namespace"));
        }
        if let Some(other) = given("nonResourceAttributes") {
            let why = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", other.clone(), why));
        }
        if errors.is_empty() && request.namespace.as_deref() != Some(namespace) {
            let path = request.namespace.as_deref().unwrap_or_default();
            return Err(Status::bad_request(format!(
                "spec.resourceAttributes.namespace must match namespace: {path}"
            )));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Reviews have lost their kind when kube-apiserver looks at them.
    let kind = GroupResource { group: request.resource.group(), resource: "" };
    Err(Status::invalid(kind, "", &errors))
}

async fn decide(core: &Core, user: &User, spec: &Value) -> Result<Value> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let attributes = match spec.get("resourceAttributes").filter(|value| !value.is_null()) {
        Some(resource) => Attributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            path: None,
        },
        None => {
            let other = &spec["nonResourceAttributes"];
            Attributes { verb: text(other, "verb"), path: Some(text(other, "path")), ..Attributes::default() }
        }
    };
    let decision = authorize::decide(core, user, &attributes).await?;
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    Ok(status)
}

async fn rules(core: &Core, user: &User, spec: &Value) -> Result<Value> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, error) = core.rbac.rules(core, user, namespace).await?;
    let resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    let urls = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
    let resources: Vec<Rule> =
        resources.map(|rule| Rule { non_resource_urls: Vec::new(), ..rule.clone() }).collect();
    let urls: Vec<Value> =
        urls.map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls})).collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false});
    if let Some(error) = error {
        status["evaluationError"] = error.into();
    }
    Ok(status)
}
