//! How much of a resource one reflector watches.

use std::fmt;
use std::sync::Arc;

use crate::ObjectKey;

/// The whole cluster, or one namespace. Each scope of a cache has a watermark of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every namespace, and objects that are in none.
    Cluster,
    /// One namespace.
    Namespace(Arc<str>),
}

impl Scope {
    /// The namespace, if it is one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(namespace),
        }
    }

    /// Whether an object of this key is in the scope.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.namespace().is_none_or(|namespace| key.namespace() == Some(namespace))
    }
}

/// The namespace's name, or nothing for the cluster, as in the metric label `namespace`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.namespace().unwrap_or_default())
    }
}
