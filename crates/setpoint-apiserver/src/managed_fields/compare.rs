//! What a change adds, modifies and removes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::{self, PathElement};
use super::field_set::{FieldSet, Part};
use super::items::Items;
use super::schema::{Form, List, Map, Schema};

/// The difference between two objects. No field is in more than one of the sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Lets each set through a filter.
    pub(crate) fn filter(self, filter: impl Fn(FieldSet) -> FieldSet) -> Comparison {
        Comparison {
            removed: filter(self.removed),
            modified: filter(self.modified),
            added: filter(self.added),
        }
    }
}

/// Compares an old with a new value of one type.
pub(crate) fn compare(schema: Schema<'_>, old: &Value, new: &Value) -> Comparison {
    let difference = differ(schema, Some(old), Some(new));
    Comparison {
        removed: difference.removed.below,
        modified: difference.modified.below,
        added: difference.added.below,
    }
}

/// The difference of one child.
#[derive(Debug, Default)]
struct Difference {
    removed: Part,
    modified: Part,
    added: Part,
}

impl Difference {
    /// The difference of one value that has no parts.
    fn of_leaf(old: Option<&Value>, new: Option<&Value>) -> Difference {
        let mut difference = Difference::default();
        match (old, new) {
            (None, _) => difference.added.is_member = true,
            (_, None) => difference.removed.is_member = true,
            (Some(old), Some(new)) => difference.modified.is_member = !element::equal(old, new),
        }
        difference
    }

    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Adds the difference of a child.
    fn push(&mut self, element: impl FnOnce() -> PathElement, child: Difference) {
        if child.is_empty() {
            return;
        }
        // Nearly always only one of them has anything.
        let element = element();
        if !child.removed.is_empty() {
            self.removed.below.push(element.clone(), child.removed);
        }
        if !child.modified.is_empty() {
            self.modified.below.push(element.clone(), child.modified);
        }
        self.added.below.push(element, child.added);
    }
}

fn differ(schema: Schema<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let atom = schema.atom();
    let (old_form, new_form) = (atom.form(old), atom.form(new));
    if old.is_some() && new.is_some() && !old_form.same(&new_form) {
        // A value of several forms has changed its form: what it was is gone, what it is is new.
        let mut difference = differ_as(new_form, old, new);
        let before = differ_as(old_form, old, new);
        for (part, before) in [
            (&mut difference.removed, before.removed),
            (&mut difference.modified, before.modified),
            (&mut difference.added, before.added),
        ] {
            part.is_member |= before.is_member;
            part.below = part.below.union(&before.below);
        }
        return difference;
    }
    differ_as(if new.is_some() { new_form } else { old_form }, old, new)
}

fn differ_as(form: Form<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = match form {
        Form::Scalar(_) => return Difference::of_leaf(old, new),
        Form::List(list) => {
            let items = |value: Option<&'_ Value>| value.and_then(Value::as_array).map_or(0, Vec::len);
            if list.is_atomic() || items(old) + items(new) == 0 {
                return Difference::of_leaf(old, new);
            }
            differ_items(list, old, new)
        }
        Form::Map(map) => {
            let fields =
                |value: Option<&'_ Value>| value.and_then(Value::as_object).map_or(0, serde_json::Map::len);
            if map.is_atomic || fields(old) + fields(new) == 0 {
                return Difference::of_leaf(old, new);
            }
            differ_fields(map, old, new)
        }
    };
    difference.added.is_member |= old.is_none();
    difference.removed.is_member |= old.is_some() && new.is_none();
    difference
}

fn differ_fields(map: Map<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    let child = |name: &str| map.child(name).unwrap_or(Schema::Untyped);
    for (name, value) in new.into_iter().flatten() {
        let before = old.and_then(|old| old.get(name));
        // Most of an object stays as it is, and a look at types costs more than one at values.
        if before == Some(value) {
            continue;
        }
        difference.push(|| PathElement::field(name), differ(child(name), before, Some(value)));
    }
    for (name, value) in old.into_iter().flatten() {
        if new.is_none_or(|new| !new.contains_key(name)) {
            difference.push(|| PathElement::field(name), differ(child(name), Some(value), None));
        }
    }
    difference
}

fn differ_items(list: List<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let names = Items::new(list);
    let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = names.element(item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in new.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = names.element(item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    let mut difference = Difference::default();
    for (element, (old, new)) in items {
        let child = match (old.as_slice(), new.as_slice()) {
            // Items that are there several times are compared as one value.
            ([_, _, ..], [_, _, ..]) => {
                let same = old.len() == new.len() && old.iter().zip(&new).all(|(a, b)| element::equal(a, b));
                let modified = if same { Part::default() } else { Part::MEMBER };
                Difference { modified, ..Difference::default() }
            }
            ([_, _, ..], rest) => {
                let mut child =
                    rest.first().map_or_else(Difference::default, |new| differ(list.item, None, Some(new)));
                child.removed.is_member = true;
                child
            }
            (rest, [_, _, ..]) => {
                let mut child =
                    rest.first().map_or_else(Difference::default, |old| differ(list.item, Some(old), None));
                child.added.is_member = true;
                child
            }
            (old, new) => differ(list.item, old.first().copied(), new.first().copied()),
        };
        difference.push(|| element, child);
    }
    difference
}
