//! JSON → `Value`, noting the fields that occur twice.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Decoded, Duplicate, MAX_DUPLICATES, Undecoded, syntax};
use crate::bounds::Meter;

/// How deep arrays and objects may be nested: `serde_json`'s limit. (kube-apiserver: 10,000.)
pub(super) const MAX_DEPTH: usize = 127;
/// How long the paths of all problems of a body may be together, about.
const MAX_SPELLED: usize = 4 * super::MAX_BODY;

/// Parses one JSON text. The error says what is wrong with it, in the words of Go's decoder.
pub(crate) fn parse(text: &[u8]) -> Result<Decoded, Undecoded> {
    parse_metered(text, &Meter::new())
}

/// The same within other bounds.
pub(crate) fn parse_metered(text: &[u8], meter: &Meter) -> Result<Decoded, Undecoded> {
    // Go's decoder replaces what is not UTF-8 instead of refusing it.
    let text: Cow<'_, str> = String::from_utf8_lossy(text);
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let spelled = Cell::new(0);
    let root = Node { path: &Path::Root, duplicates: &duplicates, spelled: &spelled, meter };
    let parsed = root.deserialize(&mut deserializer);
    match parsed.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok(Decoded { value, duplicates: duplicates.into_inner() }),
        Err(error) => Err(match meter.exceeded() {
            Some(exceeded) => exceeded.into(),
            None => {
                Undecoded::Malformed(syntax::explain(text.as_bytes()).unwrap_or_else(|| error.to_string()))
            }
        }),
    }
}

/// Where in the document a value stands: a list that lives on the stack, so that only duplicates cost an allocation.
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The path as text; none once all texts together are longer than a few bodies. A short text can have many problems
    /// at the end of a long path.
    pub(super) fn spell(&self, spelled: &Cell<usize>) -> Option<String> {
        if spelled.get() > MAX_SPELLED {
            return None;
        }
        let text = self.to_string();
        spelled.set(spelled.get() + text.len());
        Some(text)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    path: &'a Path<'a>,
    duplicates: &'a RefCell<Vec<Duplicate>>,
    spelled: &'a Cell<usize>,
    meter: &'a Meter,
}

impl Node<'_> {
    fn note_duplicate(&self, name: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() >= MAX_DUPLICATES {
            return;
        }
        let Some(path) = Path::Field(self.path, name).spell(self.spelled) else { return };
        let duplicate = Duplicate::Field(path);
        if !duplicates.contains(&duplicate) {
            duplicates.push(duplicate);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        // The text is bounded, and no value of JSON is larger than its text.
        self.meter.value().map_err(D::Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
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
        Ok(integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = Path::Item(self.path, values.len());
            match items.next_element_seed(Node { path: &path, ..self })? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let value = fields.next_value_seed(Node { path: &path, ..self })?;
            if values.contains_key(&name) {
                self.note_duplicate(&name);
            }
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

/// Kubernetes knows integers of 64 bits with a sign; larger ones are floating-point numbers.
pub(super) fn integer(value: u64) -> Value {
    match i64::try_from(value) {
        Ok(value) => Value::from(value),
        #[allow(clippy::cast_precision_loss)]
        Err(_) => Value::from(value as f64),
    }
}
