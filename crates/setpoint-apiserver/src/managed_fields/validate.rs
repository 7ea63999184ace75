//! Whether a value is of a type, in structured-merge-diff's words.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::element::PathElement;
use super::items::Items;
use super::schema::{Form, List, Map, Scalar, Schema};
use crate::patch::{go_text, go_type};

/// What is wrong with a value, each problem with its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeErrors(Vec<(String, String)>);

impl TypeErrors {
    pub(crate) fn one(message: impl Into<String>) -> TypeErrors {
        TypeErrors(vec![(String::new(), message.into())])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, message: impl Into<String>) {
        self.0.push((String::new(), message.into()));
    }

    /// Adds problems of the child at `element`.
    pub(crate) fn extend_from(&mut self, element: &dyn fmt::Display, errors: TypeErrors) {
        self.0.extend(errors.0.into_iter().map(|(path, message)| (format!("{element}{path}"), message)));
    }

    pub(crate) fn into_result(self) -> Result<(), TypeErrors> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(path, message): &(String, String)| {
            if path.is_empty() { message.clone() } else { format!("{path}: {message}") }
        };
        match self.0.as_slice() {
            [only] => f.write_str(&one(only)),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {}", one(error)))
            }
        }
    }
}

/// Whether items of sets and keyed lists may be there twice. Stored objects may have such, applied ones may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Allowed,
    Refused,
}

/// Holds a value against a type.
pub(crate) fn validate(schema: Schema<'_>, value: &Value, duplicates: Duplicates) -> Result<(), TypeErrors> {
    check(schema, value, duplicates).into_result()
}

/// The same for an object of which only what is not in `known`, or is something else there, is looked at: `known` is of the
/// type.
pub(crate) fn validate_beside(
    schema: Schema<'_>,
    object: &Value,
    known: &Value,
    duplicates: Duplicates,
) -> Result<(), TypeErrors> {
    let (Form::Map(map), Some(fields)) = (schema.atom().form(Some(object)), object.as_object()) else {
        return validate(schema, object, duplicates);
    };
    let others = fields.iter().filter(|(name, value)| known.get(name.as_str()) != Some(value));
    check_fields(map, others, duplicates).into_result()
}

fn check(schema: Schema<'_>, value: &Value, duplicates: Duplicates) -> TypeErrors {
    match schema.atom().form(Some(value)) {
        Form::Scalar(scalar) => {
            check_scalar(scalar, Some(value), "").map_or_else(TypeErrors::default, TypeErrors::one)
        }
        Form::List(list) => match value {
            Value::Null => TypeErrors::default(),
            Value::Array(items) => check_items(list, items, duplicates),
            other => TypeErrors::one(format!("expected list, got &{{{}}}", go_text(other))),
        },
        Form::Map(map) => match value {
            Value::Null => TypeErrors::default(),
            Value::Object(fields) => check_fields(map, fields, duplicates),
            other => TypeErrors::one(format!("expected map, got &{{{}}}", go_text(other))),
        },
    }
}

/// What is wrong with a scalar; nothing is wrong with none.
pub(crate) fn check_scalar(scalar: Scalar, value: Option<&Value>, side: &str) -> Option<String> {
    let value = value.filter(|value| !value.is_null())?;
    match scalar {
        Scalar::Numeric if !value.is_number() => {
            Some(format!("{side}expected numeric (int or float), got {}", go_type(value)))
        }
        Scalar::String if !value.is_string() => {
            Some(format!("{side}expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        Scalar::Boolean if !value.is_boolean() => {
            Some(format!("{side}expected boolean, got &{{{}}}", go_text(value)))
        }
        Scalar::Untyped if value.is_object() || value.is_array() => {
            Some(format!("{side}expected any scalar, got &{{{}}}", go_text(value)))
        }
        _ => None,
    }
}

fn check_items(list: List<'_>, items: &[Value], duplicates: Duplicates) -> TypeErrors {
    let mut errors = TypeErrors::default();
    let names = Items::new(list);
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let element = if list.is_atomic() {
            PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
        } else {
            match names.element(item) {
                Ok(element) => element,
                Err(why) => {
                    errors.push(format!("element {at}: {why}"));
                    return errors;
                }
            }
        };
        let below = check(list.item, item, duplicates);
        if !list.is_atomic() && duplicates == Duplicates::Refused && seen.contains(&element) {
            errors.push(format!("duplicate entries for key {element}"));
        }
        if !below.is_empty() {
            errors.extend_from(&element, below);
        }
        if !list.is_atomic() && duplicates == Duplicates::Refused {
            seen.insert(element);
        }
    }
    errors
}

fn check_fields<'v>(
    map: Map<'_>,
    fields: impl IntoIterator<Item = (&'v String, &'v Value)>,
    duplicates: Duplicates,
) -> TypeErrors {
    let mut errors = TypeErrors::default();
    for (name, value) in fields {
        let Some(schema) = map.child(name) else {
            errors.extend_from(&PathElement::field(name), TypeErrors::one("field not declared in schema"));
            return errors;
        };
        let below = check(schema, value, duplicates);
        if !below.is_empty() {
            errors.extend_from(&PathElement::field(name), below);
        }
    }
    errors
}

/// A value as Go source: `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}
