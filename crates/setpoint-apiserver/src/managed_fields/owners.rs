//! Who owns what after a write.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::element::{self, PathElement};
use super::field_set::FieldSet;
use super::managed::{Managed, Manager, Operation, Owned};
use super::merge::merge;
use super::remove::remove;
use super::target::{Target, Version};
use super::to_set::field_set;

/// Fields that another manager owns and has set to something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: Manager,
    pub(crate) path: Vec<PathElement>,
}

/// What nobody owns: the server sets it, or it says what the object is.
fn strip(mut set: FieldSet) -> FieldSet {
    static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "clusterName"],
            &["metadata", "creationTimestamp"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "resourceVersion"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
        ])
    });
    set.subtract(&STRIPPED);
    set
}

impl Target<'_> {
    /// Gives what an update changes to its manager.
    pub(crate) fn update(&self, live: &Value, new: &Value, managed: &mut Managed, name: &str, now: &str) {
        self.adopt_schema(managed);
        let comparison = self.compare(live, new);
        // An update takes what it wants.
        let _taken = self.take(live, new, &comparison, managed, None);
        let set = strip(comparison.modified.join(comparison.added));
        if !set.is_empty() {
            let manager = Manager::new(name, Operation::Update, self.api_version, self.subresource);
            let set = match managed.0.get(&manager) {
                Some(before) => set.union(&before.set),
                None => set,
            };
            let owned = Owned { api_version: self.api_version.to_owned(), set, time: Some(now.to_owned()) };
            managed.0.insert(manager, owned);
        }
    }

    /// Brings what was owned under an older schema of the kind to the present one.
    fn adopt_schema(&self, managed: &mut Managed) {
        // The types of built-in kinds stay as they are.
        if !self.is_custom() {
            return;
        }
        for owned in managed.0.values_mut() {
            let version = self.version(&owned.api_version);
            if let Some(set) = version.and_then(|version| owned.set.with_whole_values(version.schema())) {
                owned.set = set;
            }
        }
    }

    fn compare(&self, live: &Value, new: &Value) -> Comparison {
        compare(self.schema(), live, new).filter(|set| self.filter(set))
    }

    /// Takes from all managers but one what a change modifies, adds or removes; and says what was taken by the first two.
    fn take(
        &self,
        live: &Value,
        new: &Value,
        comparison: &Comparison,
        managed: &mut Managed,
        except: Option<&Manager>,
    ) -> Vec<Conflict> {
        let mut versions: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        let mut conflicts = Vec::new();
        managed.0.retain(|manager, owned| {
            if Some(manager) == except {
                return !owned.set.is_empty();
            }
            let comparison = if owned.api_version == self.api_version {
                Some(comparison)
            } else {
                let found = versions.entry(owned.api_version.clone()).or_insert_with(|| {
                    let version = self.version(&owned.api_version)?;
                    let (live, new) = (version.convert(live), version.convert(new));
                    Some(compare(version.schema(), &live, &new).filter(|set| self.filter(set)))
                });
                found.as_ref()
            };
            // Of a version that is gone, nothing can be said.
            let Some(comparison) = comparison else { return false };
            if comparison.is_same() {
                return !owned.set.is_empty();
            }
            let taken = owned.set.intersection(&comparison.modified.union(&comparison.added));
            conflicts
                .extend(taken.paths().into_iter().map(|path| Conflict { manager: manager.clone(), path }));
            owned.set = owned.set.difference(&taken).difference(&comparison.removed);
            !owned.set.is_empty()
        });
        conflicts
    }

    /// Merges what a manager applies into the live object. Without an object, nothing changes in it.
    pub(crate) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managed: &mut Managed,
        name: &str,
        force: bool,
    ) -> Result<Option<Value>, Vec<Conflict>> {
        self.adopt_schema(managed);
        let schema = self.schema();
        let manager = Manager::new(name, Operation::Apply, self.api_version, self.subresource);
        let before = managed.0.get(&manager).cloned();
        let set = self.filter(field_set(schema, applied));
        let time = before.as_ref().and_then(|before| before.time.clone());
        let owned = Owned { api_version: self.api_version.to_owned(), set, time };
        managed.0.insert(manager.clone(), owned);
        let merged = merge(schema, live, applied);
        let new = match before {
            Some(before) if !before.set.is_empty() => self.prune(merged, managed, &before),
            _ => merged,
        };
        let comparison = self.compare(live, &new);
        let conflicts = self.take(live, &new, &comparison, managed, Some(&manager));
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        if let Some(owned) = managed.0.get_mut(&manager) {
            owned.set = strip(std::mem::take(&mut owned.set));
            if owned.set.is_empty() {
                managed.0.remove(&manager);
            }
        }
        Ok((!element::equal(live, &new)).then_some(new))
    }

    /// Removes what the manager applied before, does not apply any more, and nobody else owns.
    fn prune(&self, merged: Value, managed: &Managed, before: &Owned) -> Value {
        let Some(version) = self.version(&before.api_version) else { return merged };
        let merged = version.convert(&merged).into_owned();
        let schema = version.schema();
        let last = before.set.with_named_fields(Some(schema));
        let mut pruned = remove(schema, &merged, &last);
        pruned = self.add_back_owned(&version, &merged, pruned, managed);
        // What the manager did not own was not its to remove.
        let kept = field_set(schema, &pruned).with_named_fields(Some(schema));
        let all = field_set(schema, &merged).with_named_fields(Some(schema));
        let pruned = remove(schema, &merged, &all.difference(&kept).intersection(&last));
        version.convert_back(pruned)
    }

    /// Puts back what others own, or the manager itself applies still, version by version.
    fn add_back_owned(&self, at: &Version<'_>, merged: &Value, pruned: Value, managed: &Managed) -> Value {
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for of in managed.0.values() {
            let set = owned.entry(&of.api_version).or_default();
            *set = set.union(&of.set);
        }
        let mut pruned = pruned;
        // The version of the pruned object comes first: others may need to have it whole to be converted.
        let mut versions: Vec<(&str, FieldSet)> = owned.into_iter().collect();
        versions.sort_by_key(|(version, _)| *version != at.api_version());
        for (api_version, set) in versions {
            let Some(version) = self.version(api_version) else { continue };
            let schema = version.schema();
            let all = version.convert_from(at, merged);
            let left = version.convert_from(at, &pruned);
            let named = |set: FieldSet| set.with_named_fields(Some(schema));
            let keep = named(field_set(schema, &left)).union(&named(set));
            let removed = named(field_set(schema, &all)).difference(&keep);
            pruned = version.convert_to(at, remove(schema, &all, &removed));
        }
        pruned
    }
}
