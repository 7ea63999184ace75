//! Values of expressions.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map, Opaque, OptionalValue};

use super::functions;

/// JSON without a schema, as admission policies see objects.
pub(crate) fn of_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => Value::Int(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(value) => text(value),
        serde_json::Value::Array(items) => list(items.iter().map(of_json).collect()),
        serde_json::Value::Object(fields) => {
            map(fields.iter().map(|(name, value)| (name.clone(), of_json(value))))
        }
    }
}

/// A string.
pub(crate) fn text(value: &str) -> Value {
    Value::String(Arc::new(value.to_owned()))
}

/// A list.
pub(crate) fn list(items: Vec<Value>) -> Value {
    Value::List(Arc::new(items))
}

/// A map with keys that are strings.
#[allow(clippy::disallowed_types, reason = "the crate's map; whoever walks it sorts its keys")]
pub(crate) fn map(entries: impl Iterator<Item = (String, Value)>) -> Value {
    let entries: HashMap<Key, Value> =
        entries.map(|(name, value)| (Key::String(Arc::new(name)), value)).collect();
    Value::Map(Map { map: Arc::new(entries) })
}

/// An optional with something in it.
pub(crate) fn optional(value: Value) -> Value {
    Value::Opaque(Arc::new(OptionalValue::of(value)))
}

/// An optional with nothing in it.
pub(crate) fn none() -> Value {
    Value::Opaque(Arc::new(OptionalValue::none()))
}

/// What is in an optional: `None` if the value is no optional.
pub(super) fn in_optional(value: &Value) -> Option<Option<&Value>> {
    let Value::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<OptionalValue>().map(OptionalValue::value)
}

/// A string as the time that its format says; as a string if it is none.
pub(crate) fn timestamp_or_duration(value: &str, format: &str) -> Value {
    let function = match format {
        "date-time" | "datetime" | "date" => "timestamp",
        _ => "duration",
    };
    let whole = match format {
        "date" => format!("{value}T00:00:00Z"),
        _ => value.to_owned(),
    };
    functions::delegate(function, None, vec![text(&whole)]).unwrap_or_else(|_| text(value))
}

/// The type of a value as a value: `type(x) == int`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeValue(pub(super) String);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

/// The name of the type of a value.
pub(super) fn type_name(value: &Value) -> &str {
    match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Function(..) => "function",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Opaque(opaque) => opaque.runtime_type_name(),
        Value::Null => "null_type",
    }
}

/// How much there is of a value: what copying it costs.
pub(super) fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 10,
        Value::Bytes(bytes) => 1 + bytes.len() as u64 / 10,
        Value::List(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Map(map) => 1 + map.map.values().map(|value| 1 + size(value)).sum::<u64>(),
        other => 1 + in_optional(other).flatten().map_or(0, size),
    }
}

/// A key of a map.
pub(super) fn key(value: &Value) -> Option<Key> {
    Some(match value {
        Value::Int(integer) => Key::Int(*integer),
        Value::UInt(integer) => Key::Uint(*integer),
        Value::Bool(value) => Key::Bool(*value),
        Value::String(text) => Key::String(text.clone()),
        // A whole double is the same key as the integer.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => Key::Int(*float as i64),
        _ => return None,
    })
}

/// The keys of a map in order.
pub(super) fn sorted_keys(map: &Map) -> Vec<Key> {
    let mut keys: Vec<Key> = map.map.keys().cloned().collect();
    keys.sort();
    keys
}

/// The words that cannot be names.
const RESERVED: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// The name of a property as a rule spells it; `None` if rules cannot reach it.
pub(crate) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) || name == "var" || name == "void" || name == "while" {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.next_if_eq(&'_').is_some() => escaped.push_str("__underscores__"),
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
    }
    Some(escaped)
}
