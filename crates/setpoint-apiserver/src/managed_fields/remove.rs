//! Taking fields out of a value.

use serde_json::Value;

use super::element::PathElement;
use super::field_set::FieldSet;
use super::items::Items;
use super::schema::{Form, Schema};

/// The value without the fields of the set; null if nothing is left.
pub(crate) fn remove(schema: Schema<'_>, value: &Value, set: &FieldSet) -> Value {
    match (schema.atom().form(Some(value)), value) {
        (Form::Scalar(_), _) => value.clone(),
        (Form::List(list), Value::Array(items)) if !list.is_atomic() => {
            let names = Items::new(list);
            let kept = items.iter().filter_map(|item| {
                let Ok(element) = names.element(item) else { return Some(item.clone()) };
                if set.has_member(&element) {
                    return None;
                }
                Some(set.below(&element).map_or_else(|| item.clone(), |below| remove(list.item, item, below)))
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Form::Map(map), Value::Object(fields)) if !map.is_atomic => {
            let mut kept = serde_json::Map::new();
            for (name, value) in fields {
                let element = PathElement::field(name);
                if set.has_member(&element) {
                    continue;
                }
                let value = match set.below(&element) {
                    Some(below) => remove(map.child(name).unwrap_or(Schema::Untyped), value, below),
                    None => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        // Of what is one value, parts cannot be taken; and what is empty has none.
        _ => Value::Null,
    }
}
