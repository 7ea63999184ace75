//! Filling in what an object leaves to the server, in place.

use serde_json::{Map, Value};

/// A struct of an object.
pub(super) type Fields = Map<String, Value>;

/// Sets a field that is not there.
pub(super) fn default(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Go's protobuf knows no empty lists: what is stored comes back as null.
pub(super) fn null_if_empty(fields: &mut Fields, name: &str) {
    if fields.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.insert(name.to_owned(), Value::Null);
    }
}

/// Sets a text that is not there or empty.
pub(super) fn default_text(fields: &mut Fields, name: &str, value: &str) {
    if fields.get(name).is_none_or(|text| text == "") {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The text of a field; empty when there is none.
pub(super) fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A struct inside a struct.
pub(super) fn part<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name)?.as_object_mut()
}

/// A struct inside a struct, made if it is not there.
pub(super) fn part_or_new<'a>(fields: &'a mut Fields, name: &str) -> &'a mut Fields {
    let value = fields.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it is an object now")
}

/// The structs of a list.
pub(super) fn each<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    let items = fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}
