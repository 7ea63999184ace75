//! What the server serves: one `Resource` for each group, version and plural.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use setpoint_kinds::{Behavior, Type};

use crate::definitions::{self, Custom};
use crate::status::GroupResource;
use crate::storage::Key;
use crate::strategy::Part;
use crate::strategy::subresources::{Fields, Paths, Subresource, Writes};

/// A served resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    origin: Origin,
    behavior: Behavior,
    api_version: String,
    /// Where its objects are stored, whichever version they were written in.
    collection: Arc<str>,
    /// The `apiVersion` of stored objects.
    stored_as: String,
    /// What can be written of its objects, on which paths.
    paths: Paths,
}

/// Where the facts about a resource come from.
#[derive(Debug)]
enum Origin {
    /// The table of kinds.
    BuiltIn(&'static setpoint_kinds::Resource),
    /// A CustomResourceDefinition.
    Custom(Box<Custom>),
}

impl Resource {
    fn built_in(facts: &'static setpoint_kinds::Resource) -> Resource {
        let stored = facts.storage();
        let folder = if stored.group.is_empty() { "core" } else { stored.group };
        Resource {
            behavior: *facts.behavior(),
            api_version: facts.api_version(),
            collection: format!("{folder}/{}", stored.plural).into(),
            stored_as: stored.api_version(),
            paths: Paths::built_in(facts.group, facts.plural, facts.behavior().keeps_status),
            origin: Origin::BuiltIn(facts),
        }
    }

    /// One version of what a CustomResourceDefinition defines.
    pub(crate) fn custom(custom: Custom) -> Resource {
        Resource {
            behavior: Behavior::custom(custom.has_status),
            api_version: format!("{}/{}", custom.group, custom.version),
            collection: format!("{}/{}", custom.group, custom.plural).into(),
            stored_as: format!("{}/{}", custom.group, custom.storage_version),
            paths: Paths::custom(|name| custom.has_subresource(name)),
            origin: Origin::Custom(Box::new(custom)),
        }
    }

    /// What its definition says, if it is a custom resource.
    pub(crate) fn definition(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::BuiltIn(_) => None,
            Origin::Custom(custom) => Some(custom),
        }
    }

    pub(crate) fn group(&self) -> &str {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.group,
            Origin::Custom(custom) => &custom.group,
        }
    }

    pub(crate) fn version(&self) -> &str {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.version,
            Origin::Custom(custom) => &custom.version,
        }
    }

    pub(crate) fn plural(&self) -> &str {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.plural,
            Origin::Custom(custom) => &custom.plural,
        }
    }

    pub(crate) fn kind(&self) -> &str {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.kind,
            Origin::Custom(custom) => &custom.kind,
        }
    }

    /// The kind of its lists.
    pub(crate) fn list_kind(&self) -> Cow<'_, str> {
        match &self.origin {
            Origin::BuiltIn(facts) => Cow::Owned(format!("{}List", facts.kind)),
            Origin::Custom(custom) => Cow::Borrowed(&custom.list_kind),
        }
    }

    /// `group/version`, or `v1` for the core group.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.is_namespaced(),
            Origin::Custom(custom) => custom.namespaced,
        }
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.has_verb(verb),
            Origin::Custom(custom) => custom.has_verb(verb),
        }
    }

    /// The verbs of a subresource, if there is one of this name.
    pub(crate) fn subresource_verbs(&self, name: &str) -> Option<&[&'static str]> {
        match &self.origin {
            Origin::BuiltIn(facts) => facts.subresource(name).map(|part| &*part.verbs),
            Origin::Custom(custom) => custom.has_subresource(name).then_some(&definitions::PART_VERBS),
        }
    }

    /// The path of this name below its objects.
    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.paths.below(name)
    }

    /// What a write of a part of its objects takes from the request.
    pub(crate) fn writes(&self, part: Part) -> &'static Writes {
        self.paths.writes(part)
    }

    /// The fields that a manager owns by writing them through a subresource; `""` is the object itself.
    pub(crate) fn owned_fields(&self, subresource: &str) -> Fields {
        self.paths.owned(subresource)
    }

    /// The Go type of its objects. Custom resources have none.
    pub(crate) fn ty(&self) -> Option<&'static Type> {
        match &self.origin {
            Origin::BuiltIn(facts) => Some(facts.ty()),
            Origin::Custom(_) => None,
        }
    }

    pub(crate) fn behavior(&self) -> &Behavior {
        &self.behavior
    }

    pub(crate) fn collection(&self) -> &Arc<str> {
        &self.collection
    }

    /// The `apiVersion` that its objects are stored in.
    pub(crate) fn stored_as(&self) -> &str {
        &self.stored_as
    }

    /// Whether stored objects must be converted to be served in this version.
    pub(crate) fn is_converted(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(_) => self.stored_as != self.api_version,
            Origin::Custom(custom) => custom.changes_on_read(),
        }
    }

    /// `deployments.apps`, for messages.
    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: self.group(), resource: self.plural() }
    }

    /// `Deployment.apps`, for messages.
    pub(crate) fn group_kind(&self) -> GroupResource<'_> {
        GroupResource { group: self.group(), resource: self.kind() }
    }

    /// The storage key of an object.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> Key {
        let path = match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        Key { collection: Arc::clone(&self.collection), path: path.into() }
    }
}

/// The resources that a server serves.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: BTreeMap<&'static str, BTreeMap<&'static str, BTreeMap<&'static str, Arc<Resource>>>>,
}

impl Registry {
    /// The built-in resources; every server shares them.
    pub(crate) fn built_in() -> &'static Registry {
        static BUILT_IN: LazyLock<Registry> = LazyLock::new(|| {
            let mut resources: BTreeMap<_, BTreeMap<_, BTreeMap<_, _>>> = BTreeMap::new();
            for facts in setpoint_kinds::table().resources() {
                let versions = resources.entry(facts.group).or_default();
                let plurals = versions.entry(facts.version).or_default();
                plurals.insert(facts.plural, Arc::new(Resource::built_in(facts)));
            }
            Registry { resources }
        });
        &BUILT_IN
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(group)?.get(version)?.get(plural)
    }

    /// The resource of a kind.
    pub(crate) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        let plurals = self.resources.get(group)?.get(version)?;
        plurals.values().find(|resource| resource.kind() == kind).cloned()
    }

    /// Every version of the kind of a resource, itself included.
    pub(crate) fn versions_of(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let same = |other: &&Arc<Resource>| other.collection() == resource.collection();
        let all = self.resources.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        all.filter(same).cloned().collect()
    }

    /// A built-in resource that the server itself relies on.
    pub(crate) fn expect(&self, group: &str, version: &str, plural: &str) -> &Arc<Resource> {
        self.find(group, version, plural).expect("the table of built-in kinds has it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_event_apis_are_one_store() {
        let registry = Registry::built_in();
        let core = registry.expect("", "v1", "events");
        let events = registry.expect("events.k8s.io", "v1", "events");
        assert_eq!(core.collection(), events.collection());
        assert!(events.is_converted() && !core.is_converted());
    }

    #[test]
    fn every_version_of_a_kind_is_stored_in_one_collection() {
        let registry = Registry::built_in();
        let v1 = registry.expect("autoscaling", "v1", "horizontalpodautoscalers");
        let v2 = registry.expect("autoscaling", "v2", "horizontalpodautoscalers");
        assert_eq!(v1.key(Some("default"), "web"), v2.key(Some("default"), "web"));
        assert_eq!(v1.stored_as(), "autoscaling/v2");
    }
}
