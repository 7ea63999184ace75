//! Who owns what somebody else wants to apply.

use std::fmt;

use kube::core::Status;

/// Why an apply did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Others own fields with other values.
    #[error("other managers own these fields: {}; apply with force to take them over", list(.0))]
    Conflict(Vec<ApplyConflict>),
    /// The request failed in another way.
    #[error(transparent)]
    Request(kube::Error),
}

/// A field that another manager owns, with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyConflict {
    /// The field manager.
    pub manager: String,
    /// The field, as in `.spec.template.spec.containers[name="web"].image`.
    pub field: String,
}

impl fmt::Display for ApplyConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has {}", self.manager, self.field)
    }
}

fn list(conflicts: &[ApplyConflict]) -> String {
    conflicts.iter().map(ApplyConflict::to_string).collect::<Vec<_>>().join(", ")
}

impl From<kube::Error> for ApplyError {
    fn from(error: kube::Error) -> ApplyError {
        let conflicts = match &error {
            kube::Error::Api(status) if status.code == 409 => conflicts(status),
            _ => Vec::new(),
        };
        if conflicts.is_empty() { ApplyError::Request(error) } else { ApplyError::Conflict(conflicts) }
    }
}

fn conflicts(status: &Status) -> Vec<ApplyConflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let of_managers = causes.filter(|cause| cause.reason == "FieldManagerConflict");
    of_managers
        .map(|cause| ApplyConflict { manager: manager(&cause.message), field: cause.field.clone() })
        .collect()
}

/// The name in `conflict with "kubectl" with subresource "scale" using apps/v1`, quoted as Go does; the whole message
/// if it is worded in another way.
fn manager(message: &str) -> String {
    let quoted = message.strip_prefix("conflict with ").unwrap_or_default();
    let name = serde_json::Deserializer::from_str(quoted).into_iter::<String>().next();
    name.and_then(Result::ok).unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_found_in_what_the_server_says() {
        for (message, wanted) in [
            (r#"conflict with "kubectl" using apps/v1"#, "kubectl"),
            (r#"conflict with "a \"b\"" with subresource "scale" using apps/v1 at 2026-01-01"#, "a \"b\""),
            ("somebody else", "somebody else"),
            ("conflict with \"half", "conflict with \"half"),
        ] {
            assert_eq!(manager(message), wanted);
        }
    }
}
