//! Errors → `Status`: the one place where the API server decides what a client is told.

use std::borrow::Cow;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::bounds::Exceeded;
use crate::extension::{Failure, FailureCause};
use crate::field_error::FieldError;
use crate::storage::{NotStored, ReadError};

/// A failed request: what the client gets as a `v1` Status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Status {
    /// What people read.
    pub(crate) message: String,
    /// The machine-readable reason: `NotFound`, `Conflict` …
    #[serde(skip_serializing_if = "is_empty")]
    pub(crate) reason: Cow<'static, str>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Box<Details>>,
    /// The HTTP status code.
    #[serde(serialize_with = "code_as_number")]
    pub(crate) code: StatusCode,
    /// A continue token with which the client can go on.
    #[serde(skip)]
    pub(crate) next: Option<String>,
}

/// What a [`Status`] is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// The resource, or for invalid objects the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// One entry a problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause>,
    /// When to try again.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) retry_after_seconds: u32,
}

/// One cause of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// The machine-readable reason: `FieldValueInvalid` …
    #[serde(skip_serializing_if = "is_empty", default)]
    pub(crate) reason: Cow<'static, str>,
    /// What people read.
    #[serde(default)]
    pub(crate) message: String,
    /// The field's path.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(crate) field: String,
}

/// A resource as error messages name it: `deployments.apps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupResource<'a> {
    /// The API group; empty for core.
    pub(crate) group: &'a str,
    /// The plural name, or for invalid objects the kind.
    pub(crate) resource: &'a str,
}

