//! What is wrong with a document, in kube-apiserver's words.

use serde_json::Value;

use crate::types::{Field, Type};

/// A field that the type does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown field {path:?}")]
#[non_exhaustive]
pub struct UnknownField {
    /// The path, such as `spec.containers[0].foo`.
    pub path: String,
}

impl UnknownField {
    pub(super) fn within_field(&mut self, name: &str) {
        if !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, name);
    }

    pub(super) fn within_index(&mut self, index: usize) {
        let dot = if self.path.starts_with('[') { "" } else { "." };
        self.path = format!("[{index}]{dot}{}", self.path);
    }
}

/// A value that its field cannot hold. It reads as the decoding error of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct TypeError {
    /// The path of the value, such as `spec.containers[0].ports[1].containerPort`.
    pub path: String,
    /// What Go would say.
    pub message: String,
}

/// An error on its way up to the root.
#[derive(Debug)]
pub(super) struct Failure {
    cause: Cause,
    /// The innermost struct.
    inside: Option<&'static str>,
    /// Go's names of the fields, the innermost first.
    fields: Vec<&'static str>,
    /// Our path, the innermost segment first.
    path: Vec<String>,
}

#[derive(Debug)]
enum Cause {
    Mismatch { found: String, wanted: String },
    Message(String),
}

impl Failure {
    /// A value of the wrong type. Go quotes a number that does not fit a numeric type.
    pub(super) fn mismatch(value: &Value, wanted_number: bool, wanted: String) -> Box<Self> {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if wanted_number => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        Self::new(Cause::Mismatch { found, wanted })
    }

    pub(super) fn message(message: String) -> Box<Self> {
        Self::new(Cause::Message(message))
    }

    fn new(cause: Cause) -> Box<Self> {
        Box::new(Self { cause, inside: None, fields: Vec::new(), path: Vec::new() })
    }

    pub(super) fn within_field(mut self: Box<Self>, ty: &Type, field: &Field) -> Box<Self> {
        self.inside.get_or_insert(ty.go_name());
        self.fields.push(field.name);
        if !field.through.is_empty() {
            self.fields.push(field.through);
        }
        self.path.push(format!(".{}", field.name));
        self
    }

    pub(super) fn within_index(mut self: Box<Self>, index: usize) -> Box<Self> {
        self.path.push(format!("[{index}]"));
        self
    }

    pub(super) fn within_key(mut self: Box<Self>, key: &str) -> Box<Self> {
        self.path.push(format!(".{key}"));
        self
    }

    pub(super) fn finish(self) -> TypeError {
        let Self { cause, inside, mut fields, mut path } = self;
        fields.reverse();
        path.reverse();
        let path = path.concat();
        let message = match cause {
            Cause::Message(message) => message,
            Cause::Mismatch { found, wanted } => match inside {
                Some(inside) => format!(
                    "json: cannot unmarshal {found} into Go struct field {inside}.{} of type {wanted}",
                    fields.join(".")
                ),
                None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            },
        };
        TypeError { path: path.strip_prefix('.').unwrap_or(&path).to_owned(), message }
    }
}
