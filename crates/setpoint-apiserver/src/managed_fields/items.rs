//! The items of sets and keyed lists, by their path elements.

use serde_json::Value;

use super::element::PathElement;
use super::schema::{List, Relation};

/// Names the items of one list.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    list: List<'a>,
    keys: Vec<&'a str>,
}

impl<'a> Items<'a> {
    pub(crate) fn new(list: List<'a>) -> Items<'a> {
        Items { list, keys: list.keys() }
    }

    /// The path element of an item; an error if it has none.
    pub(crate) fn element(&self, item: &Value) -> Result<PathElement, String> {
        match self.list.relation {
            Relation::Map(_) => self.by_keys(item),
            Relation::Set => by_value(item),
            Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        }
    }

    fn by_keys(&self, item: &Value) -> Result<PathElement, String> {
        let fields = match item {
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            Value::Object(fields) => fields,
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut found = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            if let Some(value) = fields.get(*key).cloned().or_else(|| self.list.key_default(key)) {
                found.push((Box::from(*key), value));
            }
        }
        if found.is_empty() {
            let keys: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                keys.join(" ")
            ));
        }
        Ok(PathElement::key(found))
    }
}

fn by_value(item: &Value) -> Result<PathElement, String> {
    let why = match item {
        Value::Object(_) => "associative list without keys has an element that's a map type",
        Value::Array(_) => "not supported: associative list with lists as elements",
        Value::Null => "associative list without keys has an element that's an explicit null",
        scalar => return Ok(PathElement::Value(scalar.clone())),
    };
    Err(why.to_owned())
}
