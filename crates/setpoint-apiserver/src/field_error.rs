//! What is wrong with one field of an object, in kube-apiserver's words.

use std::fmt;

use serde_json::Value;

/// One problem with one field. Its `Display` is what kubectl prints: `spec.replicas: Invalid value: -1: …`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// Where: `spec.containers[0].name`.
    pub(crate) field: String,
    /// What kind of problem.
    pub(crate) problem: Problem,
}

/// The kinds of problems that a field can have.
#[derive(Clone, Debug, PartialEq)]
#[expect(dead_code, reason = "validation by kind needs the others")]
pub(crate) enum Problem {
    /// A value is missing; the text may be empty.
    Required(String),
    /// The value is wrong, and why.
    Invalid(Value, String),
    /// The value is of the wrong type, and why.
    TypeInvalid(Value, String),
    /// The value is none of those that are allowed.
    NotSupported(Value, Vec<String>),
    /// The field must not be set, or not be changed.
    Forbidden(String),
    /// The value occurs twice where it may occur once.
    Duplicate(Value),
    /// The value refers to something that does not exist.
    NotFound(Value),
    /// The value is longer than this many bytes.
    TooLong(usize),
    /// More items (first) than allowed (second).
    TooMany(usize, usize),
}

impl FieldError {
    /// A problem with `field`.
    pub(crate) fn new(field: impl Into<String>, problem: Problem) -> FieldError {
        FieldError { field: field.into(), problem }
    }

    /// `field: Required value`, with more words when `detail` is not empty.
    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(field, Problem::Required(detail.into()))
    }

    /// `field: Invalid value: VALUE: detail`.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(field, Problem::Invalid(value.into(), detail.into()))
    }

    /// `field: Forbidden: detail`.
    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(field, Problem::Forbidden(detail.into()))
    }

    /// The machine-readable reason in a Status cause.
    pub(crate) fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Required(_) => "FieldValueRequired",
            Problem::Invalid(..) => "FieldValueInvalid",
            Problem::TypeInvalid(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) => "FieldValueNotSupported",
            Problem::Forbidden(_) => "FieldValueForbidden",
            Problem::Duplicate(_) => "FieldValueDuplicate",
            Problem::NotFound(_) => "FieldValueNotFound",
            Problem::TooLong(_) => "FieldValueTooLong",
            Problem::TooMany(..) => "FieldValueTooMany",
        }
    }

    /// The message without the field's path, as a Status cause carries it.
    pub(crate) fn message(&self) -> String {
        match &self.problem {
            Problem::Required(detail) => with_detail("Required value".to_owned(), detail),
            Problem::Invalid(value, detail) | Problem::TypeInvalid(value, detail) => {
                with_detail(format!("Invalid value: {value}"), detail)
            }
            Problem::NotSupported(value, allowed) => {
                let allowed: Vec<_> = allowed.iter().map(|v| format!("{v:?}")).collect();
                format!("Unsupported value: {value}: supported values: {}", allowed.join(", "))
            }
            Problem::Forbidden(detail) => with_detail("Forbidden".to_owned(), detail),
            Problem::Duplicate(value) => format!("Duplicate value: {value}"),
            Problem::NotFound(value) => format!("Not found: {value}"),
            Problem::TooLong(most) => format!("Too long: may not be more than {most} bytes"),
            Problem::TooMany(count, most) => format!("Too many: {count}: must have at most {most} items"),
        }
    }
}

fn with_detail(mut text: String, detail: &str) -> String {
    if !detail.is_empty() {
        text.push_str(": ");
        text.push_str(detail);
    }
    text
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_read_as_kubectl_users_know_them() {
        let cases = [
            (FieldError::required("metadata.name", ""), "metadata.name: Required value"),
            (
                FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                FieldError::new(
                    "spec.restartPolicy",
                    Problem::NotSupported("x".into(), vec!["Always".into(), "Never".into()]),
                ),
                r#"spec.restartPolicy: Unsupported value: "x": supported values: "Always", "Never""#,
            ),
            (FieldError::forbidden("spec", "is immutable"), "spec: Forbidden: is immutable"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
