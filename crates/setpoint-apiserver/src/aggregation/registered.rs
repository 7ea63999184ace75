//! All backends at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::backend::{Backend, Spec};
use super::{OpenApi, availability};
use crate::definitions::Served;
use crate::discovery::{Discovery, Remote};

/// By group and version. It never changes: a change of an APIService makes another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registered {
    backends: BTreeMap<String, BTreeMap<String, Arc<Backend>>>,
}

impl Registered {
    /// What these APIServices say. Backends that stay the same are those of `old`.
    pub(super) fn new<'a>(objects: impl Iterator<Item = &'a Value>, old: &Registered) -> Registered {
        let mut registered = Registered::default();
        for object in objects {
            let Some(spec) = Spec::read(object) else { continue };
            let known = old.find(&spec.group, &spec.version);
            let is_available = availability::is_available(object);
            let backend = match known {
                Some(known) if known.spec == spec => {
                    if known.set_available(is_available) != is_available {
                        // Somebody else says so: look at once.
                        known.wake.notify_one();
                    }
                    Arc::clone(known)
                }
                known => Arc::new(Backend::new(spec, is_available, known.map(|known| &**known))),
            };
            let versions = registered.backends.entry(backend.spec.group.clone()).or_default();
            versions.insert(backend.spec.version.clone(), backend);
        }
        registered
    }

    pub(crate) fn find(&self, group: &str, version: &str) -> Option<&Arc<Backend>> {
        self.backends.get(group)?.get(version)
    }

    /// All of them, by group and version.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// Whether both have the very same backends.
    pub(super) fn is_same(&self, other: &Registered) -> bool {
        self.all().count() == other.all().count() && self.all().all(|backend| other.has(backend))
    }

    pub(super) fn has(&self, backend: &Arc<Backend>) -> bool {
        let found = self.find(&backend.spec.group, &backend.spec.version);
        found.is_some_and(|found| Arc::ptr_eq(found, backend))
    }

    /// Ends what goes on with backends that are not among these: that they are looked after, and what goes through them unless
    /// the same service still answers.
    pub(super) fn end_all_but(&self, kept: &Registered) {
        for backend in self.all().filter(|backend| !kept.has(backend)) {
            backend.replaced.cancel();
            let next = kept.find(&backend.spec.group, &backend.spec.version);
            if !next.is_some_and(|next| next.spec.leads_to_the_same(&backend.spec)) {
                backend.ended.cancel();
            }
        }
    }

    /// The schemas of all backends, those of the greatest priority first.
    pub(crate) fn open_api(&self) -> Vec<Arc<OpenApi>> {
        let mut backends: Vec<&Arc<Backend>> = self.all().collect();
        backends.sort_by_key(|backend| {
            std::cmp::Reverse((backend.spec.group_priority, backend.spec.version_priority))
        });
        backends.into_iter().filter_map(|backend| backend.open_api()).collect()
    }

    /// Discovery of this server and of all backends.
    pub(super) fn discovery(&self, served: &Served) -> Discovery {
        let told: Vec<(&Backend, Value)> = self
            .all()
            .map(|backend| (&**backend, backend.resources.read().to_version(&backend.spec)))
            .collect();
        let remotes = told.iter().map(|(backend, version)| Remote {
            group: &backend.spec.group,
            version: &backend.spec.version,
            group_priority: backend.spec.group_priority,
            version_priority: backend.spec.version_priority,
            content: version,
        });
        served.discovery_with(remotes.collect())
    }
}
