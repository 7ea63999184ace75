//! The records of one collection as they are now, and what happened to them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use setpoint_env::watch;

use super::channels::{Channel, Channels};
use super::history::Log;
use super::index::Index;
use super::{Event, Field, Hint, Record, Revision};

#[derive(Debug)]
pub(super) struct Collection {
    live: BTreeMap<Box<str>, Live>,
    /// How many records there are under each `namespace/`. The slash is part of the key, so that the order is that of
    /// the paths.
    namespaces: BTreeMap<Box<str>, usize>,
    /// By the names of their fields.
    indices: Mutex<BTreeMap<&'static str, Index>>,
    pub(super) log: Log,
    pub(super) changed: watch::Sender<Revision>,
    /// By the names of their fields.
    channels: BTreeMap<&'static str, Channels>,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) record: Arc<Record>,
    pub(super) expires: Option<Timestamp>,
}

impl Default for Collection {
    fn default() -> Collection {
        Collection {
            live: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            indices: Mutex::default(),
            log: Log::default(),
            changed: watch::Sender::new(0),
            channels: BTreeMap::new(),
        }
    }
}

impl Collection {
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Every record, with its end.
    pub(super) fn live(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }

    pub(super) fn get(&self, path: &str) -> Option<&Arc<Record>> {
        self.live.get(path).map(|live| &live.record)
    }

    /// Takes all records away.
    #[cfg(feature = "etcd")]
    pub(super) fn clear(&mut self) {
        self.live.clear();
        self.namespaces.clear();
        self.indices.lock().clear();
    }

    /// Puts a record there; what was there before.
    pub(super) fn put(&mut self, live: Live) -> Option<Live> {
        let record = Arc::clone(&live.record);
        let previous = self.live.insert(record.path.clone(), live);
        if let Some(namespace) = namespace_of(&record.path).filter(|_| previous.is_none()) {
            match self.namespaces.get_mut(namespace) {
                Some(count) => *count += 1,
                None => drop(self.namespaces.insert(namespace.into(), 1)),
            }
        }
        previous
    }

    /// Takes a record away; what was there before.
    pub(super) fn remove(&mut self, path: &str) -> Option<Live> {
        let previous = self.live.remove(path)?;
        if let Some(namespace) = namespace_of(path)
            && let Some(count) = self.namespaces.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(namespace);
            }
        }
        Some(previous)
    }

    /// Tells of what happens after a revision to the records whose field has a value, or had it.
    pub(super) fn subscribe(
        &mut self,
        field: Field,
        value: &str,
        after: Revision,
    ) -> watch::Receiver<Revision> {
        let channels = self.channels.entry(field.name()).or_insert_with(|| Channels::new(field));
        channels.subscribe(value, after, self.log.after(after))
    }

    /// The events of a value that somebody watches.
    pub(super) fn channel(&self, field: Field, value: &str) -> Option<&Channel> {
        self.channels.get(field.name())?.get(value)
    }

    /// The fields of which somebody watches a value.
    pub(super) fn watched_fields(&self) -> impl Iterator<Item = Field> {
        self.channels.values().filter(|channels| !channels.is_empty()).map(Channels::field)
    }

    /// Tells everybody whom an event concerns.
    pub(super) fn tell(&mut self, event: &Arc<Event>) {
        self.changed.send_replace(event.revision());
        for channels in self.channels.values_mut().filter(|channels| !channels.is_empty()) {
            channels.push(event);
        }
    }

    /// History gives up its oldest event.
    pub(super) fn forget(&mut self, event: &Arc<Event>) {
        for channels in self.channels.values_mut().filter(|channels| !channels.is_empty()) {
            channels.forget(event);
        }
    }

    /// All of history is given up at once.
    #[cfg(feature = "etcd")]
    pub(super) fn forget_all(&mut self, up_to: Revision) {
        self.log.restore_forgotten(up_to);
        self.channels.values_mut().for_each(|channels| channels.forget_all(up_to));
    }

    /// How many records are under a prefix, if that is known without a walk: for all of them, and for a namespace.
    pub(super) fn count(&self, prefix: &str) -> Option<usize> {
        match prefix.find('/') {
            None if prefix.is_empty() => Some(self.live.len()),
            Some(slash) if slash + 1 == prefix.len() => {
                Some(self.namespaces.get(prefix).copied().unwrap_or(0))
            }
            _ => None,
        }
    }

    /// The index of a field, made if there is none. Nobody else reads it meanwhile.
    pub(super) fn index(&self, field: Field, now: Revision) -> MappedMutexGuard<'_, Index> {
        MutexGuard::map(self.indices.lock(), |indices| {
            indices.entry(field.name()).or_insert_with(|| Index::new(field, now))
        })
    }

    /// The records under a prefix and after a path, in order: all, or those that a hint leaves. `index` is that of the
    /// hint's field.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        hint: Option<(&'a Hint, Option<&'a Index>)>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Record>> + 'a> {
        match hint {
            Some((Hint::Name(name), _)) => Box::new(self.named(name, prefix, after)),
            Some((Hint::Field(_, value), Some(index))) => {
                Box::new(index.paths(value, prefix, after).filter_map(move |path| self.get(path)))
            }
            Some((Hint::Field(..), None)) | None => Box::new(self.under(prefix, after)),
        }
    }

    fn under<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Record>> {
        // The end is found once, rather than by a look at each path, which is somewhere else in memory.
        let end = prefix.strip_suffix('/').map(|namespace| format!("{namespace}{AFTER_SLASH}"));
        let is_bounded = prefix.is_empty() || end.is_some();
        let bounds = match (after, end.as_deref()) {
            // There is nothing, and such a range would be none.
            (Some(path), Some(end)) if path >= end => (Bound::Included(end), Bound::Excluded(end)),
            (Some(path), end) if path >= prefix => (Bound::Excluded(path), exclusive(end)),
            (_, end) => (Bound::Included(prefix), exclusive(end)),
        };
        self.live
            .range::<str, _>(bounds)
            .take_while(move |(path, _)| is_bounded || path.starts_with(prefix))
            .map(|(_, live)| &live.record)
    }

    /// The records of one name: at most one a namespace.
    fn named<'a>(
        &'a self,
        name: &'a str,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        let namespaces = self
            .namespaces
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(namespace, _)| namespace.starts_with(prefix))
            .map(move |(namespace, _)| self.get(&format!("{namespace}{name}")));
        let alone = prefix.is_empty().then(|| self.get(name));
        let found = alone.into_iter().chain(namespaces).flatten();
        found.filter(move |record| after.is_none_or(|after| &*record.path > after))
    }
}

/// The first character after a slash: `web0` is the first path after all that begin with `web/`.
const AFTER_SLASH: char = '0';

fn exclusive(end: Option<&str>) -> Bound<&str> {
    end.map_or(Bound::Unbounded, Bound::Excluded)
}

/// `namespace/` of a path that has one.
fn namespace_of(path: &str) -> Option<&str> {
    path.find('/').map(|slash| &path[..=slash])
}
