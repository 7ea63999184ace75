//! One step of a path into an object: a field, an item of a list, a value of a set.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

/// Selects one child of a map or list.
#[derive(Clone, Debug)]
pub(crate) enum PathElement {
    /// A field of a map or struct: `f:name`.
    Field(Box<str>),
    /// The item of a list whose keys have these values, sorted by key: `k:{"name":"web"}`.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set: `v:"text"`.
    Value(Value),
    /// The item at a place: `i:0`.
    Index(i64),
}

impl PathElement {
    pub(crate) fn field(name: &str) -> PathElement {
        PathElement::Field(name.into())
    }

    /// The keys of an item, in any order.
    pub(crate) fn key(mut keys: Vec<(Box<str>, Value)>) -> PathElement {
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        PathElement::Key(keys.into())
    }

    /// Reads a key of a FieldsV1 object. What a future version may know (another letter) is none; text that is no
    /// path element at all is an error.
    pub(crate) fn parse(text: &str) -> Result<Option<PathElement>, String> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err("key must be 2 characters long:".to_owned());
        }
        if bytes[1] != b':' {
            return Err(format!("missing colon: {text}"));
        }
        let rest = &text[2..];
        Ok(Some(match bytes[0] {
            b'f' => PathElement::field(rest),
            b'v' => PathElement::Value(serde_json::from_str(rest).map_err(|error| error.to_string())?),
            b'k' => {
                let keys: serde_json::Map<String, Value> =
                    serde_json::from_str(rest).map_err(|error| error.to_string())?;
                PathElement::key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect())
            }
            b'i' => PathElement::Index(
                rest.parse().map_err(|_| format!("strconv.Atoi: parsing {rest:?}: invalid syntax"))?,
            ),
            _ => return Ok(None),
        }))
    }

    /// The key of a FieldsV1 object that stands for this element.
    pub(crate) fn to_key(&self) -> String {
        match self {
            PathElement::Field(name) => {
                let mut key = String::with_capacity(name.len() + 2);
                key.push_str("f:");
                key.push_str(name);
                key
            }
            PathElement::Key(keys) => {
                let mut key = String::from("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        key.push(',');
                    }
                    key.push_str(&Value::from(&**name).to_string());
                    key.push(':');
                    key.push_str(&value.to_string());
                }
                key.push('}');
                key
            }
            PathElement::Value(value) => format!("v:{value}"),
            PathElement::Index(at) => format!("i:{at}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &PathElement) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b.iter()) {
                    let order = a_name.cmp(b_name).then_with(|| compare(a_value, b_value));
                    if order.is_ne() {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &PathElement) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &PathElement) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// As error messages write it: `.spec`, `[name="web"]`, `[="text"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", text(value))?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={}]", text(value)),
            PathElement::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// A path as error messages write it.
pub(crate) fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A value as error messages write it: Go's `%q` of strings, maps without braces.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", text(value))).collect()
        }
    }
}

/// An order of all values: numbers, strings, booleans, lists, maps, null.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let first = a
                .iter()
                .zip(b)
                .map(|(a, b)| a.0.cmp(b.0).then_with(|| compare(a.1, b.1)))
                .find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same to server-side apply: 1 and 1.0 are.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && equal(a.1, b.1))
        }
        _ => a == b,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(a).total_cmp(&float(b))
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_written_as_kube_apiserver_writes_them() {
        let ports =
            PathElement::key(vec![("protocol".into(), json!("TCP")), ("containerPort".into(), json!(80))]);
        for (element, key, text) in [
            (PathElement::field("spec"), "f:spec", ".spec"),
            (ports, r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (PathElement::Value(json!("a")), r#"v:"a""#, r#"[="a"]"#),
            (PathElement::Index(3), "i:3", "[3]"),
        ] {
            assert_eq!(element.to_key(), key);
            assert_eq!(element.to_string(), text);
            assert_eq!(PathElement::parse(key), Ok(Some(element)));
        }
    }

    #[test]
    fn what_a_future_version_may_know_is_passed_over_and_nonsense_is_refused() {
        assert_eq!(PathElement::parse("x:1"), Ok(None));
        for bad in ["", "f", "fspec", "k:1", "v:", "i:x"] {
            assert!(PathElement::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_in_keys_are_in_the_order_of_numbers() {
        let port = |port: i64| PathElement::key(vec![("port".into(), json!(port))]);
        assert!(port(80) < port(443));
        assert!(PathElement::field("z") < port(1));
        assert_eq!(PathElement::Value(json!(1)), PathElement::Value(json!(1.0)));
    }
}
