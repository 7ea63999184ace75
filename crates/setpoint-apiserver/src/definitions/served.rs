//! All custom resources at one moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::custom::{Custom, rank};
use crate::discovery::{self, Discovery, Entry, Remote, SubEntry};
use crate::openapi;
use crate::resource::Resource;

type Named<T> = BTreeMap<Box<str>, T>;

/// By group, version and plural. It never changes: a change of a definition makes another one.
#[derive(Debug, Default)]
pub(crate) struct Served {
    resources: Named<Named<Named<Arc<Resource>>>>,
    /// Whether its group-versions have their APIServices.
    registered: AtomicBool,
    /// Made when somebody first asks.
    discovery: OnceLock<Discovery>,
    /// The hashes of the OpenAPI documents by path, likewise.
    open_api: OnceLock<BTreeMap<String, String>>,
}

impl Served {
    pub(super) fn new(resources: impl Iterator<Item = Arc<Resource>>) -> Served {
        let mut served = Served::default();
        for resource in resources {
            let versions = served.resources.entry(resource.group().into()).or_default();
            let plurals = versions.entry(resource.version().into()).or_default();
            plurals.insert(resource.plural().into(), resource);
        }
        served
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    pub(super) fn set_registered(&self) {
        self.registered.store(true, Ordering::Relaxed);
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(group)?.get(version)?.get(plural)
    }

    /// Every served version of the kind of a resource.
    pub(crate) fn versions_of(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let versions = self.resources.get(resource.group()).into_iter().flat_map(BTreeMap::values);
        versions.filter_map(|plurals| plurals.get(resource.plural())).cloned().collect()
    }

    /// Discovery of everything that the server serves.
    pub(crate) fn discovery(&self) -> &Discovery {
        if self.resources.is_empty() {
            return discovery::built_in();
        }
        self.discovery.get_or_init(|| {
            let built_in = setpoint_kinds::table().resources().iter().map(Entry::from);
            Discovery::new(built_in.chain(self.definitions().map(entry)))
        })
    }

    /// Discovery of custom resources alone.
    pub(crate) fn own_discovery(&self) -> Discovery {
        Discovery::new(self.definitions().map(entry))
    }

    /// The same with what other servers answer.
    pub(crate) fn discovery_with(&self, remotes: Vec<Remote<'_>>) -> Discovery {
        let built_in = setpoint_kinds::table().resources().iter().map(Entry::from);
        Discovery::with(built_in.chain(self.definitions().map(entry)), remotes)
    }

    /// The OpenAPI documents of custom resources: path and hash.
    pub(crate) fn open_api_hashes(&self) -> &BTreeMap<String, String> {
        self.open_api.get_or_init(|| openapi::hashes(self))
    }

    /// The groups and their versions, the preferred one first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.resources.iter().map(|(group, versions)| {
            let mut versions: Vec<&str> = versions.keys().map(|version| &**version).collect();
            versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
            (&**group, versions)
        })
    }

    /// The resources of a group-version, by plural.
    pub(crate) fn resources_of(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Resource>> {
        let found = self.resources.get(group).and_then(|versions| versions.get(version));
        found.into_iter().flat_map(BTreeMap::values)
    }

    fn definitions(&self) -> impl Iterator<Item = &Custom> {
        let versions = self
            .groups()
            .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group, version)));
        versions
            .flat_map(|(group, version)| self.resources_of(group, version))
            .filter_map(|resource| resource.definition())
    }
}

fn entry(custom: &Custom) -> Entry<'_> {
    let mut subresources = Vec::new();
    let verbs = super::PART_VERBS.to_vec();
    if custom.has_status {
        subresources.push(SubEntry {
            name: "status",
            group_version: None,
            kind: &custom.kind,
            verbs: verbs.clone(),
        });
    }
    if custom.scale.is_some() {
        let group_version = Some(("autoscaling", "v1"));
        subresources.push(SubEntry { name: "scale", group_version, kind: "Scale", verbs });
    }
    for own in custom.program.iter().flat_map(|program| program.subresources()) {
        let kind = own.kind_or(&custom.kind);
        subresources.push(SubEntry { name: own.name(), group_version: None, kind, verbs: own.verbs() });
    }
    Entry {
        group: &custom.group,
        version: &custom.version,
        plural: &custom.plural,
        singular: &custom.singular,
        kind: &custom.kind,
        namespaced: custom.namespaced,
        verbs: custom.verbs(),
        short_names: custom.short_names.iter().map(|name| &**name).collect(),
        categories: custom.categories.iter().map(|name| &**name).collect(),
        subresources,
    }
}
