//! YAML → `Value`, the way that sigs.k8s.io/yaml reads it: YAML 1.1's booleans, first document only.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

use super::{Decoded, Duplicate, MAX_DUPLICATES, Undecoded, json};
use crate::bounds::{MAX_NODES, Meter};

/// How deep sequences and mappings may be nested. A level takes 3 KiB of stack, in a debug build 20 KiB: mind the
/// 2 MiB that a thread has.
const MAX_DEPTH: usize = 48;

/// Parses the first document of a YAML text. The error says what is wrong with it.
pub(crate) fn parse(text: &[u8]) -> Result<Decoded, Undecoded> {
    // kubectl sends JSON as YAML (server-side apply): read it the fast way, unless duplicates ask for line numbers.
    if text.trim_ascii_start().starts_with(b"{")
        && let Ok(decoded) = json::parse(text)
        && decoded.duplicates.is_empty()
    {
        return Ok(decoded);
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| Undecoded::Malformed("yaml: invalid leading UTF-8 octet".to_owned()))?;
    let text = first_document(text);
    let duplicates = RefCell::new(Vec::new());
    let meter = Meter::new();
    let parsed = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |deserializer| {
        Node { duplicates: &duplicates, meter: &meter }.deserialize(deserializer)
    });
    match parsed {
        Ok(value) => Ok(Decoded { value, duplicates: duplicates.into_inner() }),
        Err(error) => Err(meter.exceeded().map_or_else(|| Undecoded::Malformed(explain(&error)), Into::into)),
    }
}

/// The text up to the end of its first document. No content, not even a quoted one, can have a line that starts with
/// a marker, so looking at lines is enough.
fn first_document(text: &str) -> &str {
    let mut end = 0;
    let mut begun = false;
    for line in text.split_inclusive('\n') {
        let marker = line.trim_end();
        let starts = marker == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if begun && (starts || marker == "...") {
            return &text[..end];
        }
        begun |= starts || !(marker.is_empty() || line.starts_with(['#', '%']));
        end += line.len();
    }
    text
}

/// The body is already bounded in bytes; these bound what its aliases can blow up to.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 1_000_000,
            max_aliases: 10_000,
            max_anchors: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn explain(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    match error.location() {
        Some(location) => {
            let place = format!(" at line {}, column {}", location.line(), location.column());
            format!("yaml: line {}: {}", location.line(), text.strip_suffix(&place).unwrap_or(text))
        }
        None => format!("yaml: {text}"),
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    duplicates: &'a RefCell<Vec<Duplicate>>,
    meter: &'a Meter,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.meter.value().map_err(D::Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(json::integer(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number =
            Number::from_f64(value).ok_or_else(|| E::custom(format!("json: unsupported value: {value}")))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        // An alias repeats a text of any length with two letters.
        self.meter.text(value.len()).map_err(E::custom)?;
        Ok(Value::from(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.meter.text(value.len()).map_err(E::custom)?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = fields.next_key::<Spanned<Key>>()? {
            let line = key.referenced.line();
            let Key(name) = key.value;
            if values.contains_key(&name) {
                let mut duplicates = self.duplicates.borrow_mut();
                if duplicates.len() < MAX_DUPLICATES {
                    duplicates.push(Duplicate::Line { line, key: name.clone() });
                }
            }
            let value = fields.next_value_seed(self)?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

/// A key of a mapping. JSON's are strings, so `1: x` and `yes: x` become `"1"` and `"true"`.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let duplicates = RefCell::new(Vec::new());
        match (Node { duplicates: &duplicates, meter: &Meter::new() }).deserialize(deserializer)? {
            Value::String(key) => Ok(Key(key)),
            Value::Bool(key) => Ok(Key(key.to_string())),
            Value::Number(key) => Ok(Key(key.to_string())),
            other => Err(D::Error::custom(format!("invalid map key: {other}"))),
        }
    }
}
