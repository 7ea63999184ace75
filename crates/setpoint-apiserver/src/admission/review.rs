//! `AdmissionReview`: the question as webhooks get it, and what their answer means.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use super::attributes::Attributes;
use crate::resource::Resource;
use crate::status::{Details, Status};
use crate::user::User;

/// The question about a request, in the version of `resource`.
pub(super) fn question(
    attributes: &Attributes<'_>,
    resource: &Resource,
    uid: &str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Value {
    let asked = &attributes.request.resource;
    let kind = |of: &Resource, object: Option<&Value>| {
        // A subresource may speak another kind: Scale, Binding.
        let named = |field: &str| object.and_then(|object| object[field].as_str());
        let version = named("apiVersion").unwrap_or(of.api_version());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        json!({"group": group, "version": version, "kind": named("kind").unwrap_or(of.kind())})
    };
    let resource_of =
        |of: &Resource| json!({"group": of.group(), "version": of.version(), "resource": of.plural()});
    let shown = object.or(old);
    let requested = if std::ptr::eq(&**asked, resource) { kind(resource, shown) } else { kind(asked, None) };
    let mut request = json!({
        "uid": uid,
        "kind": kind(resource, shown),
        "resource": resource_of(resource),
        "requestKind": requested,
        "requestResource": resource_of(asked),
        "name": attributes.name(object),
        "operation": attributes.operation.as_str(),
        "userInfo": user_info(&attributes.request.user),
        "object": object,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    if !attributes.namespace().is_empty() {
        request["namespace"] = attributes.namespace().into();
    }
    if !attributes.subresource().is_empty() {
        request["subResource"] = attributes.subresource().into();
        request["requestSubResource"] = attributes.subresource().into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = user.groups.clone().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// What a webhook decided.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// Why not, if it refuses.
    pub(super) denial: Option<Status>,
    /// A JSON patch.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

impl Response {
    /// Reads an answer; an error says why it is none.
    pub(super) fn read(answer: &Value, uid: &str, webhook: &str, mutates: bool) -> Result<Response, String> {
        let (version, kind) = (&answer["apiVersion"], &answer["kind"]);
        if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                text(version),
                text(kind)
            ));
        }
        let response = &answer["response"];
        if response.is_null() {
            return Err("webhook response was absent".to_owned());
        }
        let answered = response["uid"].as_str().unwrap_or_default();
        if answered != uid {
            return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
        }
        let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Response {
            denial: (response["allowed"] != true).then(|| denial(webhook, &response["status"])),
            patch: patch(response, mutates)?,
            warnings: warnings.map(str::to_owned).collect(),
        })
    }
}

fn patch(response: &Value, mutates: bool) -> Result<Option<Vec<u8>>, String> {
    let patch = match &response["patch"] {
        Value::String(text) => {
            STANDARD.decode(text).map_err(|error| format!("response.patch is not base64: {error}"))?
        }
        // What Go reads as bytes, too.
        Value::Array(bytes) => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            bytes.ok_or("response.patch is not a list of bytes")?
        }
        _ => Vec::new(),
    };
    let kind = response["patchType"].as_str();
    match (mutates, patch.is_empty(), kind) {
        (false, false, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, true, Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
        (true, false, None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, true, Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, false, Some(kind)) if kind != "JSONPatch" => {
            Err(format!("invalid value of response.patchType={kind}, allowed values are: JSONPatch"))
        }
        (_, true, _) => Ok(None),
        (_, false, _) => Ok(Some(patch)),
    }
}

/// The refusal in the webhook's words.
fn denial(webhook: &str, status: &Value) -> Status {
    let by = format!("admission webhook {webhook:?} denied the request");
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let message = match (text("message"), text("reason")) {
        (Some(message), _) => format!("{by}: {message}"),
        (None, Some(reason)) => format!("{by}: {reason}"),
        (None, None) => format!("{by} without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    let details = serde_json::from_value::<Option<Details>>(status["details"].clone()).ok().flatten();
    Status::denied(code, text("reason").unwrap_or_default().to_owned(), message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: Value, mutates: bool) -> Result<Response, String> {
        let answer =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Response::read(&answer, "7", "w.example.com", mutates)
    }

    #[test]
    fn an_answer_must_be_to_this_question() {
        assert!(read(json!({"uid": "7", "allowed": true}), false).unwrap().denial.is_none());
        assert_eq!(
            read(json!({"uid": "8", "allowed": true}), false).unwrap_err(),
            "expected response.uid=\"7\", got \"8\""
        );
        assert_eq!(read(Value::Null, false).unwrap_err(), "webhook response was absent");
        let other = json!({"kind": "Status", "apiVersion": "v1"});
        assert_eq!(
            Response::read(&other, "7", "w", false).unwrap_err(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got v1, Kind=Status"
        );
    }

    #[test]
    fn a_refusal_says_who_refuses_and_why() {
        let check = |status: Value, code: u16, message: &str| {
            let refused = read(json!({"uid": "7", "allowed": false, "status": status}), false);
            let denial = refused.unwrap().denial.unwrap();
            assert_eq!((denial.code.as_u16(), denial.message.as_str()), (code, message));
        };
        let by = "admission webhook \"w.example.com\" denied the request";
        check(json!({"code": 403, "message": "no"}), 403, &format!("{by}: no"));
        check(json!({"reason": "Because"}), 400, &format!("{by}: Because"));
        check(json!({"code": 200}), 400, &format!("{by} without explanation"));
        check(Value::Null, 400, &format!("{by} without explanation"));

        let details = json!({"name": "a", "group": "g", "kind": "Foo", "retryAfterSeconds": 3,
            "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"}]});
        let status = json!({"code": 422, "reason": "Odd", "message": "no", "details": details});
        let refused = read(json!({"uid": "7", "allowed": false, "status": status}), false);
        let denial: Value = serde_json::from_slice(&refused.unwrap().denial.unwrap().to_json()).unwrap();
        assert_eq!((&denial["details"], &denial["reason"]), (&details, &json!("Odd")));
    }

    #[test]
    fn only_mutating_webhooks_patch_and_they_say_how() {
        let patch = json!({"uid": "7", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"});
        assert_eq!(read(patch.clone(), true).unwrap().patch.unwrap(), b"[]");
        assert_eq!(read(patch, false).unwrap_err(), "validating webhook may not return response.patch");
        let untyped = json!({"uid": "7", "allowed": true, "patch": [91, 93]});
        assert_eq!(
            read(untyped, true).unwrap_err(),
            "webhook returned response.patch but not response.patchType"
        );
    }
}
