//! What is in a cache: its keys in order, window by window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Facts, ObjectKey};
use setpoint_env::{Env, Later};
use tokio::time::Instant;

/// How long an order is good for, in times of what it took: sorting takes at most one part in so many of the time.
const PART: u32 = 20;
/// For so long at least it is good: whoever scrolls sees one state.
const FRESH: Duration = Duration::from_millis(50);
/// How many orders are kept.
const MOST: usize = 4;

pub(crate) struct Contents {
    facts: Facts,
    env: Env,
    sorted: Mutex<VecDeque<Sorted>>,
}

/// Which keys of a cache are looked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Search {
    /// Those of this namespace; of all, if it is empty.
    pub(crate) namespace: String,
    /// Those that contain this.
    pub(crate) text: String,
}

/// The keys of a cache that match a search, in order.
struct Sorted {
    id: u64,
    search: Search,
    /// Until when it is good.
    until: Instant,
    total: usize,
    keys: Arc<[ObjectKey]>,
}

impl Contents {
    pub(crate) fn new(facts: Facts, env: Env) -> Contents {
        Contents { facts, env, sorted: Mutex::default() }
    }

    /// Some rows, how many match, and how many there are. None if there is no such cache.
    pub(crate) fn window(&self, id: u64, search: &Search, (offset, limit): (usize, usize)) -> Option<Value> {
        let (total, keys) = self.sorted(id, search)?;
        let end = offset.saturating_add(limit).min(keys.len());
        let window = keys.get(offset.min(end)..end).unwrap_or_default();
        let rows = self.facts.cached(id, window);
        Some(json!({"total": total, "matches": keys.len(), "offset": offset, "rows": rows}))
    }

    fn sorted(&self, id: u64, search: &Search) -> Option<(usize, Arc<[ObjectKey]>)> {
        let now = self.env.instant();
        let mut kept = self.sorted.lock();
        kept.retain(|sorted| now < sorted.until);
        if let Some(found) = kept.iter().find(|sorted| sorted.id == id && sorted.search == *search) {
            return Some((found.total, found.keys.clone()));
        }
        // The lock is kept: two pages that ask for the same sort it once.
        let mut keys = self.facts.cached_keys(id)?;
        if !search.namespace.is_empty() {
            keys.retain(|key| key.namespace() == Some(&*search.namespace));
        }
        let total = keys.len();
        if !search.text.is_empty() {
            keys.retain(|key| key.to_string().contains(&search.text));
        }
        keys.sort_unstable();
        let keys: Arc<[ObjectKey]> = keys.into();
        if kept.len() == MOST {
            kept.pop_front();
        }
        let end = self.env.instant();
        let fresh = end.saturating_duration_since(now).saturating_mul(PART).max(FRESH);
        let until = end.later(fresh);
        kept.push_back(Sorted { id, search: search.clone(), until, total, keys: keys.clone() });
        Some((total, keys))
    }
}
