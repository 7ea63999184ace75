//! Lists: merged item by item, in an order that the patch can set.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::go::{self, Problem};
use super::order::{Identity, Places, arrange, partition};
use super::schema::{ListField, Schema};
use super::{Object, PATCH, SET_ELEMENT_ORDER, remove_directives, subject};

/// What the items of a list are.
#[derive(Clone, Copy)]
pub(super) enum Item {
    /// Objects, told apart by this key.
    Object(Option<&'static str>),
    /// Values of one scalar type.
    Scalar,
}

impl Item {
    pub(super) fn is_object(self) -> bool {
        matches!(self, Item::Object(_))
    }

    pub(super) fn key(self) -> Option<&'static str> {
        match self {
            Item::Object(key) => key,
            Item::Scalar => None,
        }
    }

    /// Two items with the same identity are versions of one.
    pub(super) fn identity(self, value: &Value) -> Identity {
        match self {
            Item::Object(Some(key)) => value.get(key).unwrap_or(&Value::Null).to_string(),
            Item::Object(None) | Item::Scalar => value.to_string(),
        }
    }

    /// The item must be an object with the key.
    pub(super) fn check(self, value: &Value) -> Result<(), Problem> {
        let Value::Object(object) = value else { return Err(Problem::not_an_object(value)) };
        match self.key() {
            Some(key) if !object.contains_key(key) => Err(Problem::no_merge_key(object, key)),
            _ => Ok(()),
        }
    }
}

/// A merged list.
pub(super) struct Merged {
    pub(super) items: Vec<Value>,
    /// The server's order as it is left behind, see [`Backing`].
    server_order: Vec<Identity>,
}

/// Merges the items of a patch into a list, or removes them from it.
pub(super) fn merge(
    original: Vec<Value>,
    patch: &mut Vec<Value>,
    field: &ListField,
    removes: bool,
) -> Result<Merged, Problem> {
    let untouched = |items: Vec<Value>, original: &[Value]| {
        let item = Item::Object(field.key);
        let server_order = original.iter().map(|value| item.identity(value)).collect();
        Ok(Merged { items, server_order })
    };
    if !field.is_merged && !removes {
        return untouched(patch.clone(), &original);
    }
    if original.is_empty() && patch.is_empty() {
        return untouched(original, &[]);
    }
    match item_of(&original, patch, field.key)? {
        Item::Scalar if removes => Ok(Merged { items: without(original, patch), server_order: Vec::new() }),
        Item::Scalar => match (field.key, original.iter().chain(&*patch).next()) {
            (Some(_), Some(scalar)) => Err(Problem::not_an_object(scalar)),
            _ => merge_scalars(original, patch),
        },
        Item::Object(None) => {
            let kind = field.schema.kind();
            Err(Problem::other(format!("cannot merge lists without merge key for {kind}")))
        }
        Item::Object(Some(key)) => merge_objects(original, patch, key, field.schema),
    }
}

