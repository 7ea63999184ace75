//! What caches show of what was written.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use super::Key;
use super::differences::differences;
use super::live::Live;
use super::numbers::Numbered;
use super::writes::{Labels, Outcome, Unknown, Write};
use crate::facts::FieldChange;
use crate::informer::{Applied, Observer};
use crate::mutants::{Promise, is_kept};
use crate::reflector::Target;
use crate::watch::Watchable;
use crate::workqueue::{Named, Until};
use crate::{Lister, Object, ObjectKey, ResourceVersion, Scope, SharedInformer, WorkQueue};

/// A cache that a controller reads from.
pub(super) trait Cache: Send + Sync {
    /// What it caches, like `deployments.apps`.
    fn resource(&self) -> &str;

    /// Whether the first list is in the cache, and if not what went wrong last.
    fn sync_state(&self) -> Result<(), Vec<String>>;

    /// Waits for the first list.
    fn wait_for_sync(&self) -> BoxFuture<'_, ()>;

    /// Starts the informer, if it has not been started.
    fn start(&self);

    /// What is listed and watched, scope by scope.
    fn targets(&self) -> Vec<&Target>;

    /// What to wait for until the cache shows an object as it was written. Nothing if it may leave it out, or has shown it
    /// before the write that gave it: then the write was no change.
    fn until_written(&self, written: Written<'_>, is_change: bool) -> Option<Until>;

    /// What to wait for until the cache has no object of this uid; once it shows what the same reconcile has written of it
    /// before. Nothing if it has none, or may leave it out.
    fn until_gone(&self, key: &ObjectKey, uid: &str, after: Option<Written<'_>>) -> Option<Until>;

    /// What to wait for until the cache is as new as what the server has said.
    fn until_like(&self, live: &Live) -> Vec<Until>;

    /// Whether the cache is at a version in the scope of a target.
    fn is_at(&self, target: &Target, version: &ResourceVersion) -> bool;

    /// Waits until [`Cache::is_at`].
    fn wait_until_at<'a>(&'a self, target: &'a Target, version: &'a ResourceVersion) -> BoxFuture<'a, ()>;

    /// The object as it is cached now, before it is written.
    fn before(&self, key: &ObjectKey) -> Option<Before>;

    /// Lets the queue know what is gone already: it was perhaps gone before the key was held.
    fn settle(&self, until: &[Until]);

    /// Nobody watches it here any more: no key is held for it, and none will be.
    fn release(&self);
}

/// An object as it was written.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    key: &'a ObjectKey,
    version: &'a ResourceVersion,
    /// None if nobody knows.
    labels: Option<&'a Labels>,
}

/// The caches that a controller reads from now: watches come and go.
#[derive(Default)]
pub(super) struct Caches(RwLock<Arc<Vec<Arc<dyn Cache>>>>);

impl Caches {
    /// Those that there are now.
    pub(super) fn now(&self) -> Arc<Vec<Arc<dyn Cache>>> {
        self.0.read().clone()
    }

    /// Adds one; says whether it was not there.
    pub(super) fn add(&self, cache: &Arc<dyn Cache>) -> bool {
        let mut caches = self.0.write();
        let is_new = !caches.iter().any(|other| Arc::ptr_eq(other, cache));
        if is_new {
            Arc::make_mut(&mut caches).push(cache.clone());
        }
        is_new
    }

    /// Removes one; says whether it was there.
    pub(super) fn remove(&self, cache: &Arc<dyn Cache>) -> bool {
        let mut caches = self.0.write();
        let before = caches.len();
        Arc::make_mut(&mut caches).retain(|other| !Arc::ptr_eq(other, cache));
        caches.len() < before
    }
}

/// An object as a cache had it when a write was sent.
pub(super) struct Before {
    pub(super) version: Option<ResourceVersion>,
    /// What is different in the answer to the write.
    pub(super) compare: CompareFn,
}

/// From the answer to a write to what is different in it; none if it is not an object of the cached type.
type CompareFn = Box<dyn FnOnce(&[u8]) -> Option<Vec<FieldChange>> + Send>;

/// A cache, and its places among the sources of a controller's queue: one for each scope.
pub(super) struct Watched<T: Object, Q> {
    informer: SharedInformer<T>,
    places: Arc<Places<T, Q>>,
}

/// Releases held keys as the cache moves. It has no hold on the informer, which must be able to end without it.
struct Places<T, Q> {
    lister: Lister<T>,
    scopes: Vec<Scope>,
    /// Theirs as long as anybody looks at this: no other cache's meanwhile.
    numbers: Numbered,
    /// Whether nobody watches it any more. Who still has the cache must neither hold a key for it, nor undo the release.
    is_released: Mutex<bool>,
    queue: WorkQueue<Q>,
}

