//! The order of merged lists.
//!
//! Items that the patch speaks of come in the order of the patch, the others in the order of the server; where the
//! two meet, the server's order decides if it knows both.

use std::collections::BTreeMap;

use serde_json::Value;

use super::PATCH;
use super::go::Problem;
use super::list::Item;

/// What tells an item apart from the others, as text.
pub(super) type Identity = String;

/// The places of items in a list; the first place counts.
pub(super) struct Places(BTreeMap<Identity, usize>);

impl Places {
    pub(super) fn new(identities: impl IntoIterator<Item = Identity>) -> Places {
        let mut places = BTreeMap::new();
        for (place, identity) in identities.into_iter().enumerate() {
            places.entry(identity).or_insert(place);
        }
        Places(places)
    }

    pub(super) fn of(&self, identity: &str) -> Option<usize> {
        self.0.get(identity).copied()
    }
}

/// Puts a merged list in order.
pub(super) fn arrange(
    of_patch: Vec<Value>,
    of_server: Vec<Value>,
    patch_order: &Places,
    server_order: &Places,
    item: Item,
) -> Vec<Value> {
    let right = sort(of_patch, patch_order, item);
    let left = sort(of_server, server_order, item);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    for value in right {
        let place = server_order.of(&item.identity(&value));
        while let Some(next) = left.peek()
            && let (Some(next), Some(place)) = (server_order.of(&item.identity(next)), place)
            && next < place
        {
            merged.extend(left.next());
        }
        merged.push(value);
    }
    merged.extend(left);
    merged
}

/// Sorts by place. Items without one have no sensible order in kube-apiserver either: its comparison calls them
/// smaller than anything. Short lists come out as they do there, by the same insertions.
fn sort(items: Vec<Value>, order: &Places, item: Item) -> Vec<Value> {
    let is_deletion = |value: &Value| item.is_object() && value.get(PATCH) == Some(&Value::from("delete"));
    let (deletions, items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_deletion);
    let mut placed: Vec<(Option<usize>, Value)> =
        items.into_iter().map(|value| (order.of(&item.identity(&value)), value)).collect();
    if placed.iter().all(|(place, _)| place.is_some()) || placed.len() > 20 {
        placed.sort_by_key(|(place, _)| *place);
    } else {
        for end in 1..placed.len() {
            let mut at = end;
            while at > 0 && comes_before(placed[at].0, placed[at - 1].0) {
                placed.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    placed.into_iter().map(|(_, value)| value).chain(deletions).collect()
}

fn comes_before(left: Option<usize>, right: Option<usize>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left < right,
        _ => true,
    }
}

/// The items that a list names, and the others.
pub(super) fn partition(
    items: Vec<Value>,
    by: &[Value],
    item: Item,
) -> Result<(Vec<Value>, Vec<Value>), Problem> {
    let places = Places::new(by.iter().map(|value| item.identity(value)));
    // kube-apiserver looks through `by` until it finds the item, and stumbles over what is no object.
    let obstacle = if item.key().is_some() { by.iter().position(|value| !value.is_object()) } else { None };
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for value in items {
        if item.key().is_some() {
            item.check(&value)?;
        }
        let place = places.of(&item.identity(&value));
        if let Some(obstacle) = obstacle
            && place.is_none_or(|place| place > obstacle)
        {
            return Err(Problem::other(format!("value for key {obstacle} is not a map")));
        }
        if place.is_some() { named.push(value) } else { others.push(value) }
    }
    Ok((named, others))
}
