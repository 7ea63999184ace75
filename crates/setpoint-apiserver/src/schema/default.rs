//! What a schema fills in.

use serde_json::Value;

use super::Structural;
use crate::bounds::{Exceeded, Room};

impl Structural {
    /// Sets what is missing, or null where null is not allowed, to its default, at every level that exists.
    ///
    /// A default in the items of an array is there once an item, so all of them together are bounded. An error leaves the
    /// value half done.
    pub(crate) fn default(&self, value: &mut Value, room: &mut Room) -> Result<(), Exceeded> {
        match value {
            Value::Object(fields) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else { continue };
                    let missing = match fields.get(name) {
                        None => true,
                        Some(value) => is_wrong_null(value, property),
                    };
                    if missing {
                        room.take_part(default)?;
                        fields.insert(name.clone(), default.clone());
                    }
                }
                for (name, value) in fields {
                    if let Some(property) = self.properties.get(name) {
                        property.default(value, room)?;
                    } else if let Some(additional) = self.additional() {
                        additional.element(value, room)?;
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().try_for_each(|item| schema.element(item, room))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An item of an array, or a value of a map: it exists, so only a null can be replaced.
    fn element(&self, value: &mut Value, room: &mut Room) -> Result<(), Exceeded> {
        if is_wrong_null(value, self)
            && let Some(default) = &self.default
        {
            room.take_part(default)?;
            *value = default.clone();
        }
        self.default(value, room)
    }
}

fn is_wrong_null(value: &Value, schema: &Structural) -> bool {
    value.is_null() && !schema.nullable
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, object: Value, expected: Value) {
        let schema = Structural::parse(&schema).unwrap();
        let mut defaulted = object;
        schema.default(&mut defaulted, &mut Room::default()).unwrap();
        assert_eq!(defaulted, expected);
        schema.default(&mut defaulted, &mut Room::default()).unwrap();
        assert_eq!(defaulted, expected, "defaulting again changes nothing");
    }

    #[test]
    fn defaults_reach_into_objects_that_exist_or_are_defaulted() {
        let replicas =
            json!({"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}}});
        let mut defaulted = replicas.clone();
        defaulted["default"] = json!({});
        check(
            json!({"type": "object", "properties": {"spec": replicas, "other": defaulted}}),
            json!({"spec": {}}),
            json!({"spec": {"replicas": 1}, "other": {"replicas": 1}}),
        );
        check(json!({"type": "object", "properties": {"spec": replicas}}), json!({}), json!({}));
    }

    #[test]
    fn a_null_that_may_not_be_is_replaced() {
        check(
            json!({"type": "object", "properties": {
                "a": {"type": "string", "default": "x"},
                "b": {"type": "string", "default": "x", "nullable": true},
                "list": {"type": "array", "items": {"type": "string", "default": "y"}},
                "map": {"type": "object", "additionalProperties": {"type": "string", "default": "z"}},
            }}),
            json!({"a": null, "b": null, "list": [null, "v"], "map": {"k": null}}),
            json!({"a": "x", "b": null, "list": ["y", "v"], "map": {"k": "z"}}),
        );
    }

    #[test]
    fn items_of_arrays_are_defaulted() {
        check(
            json!({"type": "array", "items": {"type": "object", "properties": {"p": {"default": "TCP"}}}}),
            json!([{}, {"p": "UDP"}]),
            json!([{"p": "TCP"}, {"p": "UDP"}]),
        );
    }
}