impl std::fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The result of handling a request.
pub(crate) type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    /// A failure with no details.
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Status {
        Status { code, reason: reason.into(), message: message.into(), details: None, next: None }
    }

    fn about(mut self, resource: GroupResource<'_>, name: &str) -> Status {
        let details = self.details.get_or_insert_default();
        details.name = name.to_owned();
        details.group = resource.group.to_owned();
        details.kind = resource.resource.to_owned();
        self
    }

    /// Says that it is the end of a namespace which makes a create fail.
    #[must_use]
    pub(crate) fn caused_by_terminating_namespace(self, namespace: &str) -> Status {
        self.caused_by(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        })
    }

    /// Adds a cause that only has words.
    #[must_use]
    pub(crate) fn because(self, message: String) -> Status {
        self.caused_by(Cause { reason: "".into(), message, field: String::new() })
    }

    fn caused_by(mut self, cause: Cause) -> Status {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// Tells the client to wait before trying again.
    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: u32) -> Status {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 400: the request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Status {
        Status::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: nobody knows who asks.
    pub(crate) fn unauthorized() -> Status {
        Status::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: `pods "x" is forbidden: why`. An empty `name` is left out.
    pub(crate) fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let message = if resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {name:?} is forbidden: {why}")
        };
        Status::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// A refusal in somebody else's words.
    pub(crate) fn denied(
        code: StatusCode,
        reason: String,
        message: String,
        details: Option<Details>,
    ) -> Status {
        let mut status = Status::new(code, "", message);
        status.reason = reason.into();
        status.details = details.map(Box::new);
        status
    }

    /// 500 without a reason: what kube-apiserver makes of all that it has no better word for.
    pub(crate) fn unknown(message: String) -> Status {
        Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 404: `pods "x" not found`.
    pub(crate) fn not_found(resource: GroupResource<'_>, name: &str) -> Status {
        let message = format!("{resource} {name:?} not found");
        Status::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// 404: there is nothing at this path.
    pub(crate) fn no_such_path() -> Status {
        let mut status = Status::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    /// 405: the resource does not have this verb.
    pub(crate) fn method_not_allowed() -> Status {
        let mut status = Status::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    /// 406: none of the representations that the client accepts can be made.
    pub(crate) fn not_acceptable(accepted: &[&str]) -> Status {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Status::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 409: a create of something that exists.
    pub(crate) fn already_exists(resource: GroupResource<'_>, name: &str) -> Status {
        let message = format!("{resource} {name:?} already exists");
        Status::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// 409: `Operation cannot be fulfilled on pods "x": why`.
    pub(crate) fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Status::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// 409: other managers own what somebody wants to apply; one cause, its message and its field, for each.
    pub(crate) fn apply_conflict(message: String, causes: impl Iterator<Item = (String, String)>) -> Status {
        let status = Status::new(StatusCode::CONFLICT, "Conflict", message);
        causes.fold(status, |status, (message, field)| {
            status.caused_by(Cause { reason: "FieldManagerConflict".into(), message, field })
        })
    }

    /// 409: the object is newer than what the client has read.
    pub(crate) fn modified(resource: GroupResource<'_>, name: &str) -> Status {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// 500, without a reason: a new object has the version of an old one.
    pub(crate) fn version_of_new() -> Status {
        let message = "resourceVersion should not be set on objects to be created";
        Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 410: the history that the client asks for is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Status {
        Status::new(StatusCode::GONE, "Expired", message)
    }

    /// 410 for the next page of a list: with a token to go on with, at the price of consistency.
    pub(crate) fn page_expired(next: Option<String>) -> Status {
        let message = "The provided continue parameter is too old to display a consistent list result. You can \
                       start a new list without the continue parameter, or use the continue token in this \
                       response to retrieve the remainder of the results. Continuing with the provided token \
                       results in an inconsistent list - objects that were created, modified, or deleted \
                       between the time the first chunk was returned and now may show up in the list.";
        Status { next, ..Status::expired(message) }
    }

    /// 413: the body is larger than the server takes.
    pub(crate) fn too_large(limit: usize) -> Status {
        let message = format!("Request entity too large: limit is {limit}");
        Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 413: what the request makes is beyond a bound.
    pub(crate) fn exceeds(exceeded: Exceeded) -> Status {
        let message = format!("Request entity too large: {exceeded}");
        Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 415: the body is in a format that this request cannot have.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Status {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 422: the object breaks rules; `kind` is its group and kind.
    pub(crate) fn invalid(kind: GroupResource<'_>, name: &str, errors: &[FieldError]) -> Status {
        let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let summary = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{kind} {name:?} is invalid: {summary}");
        let status = Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name);
        errors.iter().fold(status, |status, error| {
            status.caused_by(Cause {
                reason: error.reason().into(),
                message: error.message(),
                field: error.field.clone(),
            })
        })
    }

    /// 422: what a patch made is not an object of its kind.
    pub(crate) fn bad_patch(patched: &str, why: String) -> Status {
        let error = FieldError::invalid("patch", patched, why);
        Status::invalid(GroupResource { group: "", resource: "" }, "", &[error])
    }

    /// 422 without field causes: the patch cannot be applied to this object.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Status {
        Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// 429: too much at once.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Status {
        Status::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(retry_after)
    }

    /// 429: an eviction that a disruption budget does not allow.
    pub(crate) fn budget_spent(budget: &str, desired: i64, healthy: i64) -> Status {
        let why = format!(
            "The disruption budget {budget} needs {desired} healthy pods and has {healthy} currently"
        );
        Status::budget_refuses(why)
    }

    /// 429: an eviction under a disruption budget that nobody has worked out yet.
    pub(crate) fn budget_not_ready(budget: &str) -> Status {
        let why = format!("The disruption budget {budget} is still being processed by the server.");
        Status::budget_refuses(why).retry_after(10)
    }

    fn budget_refuses(message: String) -> Status {
        let status = Status::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        status.caused_by(Cause { reason: "DisruptionBudget".into(), message, field: String::new() })
    }

    /// 500: our fault.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Status {
        let message = format!("Internal error occurred: {message}");
        Status::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 503: not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Status {
        Status::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504: the request took too long.
    pub(crate) fn timeout(message: impl Into<String>) -> Status {
        Status::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// 504: the client asks for a resourceVersion that this server has not reached.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Status {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Status::timeout(message).retry_after(1).caused_by(Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        })
    }

    /// The Status object as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Object<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: Metadata<'a>,
            status: &'static str,
            #[serde(flatten)]
            inner: &'a Status,
        }
        #[derive(Serialize)]
        struct Metadata<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            next: Option<&'a str>,
        }
        let object = Object {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata { next: self.next.as_deref() },
            status: "Failure",
            inner: self,
        };
        serde_json::to_vec(&object).expect("a Status has string keys only, so it always serialises")
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Status {
        match error {
            ReadError::Compacted { asked, floor } => {
                Status::expired(format!("too old resource version: {asked} ({floor})"))
            }
            ReadError::Future { asked, current } => Status::version_too_large(asked, current),
            ReadError::Refused(failure) => failure.into(),
            #[cfg(feature = "etcd")]
            error @ (ReadError::Unavailable { .. } | ReadError::Undecodable { .. }) => {
                Status::internal(error)
            }
        }
    }
}

/// What the author of an extension server says, as it is.
impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let Failure { cause, message } = failure;
        match cause {
            FailureCause::Internal => Status::internal(message),
            FailureCause::Unavailable => Status::unavailable(message),
            FailureCause::BadRequest => Status::bad_request(message),
            FailureCause::Forbidden => Status::new(StatusCode::FORBIDDEN, "Forbidden", message),
            FailureCause::NotFound => Status::new(StatusCode::NOT_FOUND, "NotFound", message),
            FailureCause::AlreadyExists => Status::new(StatusCode::CONFLICT, "AlreadyExists", message),
            FailureCause::Conflict => Status::new(StatusCode::CONFLICT, "Conflict", message),
            FailureCause::Expired => Status::expired(message),
            FailureCause::Invalid => Status::unprocessable(message),
            FailureCause::MethodNotAllowed => Status::method_not_allowed(),
            FailureCause::TooManyRequests => Status::too_many_requests(message, 1),
        }
    }
}

impl From<Exceeded> for Status {
    fn from(exceeded: Exceeded) -> Status {
        Status::exceeds(exceeded)
    }
}

impl From<NotStored> for Status {
    fn from(error: NotStored) -> Status {
        if let Some(failure) = error.refused {
            return failure.into();
        }
        if error.is_full {
            return Status::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", error.to_string());
        }
        Status::internal(error)
    }
}

fn code_as_number<S: serde::Serializer>(code: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(code.as_u16())
}

fn is_empty(text: &str) -> bool {
    text.is_empty()
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENTS: GroupResource<'_> = GroupResource { group: "apps", resource: "deployments" };

    #[test]
    fn an_invalid_object_lists_every_problem_and_every_cause() {
        let kind = GroupResource { group: "apps", resource: "Deployment" };
        let errors = [
            FieldError::required("spec.selector", ""),
            FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
        ];
        let status = Status::invalid(kind, "web", &errors);
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec.replicas: Invalid \
             value: -1: must be greater than or equal to 0]"
        );
        assert_eq!(status.details.unwrap().causes.len(), 2);
    }

    #[test]
    fn the_json_form_is_a_v1_status() {
        let json: serde_json::Value =
            serde_json::from_slice(&Status::not_found(DEPLOYMENTS, "web").to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "deployments.apps \"web\" not found", "reason": "NotFound", "code": 404,
                "details": {"name": "web", "group": "apps", "kind": "deployments"}
            })
        );
    }
}