/// Items must all have the same type.
fn item_of(original: &[Value], patch: &[Value], key: Option<&'static str>) -> Result<Item, Problem> {
    let mut all = original.iter().chain(patch);
    let Some(first) = all.next() else {
        return Err(Problem::other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(Problem::ListOfLists);
    }
    if first.is_null() || all.any(|value| go::type_name(value) != go::type_name(first)) {
        let (original, patch) = (go::list_text(original), go::list_text(patch));
        return Err(Problem::other(format!("list element types are not identical: [{original} {patch}]")));
    }
    Ok(if first.is_object() { Item::Object(key) } else { Item::Scalar })
}

fn without(items: Vec<Value>, removed: &[Value]) -> Vec<Value> {
    let removed: BTreeSet<Identity> = removed.iter().map(|value| Item::Scalar.identity(value)).collect();
    items.into_iter().filter(|value| !removed.contains(&Item::Scalar.identity(value))).collect()
}

fn merge_scalars(original: Vec<Value>, patch: &[Value]) -> Result<Merged, Problem> {
    let server_order: Vec<Identity> = original.iter().map(|value| Item::Scalar.identity(value)).collect();
    let mut seen = BTreeSet::new();
    let merged = original.into_iter().chain(patch.iter().cloned());
    let merged = merged.filter(|value| seen.insert(Item::Scalar.identity(value))).collect();
    let items = order_by(merged, patch, &Places::new(server_order.iter().cloned()), Item::Scalar)?;
    Ok(Merged { items, server_order })
}

fn merge_objects(
    original: Vec<Value>,
    patch: &[Value],
    key: &'static str,
    schema: Schema,
) -> Result<Merged, Problem> {
    let item = Item::Object(Some(key));
    let Special { original, patch, mut backing } = special_items(original, patch, key)?;
    let original_order: Vec<Identity> = original.iter().map(|value| item.identity(value)).collect();
    let mut places: BTreeMap<Identity, usize> = BTreeMap::new();
    for (place, value) in original.iter().enumerate().filter(|(_, value)| value.get(key).is_some()) {
        places.entry(item.identity(value)).or_insert(place);
    }
    let mut merged = original;
    for value in &patch {
        item.check(value)?;
        let identity = item.identity(value);
        if let Some(place) = places.get(&identity) {
            let (Value::Object(old), Value::Object(mut new)) = (merged[*place].take(), value.clone()) else {
                unreachable!("all items are objects");
            };
            merged[*place] = Value::Object(super::merge(old, &mut new, schema)?);
            if merged[*place].get(key).is_none() {
                // The patch says null for the key: nothing finds the item any more.
                places.remove(&identity);
            }
        } else {
            backing.push(identity.clone());
            places.insert(identity, merged.len());
            merged.push(value.clone());
        }
    }
    let items = order_by(merged, &patch, &Places::new(original_order), item)?;
    Ok(Merged { items, server_order: backing.into_order() })
}

/// Orders a merged list by the patch and by the server.
fn order_by(
    merged: Vec<Value>,
    patch: &[Value],
    server_order: &Places,
    item: Item,
) -> Result<Vec<Value>, Problem> {
    let (of_patch, of_server) = partition(merged, patch, item)?;
    let patch_order = Places::new(patch.iter().map(|value| item.identity(value)));
    Ok(arrange(of_patch, of_server, &patch_order, server_order, item))
}

/// A list and its patch once the items with directives are carried out.
struct Special {
    original: Vec<Value>,
    patch: Vec<Value>,
    backing: Backing,
}

fn special_items(original: Vec<Value>, patch: &[Value], key: &'static str) -> Result<Special, Problem> {
    let item = Item::Object(Some(key));
    let mut backing = Backing::new(original.iter().map(|value| item.identity(value)).collect());
    let mut plain = Vec::new();
    let mut is_replaced = false;
    for value in patch {
        let Value::Object(fields) = value else { return Err(Problem::not_an_object(value)) };
        match fields.get(PATCH) {
            None => plain.push(value.clone()),
            Some(Value::String(directive)) if directive == "delete" => {
                item.check(value)?;
                backing.remove(&item.identity(value));
            }
            Some(Value::String(directive)) if directive == "replace" => is_replaced = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(Problem::other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(directive) => return Err(Problem::unknown_directive(directive, fields)),
        }
    }
    let (original, patch) = if is_replaced { (plain, Vec::new()) } else { (backing.kept(original), plain) };
    Ok(Special { original, patch, backing })
}

/// The identities in the memory of the original list.
///
/// kube-apiserver removes items by moving the later ones up and adds items into the room that this leaves, but goes
/// on to use the old list, in its full length, as the order of the server. That shows in the place of items that
/// only the server has, such as injected sidecars, so it is done here too.
struct Backing {
    identities: Vec<Identity>,
    places: BTreeMap<Identity, Vec<usize>>,
    is_kept: Vec<bool>,
    /// The length up to the last item that is kept.
    end: usize,
    /// What removals leave behind the end, the last first.
    left_behind: Vec<Identity>,
    added: Vec<Identity>,
}

impl Backing {
    fn new(identities: Vec<Identity>) -> Backing {
        let mut places: BTreeMap<Identity, Vec<usize>> = BTreeMap::new();
        for (place, identity) in identities.iter().enumerate() {
            places.entry(identity.clone()).or_default().push(place);
        }
        let (is_kept, end) = (vec![true; identities.len()], identities.len());
        Backing { identities, places, is_kept, end, left_behind: Vec::new(), added: Vec::new() }
    }

    fn remove(&mut self, identity: &str) {
        for place in self.places.remove(identity).unwrap_or_default() {
            self.left_behind.push(self.identities[self.end - 1].clone());
            self.is_kept[place] = false;
            while self.end > 0 && !self.is_kept[self.end - 1] {
                self.end -= 1;
            }
        }
    }

    fn kept<T>(&self, items: Vec<T>) -> Vec<T> {
        items.into_iter().zip(&self.is_kept).filter_map(|(item, kept)| kept.then_some(item)).collect()
    }

    fn push(&mut self, identity: Identity) {
        self.added.push(identity);
    }

    fn into_order(self) -> Vec<Identity> {
        let mut order = self.kept(self.identities.clone());
        let room = self.left_behind.len();
        let filled = room.min(self.added.len());
        order.extend(self.added.into_iter().take(filled));
        order.extend(self.left_behind.into_iter().rev().skip(filled));
        order
    }
}

/// Carries out every `$setElementOrder` of a patch together with the list beside it.
pub(super) fn merge_ordered(
    original: &mut Object,
    patch: &mut Object,
    schema: Schema,
) -> Result<(), Problem> {
    let names: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for name in names {
        let order = patch.remove(&name).unwrap_or_default();
        let Value::Array(order) = order else { return Err(Problem::not_a_list(&order)) };
        let target = subject(&name, SET_ELEMENT_ORDER).ok_or(Problem::ElementOrder)?;
        if let Some(ordered) = ordered_list(original, patch, target, &order, schema)? {
            original.insert(target.to_owned(), Value::Array(ordered));
            patch.remove(target);
        }
    }
    Ok(())
}

fn ordered_list(
    original: &mut Object,
    patch: &mut Object,
    target: &str,
    order: &[Value],
    schema: Schema,
) -> Result<Option<Vec<Value>>, Problem> {
    let as_list = |value: Option<&Value>| match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(Problem::not_a_list(other)),
    };
    let old = as_list(original.get(target))?;
    let mut new = as_list(patch.get(target))?;
    let field = schema.list_field(target)?;
    check_order(new.as_deref().unwrap_or_default(), order, field.key)?;
    let identities = |items: &[Value], item: Item| items.iter().map(|value| item.identity(value)).collect();
    let by_key = Item::Object(field.key);
    let (merged, server_order) = match (old.clone(), &mut new) {
        (None, None) => return Ok(None),
        (Some(old), None) => {
            let server_order: Vec<Identity> = identities(&old, by_key);
            (old, server_order)
        }
        (None, Some(new)) => {
            let mut added = Value::Array(new.clone());
            remove_directives(&mut added);
            let Value::Array(added) = added else { unreachable!("a list stays a list") };
            (added, Vec::new())
        }
        (Some(old), Some(new)) => {
            let merged = merge(old, new, &field, false)?;
            (merged.items, merged.server_order)
        }
    };
    let (of_patch, of_server) = partition(merged, order, by_key)?;
    let item = item_of(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default(), field.key)?;
    if item.is_object() {
        let old = old.as_deref().unwrap_or_default();
        for value in of_patch.iter().chain(order).chain(&of_server).chain(old) {
            match value {
                // An order needs a key, and this list has none.
                Value::Object(object) if field.key.is_none() => {
                    return Err(Problem::no_merge_key(object, ""));
                }
                value => item.check(value)?,
            }
        }
    }
    let patch_order = Places::new(order.iter().map(|value| item.identity(value)));
    Ok(Some(arrange(of_patch, of_server, &patch_order, &Places::new(server_order), item)))
}

/// The items of the patch must be in the order list, in the same order.
fn check_order(patch: &[Value], order: &[Value], key: Option<&'static str>) -> Result<(), Problem> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(other) = patch.iter().find(|value| !value.is_object())
    {
        return Err(Problem::not_an_object(other));
    }
    let item = Item::Object(key);
    let directive = |value: &Value| value.get(PATCH).cloned();
    let mut rest = patch.iter().filter(|value| directive(value) != Some(Value::from("delete"))).peekable();
    let mut order_rest = order.iter();
    while let Some(value) = rest.peek() {
        if order_rest.len() > 0 && directive(value).is_some() {
            rest.next();
            continue;
        }
        let Some(next) = order_rest.next() else { break };
        if key.is_some() {
            item.check(value)?;
            item.check(next)?;
        }
        if item.identity(value) == item.identity(next) {
            rest.next();
        }
    }
    if rest.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (go::list_text(patch), go::list_text(order));
    Err(Problem::other(format!(
        "The order in patch list:\n{patch}\n doesn't match {SET_ELEMENT_ORDER} list:\n{order}\n"
    )))
}
