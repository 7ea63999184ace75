//! The pods that wait for a node, by what they need: pods with equal needs are refused together, and tried a few at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use setpoint::ObjectKey;
use setpoint::k8s_openapi::jiff::Timestamp;

use super::needs::Needs;
use super::nodes::Nodes;

/// How many pods with equal needs are tried again at the same time when something has become free. The others follow as
/// these find a place: most often there is one for a few of them only.
pub(super) const BATCH: usize = 16;
/// Why no node will do is worked out again when this part of the nodes has changed. So a change costs no look at all nodes
/// where there are many, and what pods are told is exact where there are few.
const CHANGED_PART: usize = 16;

/// In which order waiting pods are tried: the most important first, then the oldest.
pub(super) type Turn = (Reverse<i32>, Timestamp, ObjectKey);

/// Everything that waits.
#[derive(Default)]
pub(super) struct Waiting {
    classes: BTreeMap<Arc<str>, Class>,
    turns: HashMap<ObjectKey, (Arc<str>, Turn)>,
    /// How often a node has changed for the better, has come or has gone.
    changes: usize,
}

/// Pods with equal needs; there is one at least.
struct Class {
    needs: Needs,
    /// Why no node would do when that was last worked out.
    why: Arc<str>,
    /// After how many changes that was; none if a node may do now.
    refused: Option<usize>,
    /// Those that know why.
    told: BTreeSet<Turn>,
    /// Those that know another reason.
    untold: BTreeSet<Turn>,
}

impl Waiting {
    /// Why no node will do, if that is known without a search.
    pub(super) fn refusal(&self, needs: &Needs) -> Option<Arc<str>> {
        if self.classes.is_empty() {
            return None;
        }
        let class = self.classes.get(needs.class().as_str())?;
        class.refused.map(|_| class.why.clone())
    }

    /// A pod waits, and is told why.
    pub(super) fn wait(&mut self, key: &ObjectKey, turn: Turn, needs: Needs, why: Arc<str>) {
        self.stop(key);
        let name: Arc<str> = needs.class().into();
        let class = self.classes.entry(name.clone()).or_insert_with(|| Class {
            needs,
            why: why.clone(),
            refused: None,
            told: BTreeSet::new(),
            untold: BTreeSet::new(),
        });
        if class.refused.is_none() {
            class.refuse(why, self.changes);
        }
        class.told.insert(turn.clone());
        self.turns.insert(key.clone(), (name, turn));
    }

    /// A pod waits no longer. Says whether it did.
    pub(super) fn stop(&mut self, key: &ObjectKey) -> bool {
        let Some((name, turn)) = self.turns.remove(key) else { return false };
        if let Some(class) = self.classes.get_mut(&name) {
            let _was_there = class.told.remove(&turn) || class.untold.remove(&turn);
            if class.told.is_empty() && class.untold.is_empty() {
                self.classes.remove(&name);
            }
        }
        true
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.turns.contains_key(key)
    }

    /// Whether others with the needs of this pod do not know yet why they wait.
    pub(super) fn has_untold(&self, key: &ObjectKey) -> bool {
        let class = self.turns.get(key).and_then(|(name, _)| self.classes.get(name));
        class.is_some_and(|class| !class.untold.is_empty())
    }

    /// Notes that a node has changed for the better, or is gone.
    pub(super) fn node_changed(&mut self, name: &str, nodes: &Nodes) {
        self.changes = self.changes.wrapping_add(1);
        for class in self.classes.values_mut().filter(|class| class.refused.is_some()) {
            if nodes.takes(name, &class.needs) {
                class.refused = None;
            }
        }
    }

    /// The pods to try: of each class that a node will do for a few, and a few of those that wait for another reason now.
    /// In the order of their turns.
    pub(super) fn woken(&mut self, nodes: &Nodes) -> Vec<ObjectKey> {
        let mut woken = Vec::new();
        for class in self.classes.values_mut() {
            let fits = class.refused.is_none() && nodes.best(&class.needs).is_some();
            if !fits && class.is_outdated(self.changes, nodes.len()) {
                class.refuse(nodes.explain(&class.needs).into(), self.changes);
            }
            let mut turns: Vec<&Turn> = class.untold.iter().take(BATCH).collect();
            if fits {
                turns.extend(class.told.iter().take(BATCH));
                turns.sort_unstable();
                turns.truncate(BATCH);
            }
            woken.extend(turns.into_iter().cloned());
        }
        woken.sort_unstable();
        woken.into_iter().map(|(_, _, key)| key).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }
}

impl Class {
    fn refuse(&mut self, why: Arc<str>, changes: usize) {
        if self.why != why {
            self.untold.append(&mut self.told);
            self.why = why;
        }
        self.refused = Some(changes);
    }

    fn is_outdated(&self, changes: usize, nodes: usize) -> bool {
        self.refused.is_none_or(|then| changes.wrapping_sub(then) >= (nodes / CHANGED_PART).max(1))
    }
}
