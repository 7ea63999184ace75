//! The fields of a value: every leaf, and every item of a list or map.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::PathElement;
use super::field_set::{FieldSet, Part};
use super::items::Items;
use super::schema::{Form, Schema};

/// The fields that a value has.
pub(crate) fn field_set(schema: Schema<'_>, value: &Value) -> FieldSet {
    part(schema, value).below
}

fn part(schema: Schema<'_>, value: &Value) -> Part {
    match schema.atom().form(Some(value)) {
        Form::Scalar(_) => Part::MEMBER,
        Form::List(list) if list.is_atomic() => Part::MEMBER,
        Form::Map(map) if map.is_atomic => Part::MEMBER,
        Form::List(list) => {
            let mut below = FieldSet::default();
            let names = Items::new(list);
            let mut items: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
            for item in value.as_array().into_iter().flatten() {
                if let Ok(element) = names.element(item) {
                    items.entry(element).or_default().push(item);
                }
            }
            for (element, found) in items {
                let mut child = match found.as_slice() {
                    [only] => part(list.item, only),
                    // Items that are there twice are one thing.
                    _ => Part::default(),
                };
                child.is_member = true;
                below.push(element, child);
            }
            Part { is_member: false, below }
        }
        Form::Map(map) => {
            let mut below = FieldSet::default();
            for (name, value) in value.as_object().into_iter().flatten() {
                let mut child = part(map.child(name).unwrap_or(Schema::Untyped), value);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                child.is_member |= is_empty || map.field(name).is_none();
                below.push(PathElement::field(name), child);
            }
            Part { is_member: false, below }
        }
    }
}
