//! API groups, resources and subresources, as discovery lists them.

use crate::behavior::Behavior;
use crate::table::table;
use crate::types::{Type, TypeId};

/// An API group and its served versions, the preferred one first.
#[derive(Debug)]
#[non_exhaustive]
pub struct Group {
    /// The name; empty for the core group.
    pub name: &'static str,
    /// The served versions in order of preference.
    pub versions: Box<[&'static str]>,
}

/// Whether the objects of a resource live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects belong to the cluster.
    Cluster,
    /// Objects belong to a namespace.
    Namespaced,
}

/// A resource that kube-apiserver serves by default, in one version.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// The kind of the objects.
    pub kind: &'static str,
    /// Cluster or namespace.
    pub scope: Scope,
    /// Short names for kubectl.
    pub short_names: Box<[&'static str]>,
    /// Categories such as `all`.
    pub categories: Box<[&'static str]>,
    /// The supported verbs.
    pub verbs: Box<[&'static str]>,
    /// Subresources, sorted by name.
    pub subresources: Box<[Subresource]>,
    /// Where kube-apiserver keeps the objects; none if they are not kept.
    pub stored: Option<Stored>,
    pub(crate) behavior: Behavior,
    pub(crate) ty: TypeId,
}

/// Where and how kube-apiserver keeps the objects of a resource in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The path of the collection below `/registry`: `services/specs`.
    pub prefix: &'static str,
    /// The group of the version that objects are written in.
    pub group: &'static str,
    /// The version that objects are written in. It may be one that is not served, if the release before does not know the
    /// newest one.
    pub version: &'static str,
    /// What the values are.
    pub encoding: Encoding,
}

impl Stored {
    /// `group/version`, or the version alone for the core group.
    ///
    /// ```
    /// let table = setpoint_kinds::table();
    /// let nodes = table.resource("", "v1", "nodes").unwrap().stored.unwrap();
    /// assert_eq!((nodes.prefix, nodes.api_version()), ("minions", "v1".to_owned()));
    /// ```
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }
}

/// What an object is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The magic bytes, and a `runtime.Unknown` around the object.
    Protobuf,
    /// JSON.
    Json,
}

/// A subresource such as `deployments/scale`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Subresource {
    /// The last segment of the URL.
    pub name: &'static str,
    /// The group of the kind that the subresource speaks.
    pub group: &'static str,
    /// The version of that kind.
    pub version: &'static str,
    /// The kind that the subresource speaks.
    pub kind: &'static str,
    /// The supported verbs.
    pub verbs: Box<[&'static str]>,
    pub(crate) ty: TypeId,
}

impl Resource {
    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// Whether objects belong to a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether the resource has this verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// The type of the objects.
    pub fn ty(&self) -> &'static Type {
        self.ty.get()
    }

    /// The resource in whose version objects are kept, if that version is served; otherwise this one. Two resources with the same one are two
    /// views of one store: the versions of HorizontalPodAutoscaler, and the events of the core
    /// group and of `events.k8s.io`.
    ///
    /// ```
    /// let table = setpoint_kinds::table();
    /// let events = table.resource("events.k8s.io", "v1", "events").unwrap();
    /// assert_eq!(events.storage().api_version(), "v1");
    /// ```
    pub fn storage(&self) -> &'static Resource {
        let served =
            self.stored.and_then(|stored| table().resource(stored.group, stored.version, self.plural));
        let own = || table().resource(self.group, self.version, self.plural);
        served.or_else(own).expect("the table has every resource")
    }

    /// How the registry of kube-apiserver treats the objects.
    pub fn behavior(&self) -> &Behavior {
        &self.behavior
    }
}

impl Subresource {
    /// `group/version` of the kind that the subresource speaks.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// The type of what the subresource reads and writes.
    pub fn ty(&self) -> &'static Type {
        self.ty.get()
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
