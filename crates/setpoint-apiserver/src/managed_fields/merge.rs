//! Laying what is applied over what is there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::element::PathElement;
use super::items::Items;
use super::schema::{Form, List, Map, Schema};

/// The live value with what the applied one says. Nothing is removed by it.
pub(crate) fn merge(schema: Schema<'_>, live: &Value, applied: &Value) -> Value {
    merge_child(schema, Some(live), Some(applied)).unwrap_or(Value::Null)
}

fn merge_child(schema: Schema<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    match schema.atom().form(applied.or(live)) {
        Form::Scalar(_) => leaf(),
        Form::List(list) => {
            let (old, new) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            // Empty is not the same as null: what was applied of the two stays.
            if list.is_atomic() || old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty) {
                return leaf();
            }
            let merged = merge_items(list, old.map_or(&[], Vec::as_slice), new.map_or(&[], Vec::as_slice));
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Form::Map(map) => {
            let (old, new) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let is_empty = |fields: &serde_json::Map<_, _>| fields.is_empty();
            if map.is_atomic || old.is_none_or(is_empty) && new.is_none_or(is_empty) {
                return leaf();
            }
            let merged = merge_fields(map, old, new);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn merge_fields(
    map: Map<'_>,
    live: Option<&serde_json::Map<String, Value>>,
    applied: Option<&serde_json::Map<String, Value>>,
) -> serde_json::Map<String, Value> {
    let names: BTreeSet<&String> =
        live.into_iter().flatten().chain(applied.into_iter().flatten()).map(|(name, _)| name).collect();
    let merged = names.into_iter().filter_map(|name| {
        let schema = map.child(name).unwrap_or(Schema::Untyped);
        let get = |fields: Option<&'_ serde_json::Map<String, Value>>| {
            fields.and_then(|fields| fields.get(name)).cloned()
        };
        let (old, new) = (get(live), get(applied));
        Some((name.clone(), merge_child(schema, old.as_ref(), new.as_ref())?))
    });
    merged.collect()
}

/// Merges lists whose items have names. Items of both lists come in the order of what is applied, and those that only
/// the live one has stay behind the neighbours that they had.
fn merge_items(list: List<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let names = Items::new(list);
    let named = |items: &'_ [Value]| -> Vec<(PathElement, Value)> {
        items.iter().filter_map(|item| Some((names.element(item).ok()?, item.clone()))).collect()
    };
    let (live, applied) = (named(live), named(applied));
    let mut live_by_name: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        // Of items that are there twice none is the one to merge with.
        live_by_name.entry(element).and_modify(|found| *found = None).or_insert(Some(item));
    }
    let applied_by_name: BTreeMap<&PathElement, &Value> =
        applied.iter().map(|(element, item)| (element, item)).collect();
    let mut shared: VecDeque<&PathElement> = applied
        .iter()
        .map(|(element, _)| element)
        .filter(|element| live_by_name.contains_key(element))
        .collect();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
    let both = |element: &PathElement| {
        let old = live_by_name.get(element).copied().flatten();
        merge_child(list.item, old, applied_by_name.get(element).copied())
    };
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < applied.len() {
        if let (Some((old, _)), Some((new, _))) = (live.get(left), applied.get(right)) {
            if old == new {
                merged.insert(old);
                out.extend(both(old));
                left += 1;
                right += 1;
                shared.pop_front();
                continue;
            }
            if applied_by_name.contains_key(old) && shared.front().is_some_and(|next| *next != old) {
                // It is in both, but another one comes first.
                left += 1;
                continue;
            }
        }
        if let Some((old, item)) = live.get(left) {
            if !applied_by_name.contains_key(old) {
                out.extend(merge_child(list.item, Some(item), None));
                left += 1;
                continue;
            }
            if merged.contains(old) {
                left += 1;
            }
        }
        if let Some((new, _)) = applied.get(right) {
            merged.insert(new);
            out.extend(both(new));
            right += 1;
            if shared.front() == Some(&new) {
                shared.pop_front();
            }
        }
    }
    out
}
