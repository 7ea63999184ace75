//! What kube-apiserver says when a patch makes no sense: Go's names for types, its text for values, its errors.

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::Value;
use setpoint_kinds::{FieldType, Type};

use super::Object;
use crate::status::Status;

/// Why a patch cannot be applied.
#[derive(Debug, PartialEq)]
pub(super) enum Problem {
    /// `$retainKeys` is no list, or does not name what the patch has.
    RetainKeys,
    /// `$setElementOrder` without a field.
    ElementOrder,
    /// `$deleteFromPrimitiveList` without a field.
    PrimitiveList,
    /// A list that should be merged has lists for items.
    ListOfLists,
    /// What kube-apiserver does not take for the client's fault.
    Other(String),
}

impl Problem {
    pub(super) fn other(message: String) -> Problem {
        Problem::Other(message)
    }

    pub(super) fn unknown_directive(directive: &Value, patch: &Object) -> Problem {
        // Go prints the directive as a string, whatever it is.
        let shown = match directive {
            Value::String(directive) => directive.clone(),
            Value::Null => "%!s(<nil>)".to_owned(),
            Value::Array(_) | Value::Object(_) => text(directive),
            other => format!("%!s({}={})", type_name(other), text(other)),
        };
        Problem::other(format!("unknown patch type: {shown} in map: {}", object_text(patch)))
    }

    pub(super) fn no_merge_key(item: &Object, key: &str) -> Problem {
        let item = object_text(item);
        Problem::other(format!("map: {item} does not contain declared merge key: {key}"))
    }

    pub(super) fn not_a_list(found: &Value) -> Problem {
        Problem::unexpected("[]interface {}", found)
    }

    pub(super) fn not_an_object(found: &Value) -> Problem {
        Problem::unexpected("map[string]interface {}", found)
    }

    fn unexpected(wanted: &str, found: &Value) -> Problem {
        let found = if found.is_null() { "%!s(<nil>)" } else { type_name(found) };
        Problem::other(format!("expected a {wanted}, but received a {found}"))
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Problem::RetainKeys => "invalid patch format of retainKeys",
            Problem::ElementOrder => "invalid patch format of setElementOrder list",
            Problem::PrimitiveList => "invalid patch format of primitive list",
            Problem::ListOfLists => "lists of lists are not supported",
            Problem::Other(message) => message,
        })
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        match problem {
            Problem::RetainKeys | Problem::ElementOrder | Problem::PrimitiveList => {
                Status::bad_request(problem.to_string())
            }
            Problem::ListOfLists => {
                Status::unprocessable("the server rejected our request due to an error in our request")
            }
            Problem::Other(message) => Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message),
        }
    }
}

/// The Go type that a JSON value is decoded to.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The kind of Go type that a JSON value is decoded to.
fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => type_name(other),
    }
}

/// A value as Go prints it: `map[a:[1 2] b:text]`.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    write_text(value, &mut out);
    out
}

fn object_text(object: &Object) -> String {
    let mut out = String::new();
    write_object(object, &mut out);
    out
}

pub(super) fn list_text(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(items, &mut out);
    out
}

fn write_text(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => out.push_str(&float_text(float)),
            None => {
                let _infallible = write!(out, "{number}");
            }
        },
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(items, out),
        Value::Object(fields) => write_object(fields, out),
    }
}

fn write_list(items: &[Value], out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        write_text(item, out);
    }
    out.push(']');
}

fn write_object(fields: &Object, out: &mut String) {
    out.push_str("map[");
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(name);
        out.push(':');
        write_text(value, out);
    }
    out.push(']');
}

/// The shortest text, with an exponent of at least two digits for the very small and the very large.
fn float_text(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Why the merged object is none of type `ty`, in the words of Go's converter from maps to structs; `decoding` is
/// the same in the words of its JSON decoder, which knows the names of types.
pub(crate) fn conversion_error(ty: &'static Type, merged: &Value, decoding: &str) -> String {
    let Some((value, wanted)) = mismatch_in_struct(ty, merged) else { return decoding.to_owned() };
    let name = decoding.rsplit_once(" of type ").map_or("", |(_, name)| name);
    match wanted {
        Wanted::Struct => format!("cannot restore struct from: {}", kind_name(value)),
        Wanted::Map => format!("cannot restore map from {}", kind_name(value)),
        Wanted::Slice => format!("cannot restore slice from {}", kind_name(value)),
        // Go converts numbers to numbers, and integers to strings, but says that JSON should not.
        Wanted::Scalar(kind) => match (value, kind) {
            (Value::Number(number), "int32" | "int64") if number.is_f64() => {
                format!("cannot convert float64 to {name}")
            }
            (Value::Number(number), "string") if !number.is_f64() => {
                format!("cannot convert int64 to {name}")
            }
            _ => format!("unrecognized type: {kind}"),
        },
    }
}

enum Wanted {
    Struct,
    Map,
    Slice,
    Scalar(&'static str),
}

fn mismatch_in_struct<'a>(ty: &'static Type, value: &'a Value) -> Option<(&'a Value, Wanted)> {
    let Value::Object(fields) = value else { return Some((value, Wanted::Struct)) };
    fields.iter().find_map(|(name, value)| mismatch(&ty.field(name)?.ty, value))
}

fn mismatch<'a>(ty: &FieldType, value: &'a Value) -> Option<(&'a Value, Wanted)> {
    let scalar = |fits: bool, kind| (!fits).then_some((value, Wanted::Scalar(kind)));
    match (ty, value) {
        (_, Value::Null) => None,
        (FieldType::Struct(id), value) => mismatch_in_struct(id.get(), value),
        (FieldType::List(item) | FieldType::WrappedList(item), Value::Array(items)) => {
            items.iter().find_map(|value| mismatch(item, value))
        }
        (FieldType::List(_) | FieldType::WrappedList(_), _) => Some((value, Wanted::Slice)),
        (FieldType::Bytes, value) => (!value.is_string()).then_some((value, Wanted::Slice)),
        (FieldType::Map(item), Value::Object(fields)) => {
            fields.values().find_map(|value| mismatch(item, value))
        }
        (FieldType::Map(_), _) => Some((value, Wanted::Map)),
        (FieldType::String, value) => scalar(value.is_string(), "string"),
        (FieldType::Bool, value) => scalar(value.is_boolean(), "bool"),
        (FieldType::Int32, value) => scalar(value.is_i64(), "int32"),
        (FieldType::Int64, value) => scalar(value.is_i64(), "int64"),
        (FieldType::Float64, value) => scalar(value.is_number(), "float64"),
        _ => None,
    }
}
