//! What is wrong with one field of an object, in kube-apiserver's words.

use std::fmt::{self, Write as _};

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
pub(crate) enum Problem {
    /// A value is missing; the text may be empty.
    Required(String),
    /// The value is wrong, and why.
    Invalid(Shown, String),
    /// The value is of the wrong type, and why.
    TypeInvalid(Shown, String),
    /// The value is wrong, and why; it is not shown.
    InvalidHidden(String),
    /// The value is none of those that are allowed.
    NotSupported(Shown, Vec<String>),
    /// The field must not be set, or not be changed.
    Forbidden(String),
    /// The value occurs twice where it may occur once; the text may be empty.
    Duplicate(Shown, String),
    /// The value refers to something that does not exist; the text may be empty.
    NotFound(Value, String),
    /// The value is longer than this many bytes.
    TooLong(usize),
    /// More items (first) than allowed (second).
    TooMany(usize, usize),
}

/// How a wrong value is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shown {
    /// As JSON; a text as Go quotes it.
    Value(Value),
    /// As this text: Go writes the fields of its internal structs under their Go names, in their order.
    Raw(String),
}

impl<T: Into<Value>> From<T> for Shown {
    fn from(value: T) -> Shown {
        Shown::Value(value.into())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Value(Value::String(text)) => go_quote(text, f),
            Shown::Value(value @ (Value::Array(_) | Value::Object(_))) => go_json(value, f),
            Shown::Value(value) => fmt::Display::fmt(value, f),
            Shown::Raw(text) => f.write_str(text),
        }
    }
}

/// A text as Go's `%q` writes it.
fn go_quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\u{7}' => f.write_str("\\a")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{b}' => f.write_str("\\v")?,
            '\u{c}' => f.write_str("\\f")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// The fields of selectors and of owner references in the order of Go's structs.
const ORDER: [&str; 8] = [
    "matchLabels",
    "matchExpressions",
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];

/// JSON as Go writes it.
fn go_json(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            let rank = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
            fields.sort_by_key(|(key, _)| rank(key));
            f.write_char('{')?;
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    f.write_char(',')?;
                }
                go_json_text(key, f)?;
                f.write_char(':')?;
                go_json(value, f)?;
            }
            f.write_char('}')
        }
        Value::Array(items) => {
            f.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    f.write_char(',')?;
                }
                go_json(item, f)?;
            }
            f.write_char(']')
        }
        Value::String(text) => go_json_text(text, f),
        other => fmt::Display::fmt(other, f),
    }
}

/// Go escapes what could end a script in HTML.
fn go_json_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
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
        value: impl Into<Shown>,
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
            Problem::Invalid(..) | Problem::InvalidHidden(_) => "FieldValueInvalid",
            Problem::TypeInvalid(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) => "FieldValueNotSupported",
            Problem::Forbidden(_) => "FieldValueForbidden",
            Problem::Duplicate(..) => "FieldValueDuplicate",
            Problem::NotFound(..) => "FieldValueNotFound",
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
            Problem::InvalidHidden(detail) => with_detail("Invalid value".to_owned(), detail),
            Problem::NotSupported(value, allowed) => {
                let allowed: Vec<_> = allowed.iter().map(|v| format!("{v:?}")).collect();
                format!("Unsupported value: {value}: supported values: {}", allowed.join(", "))
            }
            Problem::Forbidden(detail) => with_detail("Forbidden".to_owned(), detail),
            Problem::Duplicate(Shown::Raw(text), detail) if text.is_empty() => {
                with_detail("Duplicate value".to_owned(), detail)
            }
            Problem::Duplicate(value, detail) => with_detail(format!("Duplicate value: {value}"), detail),
            Problem::NotFound(value, detail) => with_detail(format!("Not found: {value}"), detail),
            Problem::TooLong(1) => "Too long: may not be more than 1 byte".to_owned(),
            Problem::TooLong(most) => format!("Too long: may not be more than {most} bytes"),
            Problem::TooMany(count, 1) => format!("Too many: {count}: must have at most 1 item"),
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