impl<T: Object, Q: Key> Watched<T, Q> {
    /// The numbers are those of the scopes as sources of the queue.
    pub(super) fn new(informer: SharedInformer<T>, queue: WorkQueue<Q>, numbers: Numbered) -> Watched<T, Q> {
        let scopes: Vec<Scope> = informer.scopes().cloned().collect();
        let (lister, is_released) = (informer.lister(), Mutex::new(false));
        let places = Arc::new(Places { lister, scopes, numbers, is_released, queue });
        informer.observe(&places);
        Watched { informer, places }
    }
}

impl<T: Object, Q> Watched<T, Q> {
    /// Whether the cache may never have an object: what it has already, it is told of whatever the labels are now.
    fn may_leave_out(&self, key: &ObjectKey, labels: Option<&Labels>) -> bool {
        self.informer.may_leave_out(labels) && self.places.lister.held(key).is_none()
    }
}

impl<T: Object, Q> Places<T, Q> {
    /// The scopes with their numbers.
    fn all(&self) -> impl Iterator<Item = (u32, &Scope)> {
        (self.numbers.first()..).zip(&self.scopes)
    }

    /// Where to wait for an object; nowhere when nobody watches it any more.
    fn place_of(&self, key: &ObjectKey) -> Option<(u32, &Scope)> {
        let place = self.all().find(|(_, scope)| scope.contains(key));
        place.filter(|_| !*self.is_released.lock())
    }

    fn until_version(&self, key: &ObjectKey, version: &ResourceVersion, is_change: bool) -> Option<Until> {
        let (source, scope) = self.place_of(key)?;
        // Whether a list has passed by a change, the queue knows.
        let version = version.number().filter(|version| is_change || !self.has_reached(scope, *version))?;
        Some(Until::Version { source, version, changed: is_change.then_some(version) })
    }

    fn is_at(&self, scope: &Scope, version: &ResourceVersion) -> bool {
        self.lister.watermark(scope).is_some_and(|watermark| !watermark.is_before(version))
    }

    fn has_reached(&self, scope: &Scope, version: u128) -> bool {
        let watermark = self.lister.watermark(scope);
        // What is no number cannot be compared, and is not waited for.
        watermark.is_some_and(|watermark| watermark.number().is_none_or(|number| number >= version))
    }

    fn has(&self, what: &Named) -> bool {
        self.lister.held(&ObjectKey::from(&*what.name)).is_some_and(|object| object.has_uid(&what.uid))
    }

    /// Whether this has happened; none if it is another cache's.
    fn has_happened(&self, until: &Until) -> Option<bool> {
        let scope = |source: &u32| self.scopes.get(source.checked_sub(self.numbers.first())? as usize);
        match until {
            Until::Version { source, .. } | Until::Gone { source, .. } if *self.is_released.lock() => {
                scope(source).map(|_| true)
            }
            Until::Version { source, version, .. } => Some(self.has_reached(scope(source)?, *version)),
            Until::Gone { source, what, after } => {
                Some(self.has_reached(scope(source)?, *after) && !self.has(what))
            }
        }
    }
}

impl<T: Object, Q: Key> Observer<T> for Places<T, Q> {
    fn applied(&self, batch: &Applied<'_, T>) {
        let Some((source, _)) = self.all().find(|(_, scope)| *scope == batch.scope) else { return };
        // Until the end: once released, it is not gone back to an earlier version.
        let is_released = self.is_released.lock();
        if *is_released {
            return;
        }
        if batch.is_list && !is_kept(Promise::Lists) {
            self.queue.advance(source, Some(u128::MAX), false);
        }
        let version = batch.version.and_then(ResourceVersion::number);
        if !self.queue.advance(source, version, batch.is_list) {
            return;
        }
        let gone: Vec<Named> = match batch.is_list {
            // What came and went between two lists was never here.
            true => self.queue.awaited(source).into_iter().filter(|what| !self.has(what)).collect(),
            false => batch.removed().filter_map(|object| Some(named(object.key(), &object.uid()?))).collect(),
        };
        self.queue.gone(source, &gone);
    }
}

fn named(key: &ObjectKey, uid: &str) -> Named {
    Named { name: key.to_string().into(), uid: uid.into() }
}

impl<T: Watchable, Q: Key> Cache for Watched<T, Q> {
    fn resource(&self) -> &str {
        self.informer.name()
    }

    fn sync_state(&self) -> Result<(), Vec<String>> {
        if self.informer.has_synced() { Ok(()) } else { Err(self.informer.trouble()) }
    }

