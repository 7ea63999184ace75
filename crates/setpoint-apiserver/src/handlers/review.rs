//! Questions to the server that look like creates: who am I, may I do this. Nothing is stored.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::answer::{Answer, Payload};
use crate::authorize::{self, Attributes};
use crate::options::WriteOptions;
use crate::request::ResourceRequest;
use crate::response::Body;
use crate::status::{Result, Status};
use crate::user::User;

/// Whether creating an object of this resource is a question.
pub(crate) fn is_review(group: &str, plural: &str) -> bool {
    matches!(group, "authentication.k8s.io" | "authorization.k8s.io") && plural.ends_with("reviews")
}

pub(crate) fn handle(request: &ResourceRequest) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "CreateOptions")?;
    let input = request.decode(request.expected(), options.field_validation)?;
    let mut review = input.object;
    review["status"] = match request.resource.plural() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&request.user)}),
        "selfsubjectaccessreviews" => decide(&request.user, &review["spec"]),
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            decide(&subject(&review["spec"]), &review["spec"])
        }
        "selfsubjectrulesreviews" => rules(&request.user),
        // No bearer tokens are issued, so none can be good.
        "tokenreviews" => json!({"user": {}, "error": "this server accepts client certificates only"}),
        _ => return Err(Status::no_such_path()),
    };
    let mut answer = Answer::new(StatusCode::CREATED, Payload::Other(review));
    answer.warnings = input.warnings;
    answer.respond(request)
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

fn subject(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    User::new(spec["user"].as_str().unwrap_or_default(), groups)
}

fn decide(user: &User, spec: &Value) -> Value {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let attributes = if let Some(resource) = spec.get("resourceAttributes") {
        Attributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            path: String::new(),
        }
    } else {
        let other = &spec["nonResourceAttributes"];
        Attributes { verb: text(other, "verb"), path: text(other, "path"), ..Attributes::default() }
    };
    json!({"allowed": authorize::allows(user, &attributes)})
}

fn rules(user: &User) -> Value {
    let all = authorize::allows(user, &Attributes::default());
    let resource = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let other = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let (resources, others) = if all { (vec![resource], vec![other]) } else { (vec![], vec![]) };
    json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
}
