//! Which old value a new value comes from: an unchanged value that has become invalid is let through.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Structural;

/// A value and the old value that it replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlated<'a> {
    pub(super) old: &'a Value,
    pub(super) new: &'a Value,
    pub(super) schema: &'a Structural,
}

impl<'a> Correlated<'a> {
    /// The field `name` of both, if both have it and a schema knows it.
    pub(super) fn key(&self, name: &str) -> Option<Correlated<'a>> {
        let (old, new) = (self.old.as_object()?.get(name)?, self.new.as_object()?.get(name)?);
        Some(Correlated { old, new, schema: self.schema.field(name)? })
    }

    /// For each item of the new list the old item of the same key. Only lists of type `map` have keys: the items of
    /// others come from nowhere.
    pub(super) fn items(&self) -> Option<Vec<Option<Correlated<'a>>>> {
        let (Value::Array(old), Value::Array(new)) = (self.old, self.new) else { return None };
        if self.schema.list_type.as_deref() != Some("map") {
            return None;
        }
        let schema = self.schema.items.as_deref()?;
        let mut by_key = BTreeMap::new();
        for item in old {
            by_key.entry(self.item_key(item)?).or_insert(item);
        }
        let correlate = |item| {
            let old = by_key.get(&self.item_key(item)?)?;
            Some(Correlated { old, new: item, schema })
        };
        Some(new.iter().map(correlate).collect())
    }

    fn item_key(&self, item: &Value) -> Option<String> {
        let fields = item.as_object()?;
        let keys = self.schema.list_map_keys.iter().map(|key| fields.get(key).unwrap_or(&Value::Null));
        Some(keys.map(ToString::to_string).collect::<Vec<_>>().join(","))
    }

    /// Whether nothing changed. Fields without a schema count as changed; the order of a list of type `map` does not
    /// matter.
    pub(super) fn is_unchanged(&self) -> bool {
        match (self.old, self.new) {
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len()
                    && new.keys().all(|name| self.key(name).is_some_and(|child| child.is_unchanged()))
            }
            (Value::Array(old), Value::Array(new)) => {
                old.len() == new.len()
                    && match self.items() {
                        Some(items) => items.iter().all(|item| item.is_some_and(|item| item.is_unchanged())),
                        None => old == new,
                    }
            }
            (old, new) => old == new,
        }
    }
}
