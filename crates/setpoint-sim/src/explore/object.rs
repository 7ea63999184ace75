//! Objects as the explorer compares them.

use std::fmt;

use serde_json::Value;
use setpoint_apiserver::Committed;

/// An object of the API, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The resource: `deployments`.
    pub resource: Box<str>,
    /// `namespace/name`, or `name`.
    pub path: Box<str>,
}

impl ObjectId {
    pub(crate) fn of(committed: &Committed) -> ObjectId {
        let Committed { group, resource, path, .. } = committed;
        ObjectId { group: group.clone(), resource: resource.clone(), path: path.clone() }
    }

    /// The resource as kubectl spells it: `pods`, `deployments.apps`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Where the API has it, in the version that `value` is stored in.
    pub(crate) fn api_path(&self, value: &Value) -> String {
        let version = value["apiVersion"].as_str().unwrap_or("v1");
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        match self.path.split_once('/') {
            Some((namespace, name)) => {
                format!("{root}/{version}/namespaces/{namespace}/{}/{name}", self.resource)
            }
            None => format!("{root}/{version}/{}/{}", self.resource, self.path),
        }
    }
}

/// `deployments.apps/default/web`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group_resource(), self.path)
    }
}
