//! What the server's errors mean to a controller.

use kube::Error;

fn has_reason(error: &Error, reason: &str) -> bool {
    matches!(error, Error::Api(status) if status.reason == reason)
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    has_reason(error, "NotFound")
}

pub(crate) fn already_exists(error: &Error) -> bool {
    has_reason(error, "AlreadyExists")
}

pub(crate) fn is_conflict(error: &Error) -> bool {
    has_reason(error, "Conflict")
}

/// Whether it failed because the namespace is being deleted: nothing can be made there any more, and nobody
/// needs to hear of it.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The words of the server, as Kubernetes' own controllers repeat them in events and conditions.
pub(crate) fn message(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