    fn wait_for_sync(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.informer.wait_for_sync())
    }

    fn start(&self) {
        self.informer.start();
    }

    fn targets(&self) -> Vec<&Target> {
        self.informer.targets().collect()
    }

    fn until_written(&self, Written { key, version, labels }: Written<'_>, is_change: bool) -> Option<Until> {
        if self.may_leave_out(key, labels) {
            return None;
        }
        self.places.until_version(key, version, is_change)
    }

    fn until_gone(&self, key: &ObjectKey, uid: &str, after: Option<Written<'_>>) -> Option<Until> {
        let (source, _) = self.places.place_of(key)?;
        if self.may_leave_out(key, after.and_then(|written| written.labels)) {
            return None;
        }
        let after = after.and_then(|written| written.version.number()).unwrap_or(0);
        let until = Until::Gone { source, what: named(key, uid), after };
        (self.places.has_happened(&until) != Some(true)).then_some(until)
    }

    fn until_like(&self, live: &Live) -> Vec<Until> {
        let mut untils = Vec::new();
        if let Some((key, version)) = &live.newest {
            // The server was asked under the cache's own selectors: what it has, the cache will have.
            untils.extend(self.places.until_version(key, version, true));
        }
        let cached = self.places.lister.view(|view| match &live.name {
            Some(key) => view.held(key).into_iter().collect(),
            None => match live.namespace.as_deref() {
                Some(namespace) => view.in_namespace(namespace),
                None => view.all(),
            },
        });
        // What was there at the server's version and is not in its answer has gone.
        let gone = cached.iter().filter(|object| {
            !live.keys.contains(object.key())
                && object.version().is_some_and(|version| !live.version.is_before(version))
        });
        untils.extend(gone.filter_map(|object| self.until_gone(object.key(), &object.uid()?, None)));
        untils
    }

    fn is_at(&self, target: &Target, version: &ResourceVersion) -> bool {
        self.places.is_at(&target.scope, version)
    }

    fn wait_until_at<'a>(&'a self, target: &'a Target, version: &'a ResourceVersion) -> BoxFuture<'a, ()> {
        Box::pin(self.informer.wait_until(move || self.is_at(target, version)))
    }

    fn before(&self, key: &ObjectKey) -> Option<Before> {
        let held = self.places.lister.held(key)?;
        let resource = self.informer.name().to_owned();
        let version = held.version().cloned();
        let compare = move |answer: &[u8]| {
            // The answer goes through the same type: what that does not know is in neither.
            let after: T = serde_json::from_str(std::str::from_utf8(answer).ok()?).ok()?;
            let (before, after) = (serde_json::to_value(&**held.object()), serde_json::to_value(after));
            Some(differences(&resource, &before.ok()?, &after.ok()?))
        };
        Some(Before { version, compare: Box::new(compare) })
    }

    fn settle(&self, until: &[Until]) {
        for until in until {
            if let Until::Gone { source, what, .. } = until
                && self.places.has_happened(until) == Some(true)
            {
                self.places.queue.gone(*source, std::slice::from_ref(what));
            }
        }
    }

    fn release(&self) {
        *self.places.is_released.lock() = true;
        for (source, _) in self.places.all() {
            // It stays so until the number is another cache's: who is to be held for it from now on is not.
            self.places.queue.advance(source, Some(u128::MAX), false);
            self.places.queue.gone(source, &self.places.queue.awaited(source));
        }
    }
}

/// What to wait for until `caches` show what is known of `writes`; and those writes of which nothing is known.
pub(super) fn until_seen(
    caches: &[Arc<dyn Cache>],
    writes: Vec<Write>,
) -> (Vec<Until>, Vec<(String, Unknown)>) {
    let (mut untils, mut unknown) = (Vec::new(), Vec::new());
    // What was created and deleted by one reconcile may not have come to the cache when it is to be gone.
    let mut versions: Vec<(String, ObjectKey, ResourceVersion, Option<Labels>)> = Vec::new();
    for Write { resource, outcome, is_unchanged, labels, .. } in writes {
        match outcome {
            Outcome::Version { key, version } => {
                let written = Written { key: &key, version: &version, labels: labels.as_ref() };
                let until = |cache: &dyn Cache| cache.until_written(written, !is_unchanged);
                untils.extend(concerned(caches, &resource).filter_map(until));
                versions.push((resource, key, version, labels));
            }
            Outcome::Gone { .. } if !is_kept(Promise::Deletes) => {}
            Outcome::Gone { key, uid } => {
                let same = versions.iter().rev().find(|(of, other, ..)| *of == resource && *other == key);
                let after = same.map(|(_, key, version, labels)| {
                    let labels = labels.as_ref();
                    Written { key, version, labels }
                });
                untils.extend(
                    concerned(caches, &resource).filter_map(|cache| cache.until_gone(&key, &uid, after)),
                );
            }
            Outcome::Unknown(what) if concerned(caches, &resource).next().is_some() => {
                unknown.push((resource, what));
            }
            Outcome::Unknown(_) => {}
        }
    }
    (untils, unknown)
}

/// The caches of a resource.
pub(super) fn concerned<'a>(
    caches: &'a [Arc<dyn Cache>],
    resource: &str,
) -> impl Iterator<Item = &'a dyn Cache> {
    caches.iter().map(|cache| &**cache).filter(move |cache| cache.resource() == resource)
}
