//! Lists are the state at their version.

use std::collections::BTreeMap;

use super::Found;
use super::timeline::{Point, Timeline};
use crate::object::{Item, Key, Moment, Version};
use crate::operation::{Call, Continue, Fresh, Outcome};
use crate::select::Select;
use crate::violation::Promise;

pub(super) fn check(timeline: &Timeline<'_>, found: &mut Found) {
    for operation in &timeline.history.operations {
        let Some((fresh, limit, from)) = operation.call.listing() else { continue };
        let Outcome::Listed { version, items, more } = &operation.outcome else { continue };
        if let Some(why) = wrong_version(fresh, from, *version) {
            found.add(Promise::Snapshot, why, [operation.to_string()]);
        }
        if !items.is_sorted_by(|one, next| one.key < next.key)
            || limit.is_some_and(|limit| items.len() > limit as usize)
        {
            let why = "the objects are not in order, or more than were asked for";
            found.add(Promise::Snapshot, why, [operation.to_string()]);
        }
        let page = Page {
            select: Select::All,
            version: *version,
            after: from.map(|from| from.after),
            to: if *more { items.last().map(|item| item.key) } else { None },
            by: operation.end,
        };
        let items: BTreeMap<Key, &Item> = items.iter().map(|item| (item.key, item)).collect();
        page.check(timeline, &items, |why, point| {
            found.add(Promise::Snapshot, why, [operation.to_string(), timeline.tell_point(point)]);
        });
    }
    for operation in &timeline.history.operations {
        let (Call::Get { fresh: Fresh::AtLeast(least), key }, Outcome::Found(item)) =
            (&operation.call, &operation.outcome)
        else {
            continue;
        };
        if let Some(newer) = timeline.at(*key, *least).filter(|newer| newer.version > item.version) {
            let why = "the object is older than was asked for";
            found.add(Promise::Snapshot, why, [operation.to_string(), timeline.tell_point(newer)]);
        }
    }
}

fn wrong_version(fresh: Fresh, from: Option<Continue>, version: Version) -> Option<String> {
    match (from, fresh) {
        (Some(Continue { version: Some(first), .. }), _) if version != first => {
            Some(format!("a list goes on at {version} that began at {first}, and does not say so"))
        }
        (None, Fresh::Exact(asked)) if version != asked => Some(format!("version {asked} was asked for")),
        (None, Fresh::AtLeast(asked)) if version < asked => Some(format!("{asked} or newer was asked for")),
        _ => None,
    }
}

/// A part of the objects at one version.
pub(super) struct Page {
    pub(super) select: Select,
    pub(super) version: Version,
    /// Only keys after this one.
    pub(super) after: Option<Key>,
    /// And up to this one; none: to the end.
    pub(super) to: Option<Key>,
    /// When it was there.
    pub(super) by: Moment,
}

impl Page {
    /// Holds what was shown against what was there, and names for each difference the version that is missing or hidden.
    pub(super) fn check(
        &self,
        timeline: &Timeline<'_>,
        items: &BTreeMap<Key, &Item>,
        mut blame: impl FnMut(String, &Point),
    ) {
        let covers =
            |key: &Key| self.after.is_none_or(|after| *key > after) && self.to.is_none_or(|to| *key <= to);
        for key in timeline.of_key.keys().filter(|key| covers(key)) {
            let there = timeline.at(*key, self.version);
            match (there, items.get(key)) {
                (Some(there), Some(item)) if there.version != item.version => {
                    let why = format!("at {} the object {key} was at {}", self.version, there.version);
                    blame(why, there);
                }
                (Some(there), None)
                    if there.change.is_put()
                        && self.select.takes(*key, there.change.state())
                        && !timeline.may_hide(*key, there.version, self.version, self.by) =>
                {
                    blame(format!("at {} the object {key} was there", self.version), there);
                }
                (None, Some(item)) => {
                    let Some(index) = timeline.index(item.version) else { continue };
                    let why =
                        format!("the object {key} is newer than the list, which is at {}", self.version);
                    blame(why, &timeline.points[index]);
                }
                _ => {}
            }
        }
        for (key, item) in items.iter().filter(|(key, _)| !covers(key)) {
            if let Some(index) = timeline.index(item.version) {
                blame(format!("{key} does not belong to this page"), &timeline.points[index]);
            }
        }
    }
}
