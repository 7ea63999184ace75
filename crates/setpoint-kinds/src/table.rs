//! The table of built-in kinds, parsed once from the generated text.

mod parse;

use std::sync::OnceLock;

use crate::resource::{Group, Resource};
use crate::types::Type;

/// Everything that the generated table knows.
#[derive(Debug)]
pub struct Table {
    /// The Kubernetes release that the table was generated from.
    pub(crate) version: &'static str,
    pub(crate) groups: Vec<Group>,
    /// In the order of discovery: by group priority, then version preference, then plural.
    pub(crate) resources: Vec<Resource>,
    /// Sorted by name.
    pub(crate) types: Vec<Type>,
}

/// The table of built-in kinds; the first call parses it.
///
/// ```
/// let table = setpoint_kinds::table();
/// let deployments = table.resource("apps", "v1", "deployments").unwrap();
/// assert_eq!(deployments.kind, "Deployment");
/// assert_eq!(deployments.subresource("scale").unwrap().api_version(), "autoscaling/v1");
/// assert_eq!(deployments.ty().name, "apps.v1.Deployment");
/// ```
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse::parse(include_str!("kinds.txt")))
}

impl Table {
    /// The Kubernetes release of the table, such as `1.37.1`.
    pub fn kubernetes_version(&self) -> &'static str {
        self.version
    }

    /// The API groups in order of priority, the core group first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of this name; the core group's is empty.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Every resource, in the order of [`Table::groups`] and then by plural name.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The resources of one group-version.
    pub fn resources_of(&self, group: &str, version: &str) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(move |found| found.group == group && found.version == version)
    }

    /// The resource with this plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        self.resources_of(group, version).find(|found| found.plural == plural)
    }

    /// The resource with this kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.resources_of(group, version).find(|found| found.kind == kind)
    }

    /// The type of a resource's objects.
    pub fn type_of(&self, resource: &Resource) -> &Type {
        &self.types[usize::from(resource.ty.0)]
    }

    /// Every type, sorted by name.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The type with this short name, such as `core.v1.Pod`.
    pub fn type_named(&self, name: &str) -> Option<&Type> {
        let at = self.types.binary_search_by(|found| found.name.cmp(name)).ok()?;
        self.types.get(at)
    }

    /// The type of any kind that requests and answers carry: resources, their lists, subresource
    /// kinds such as `Scale`, and the kinds of `meta/v1` such as `Status` and `DeleteOptions`,
    /// which belong to every group-version.
    ///
    /// ```
    /// let table = setpoint_kinds::table();
    /// assert_eq!(table.type_of_kind("", "v1", "PodList").unwrap().name, "core.v1.PodList");
    /// assert_eq!(table.type_of_kind("apps", "v1", "DeleteOptions").unwrap().name, "meta.v1.DeleteOptions");
    /// assert!(table.type_of_kind("", "v1", "Container").is_none());
    /// ```
    pub fn type_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Type> {
        // A Go package is called after the first segment of its group.
        let package = match group.split('.').next() {
            Some("") | None => "core",
            Some(segment) => segment,
        };
        self.type_named(&format!("{package}.{version}.{kind}"))
            .or_else(|| self.type_named(&format!("meta.v1.{kind}")))
            .filter(|found| found.is_kind())
    }
}
