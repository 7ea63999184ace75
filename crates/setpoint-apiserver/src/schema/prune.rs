//! What a schema does not know is dropped.

use serde_json::Value;

use super::{AdditionalProperties, Structural, embedded};
use crate::field_error::FieldError;

/// The fields of every resource, which no schema needs to name.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What becomes of a null that may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// It is as if it had not been sent.
    Dropped,
    /// It gets its default, or is refused.
    Kept,
}

impl Structural {
    /// Drops from a custom resource what the schema does not know. Returns the paths of what was dropped, sorted, as
    /// strict decoding reports them: `spec.foo`, `spec.list[0].x`.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        self.prune_value(object, true)
    }

    /// Gives the metadata of embedded resources their shape. Returns the paths of what was dropped.
    pub(crate) fn coerce(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        let mut dropped = Vec::new();
        embedded::coerce(self, object, "", &mut dropped)?;
        dropped.sort();
        Ok(dropped)
    }

    /// The same for a value anywhere within an object, which may be a resource itself.
    pub(super) fn prune_value(&self, value: &mut Value, resource: bool) -> Vec<String> {
        let mut pruner = Pruner { path: String::new(), dropped: Vec::new() };
        pruner.node(value, Some(self), resource);
        pruner.dropped.sort();
        pruner.dropped
    }

    /// Drops each `null` of a field that may not be null and has no default, as if it had not been sent.
    pub(crate) fn prune_nulls(&self, object: &mut Value) {
        prune_nulls(object, Some(self));
    }
}

struct Pruner {
    path: String,
    dropped: Vec<String>,
}

/// How many dropped fields are told; Go's decoder tells as many unknown ones.
const MOST_DROPPED: usize = 100;

impl Pruner {
    /// Notes that the field at the path is dropped.
    fn drop_here(&mut self) {
        if self.dropped.len() < MOST_DROPPED {
            self.dropped.push(self.path.clone());
        }
    }

    /// `root`: the node is the resource itself, an embedded resource whatever its schema says.
    fn node(&mut self, value: &mut Value, schema: Option<&Structural>, root: bool) {
        match schema {
            Some(schema) if schema.preserve_unknown_fields => self.preserved(value, Some(schema), root),
            _ => self.pruned(value, schema, root),
        }
    }

    fn pruned(&mut self, value: &mut Value, schema: Option<&Structural>, root: bool) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| match schema.map(|schema| child(schema, name, root)) {
                    Some(Child::Meta) => true,
                    Some(Child::Known(schema)) => {
                        self.below_key(name, |pruner| pruner.node(value, schema, false));
                        true
                    }
                    Some(Child::Unknown) | None => {
                        self.below_key(name, |pruner| pruner.drop_here());
                        false
                    }
                })
            }
            Value::Array(items) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                self.each(items, |pruner, item| pruner.node(item, schema, false));
            }
            _ => {}
        }
    }

    /// Below `x-kubernetes-preserve-unknown-fields` only what has a schema is looked at.
    fn preserved(&mut self, value: &mut Value, schema: Option<&Structural>, root: bool) {
        let Some(schema) = schema else { return };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Child::Known(schema) = child(schema, name, root) {
                        self.below_key(name, |pruner| pruner.node(value, schema, false));
                    }
                }
            }
            Value::Array(items) => {
                let schema = schema.items.as_deref();
                self.each(items, |pruner, item| pruner.preserved(item, schema, false));
            }
            _ => {}
        }
    }

    fn below_key(&mut self, key: &str, visit: impl FnOnce(&mut Pruner)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        visit(self);
        self.path.truncate(length);
    }

    fn each(&mut self, items: &mut [Value], mut visit: impl FnMut(&mut Pruner, &mut Value)) {
        let length = self.path.len();
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            visit(self, item);
            self.path.truncate(length);
        }
    }
}

enum Child<'a> {
    /// `apiVersion`, `kind` or `metadata` of a resource: not for the schema to decide.
    Meta,
    /// Allowed; with its schema, if it has one.
    Known(Option<&'a Structural>),
    Unknown,
}

fn child<'a>(schema: &'a Structural, name: &str, root: bool) -> Child<'a> {
    if (root || schema.embedded_resource) && META_FIELDS.contains(&name) {
        return Child::Meta;
    }
    match (schema.properties.get(name), &schema.additional_properties) {
        (Some(property), _) => Child::Known(Some(property)),
        (None, Some(AdditionalProperties::Schema(schema))) => Child::Known(Some(schema)),
        (None, Some(AdditionalProperties::Allowed(_))) => Child::Known(None),
        (None, None) => Child::Unknown,
    }
}

fn prune_nulls(value: &mut Value, schema: Option<&Structural>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let schema = schema.and_then(|schema| schema.field(name));
            let drop =
                value.is_null() && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none());
            if !drop {
                prune_nulls(value, schema);
            }
            !drop
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                prune_nulls(item, schema);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, object: Value, expected: Value, dropped: &[&str]) {
        let schema = Structural::parse(&schema).unwrap();
        let mut pruned = object;
        assert_eq!(schema.prune(&mut pruned), dropped);
        assert_eq!(pruned, expected);
        assert!(schema.prune(&mut pruned).is_empty(), "pruning again drops nothing");
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        check(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object"}},
            }}}}),
            json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "extra": 1, "spec": {
                "a": "b", "c": 1, "list": [{"x": 1, "y": 2}, {"z": 3}], "map": {"k": {"v": 1}},
            }}),
            json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {
                "a": "b", "list": [{"x": 1}, {}], "map": {"k": {}},
            }}),
            &["extra", "spec.c", "spec.list[0].y", "spec.list[1].z", "spec.map.k.v"],
        );
    }

    #[test]
    fn preserved_fields_stay_but_known_ones_below_them_are_pruned() {
        check(
            json!({"type": "object", "properties": {"spec": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
            }}}),
            json!({"spec": {"any": {"b": 1}, "known": {"a": "x", "b": 1}}}),
            json!({"spec": {"any": {"b": 1}, "known": {"a": "x"}}}),
            &["spec.known.b"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_meta_fields() {
        check(
            json!({"type": "object", "properties": {"template": {
                "type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}},
            }}}),
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"a": 1}, "x": 1}}),
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {}}}),
            &["template.spec.a", "template.x"],
        );
    }

    #[test]
    fn additional_properties_true_keeps_names_and_scalars_only() {
        check(
            json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": true}}}),
            json!({"m": {"a": 1, "b": {"c": 1}}}),
            json!({"m": {"a": 1, "b": {}}}),
            &["m.b.c"],
        );
    }

    #[test]
    fn nulls_that_may_not_be_are_dropped_unless_defaulted_later() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
        }}))
        .unwrap();
        let mut object = json!({"plain": null, "nullable": null, "defaulted": null, "unknown": null});
        schema.prune_nulls(&mut object);
        assert_eq!(object, json!({"nullable": null, "defaulted": null, "unknown": null}));
    }
}
