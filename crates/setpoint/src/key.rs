//! The key of an object, `namespace/name`, as it travels from the cache to the work queue.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Object;

/// `namespace/name`, or only `name` for an object of the whole cluster. Cheap to clone.
///
/// ```
/// use setpoint::ObjectKey;
///
/// let key = ObjectKey::namespaced("default", "web");
/// assert_eq!(key.to_string(), "default/web");
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web"));
/// assert_eq!(ObjectKey::from("node-1").namespace(), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "MetaNamespaceKeyFunc")]
#[doc(alias = "ObjectRef")]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> ObjectKey {
        // Kubernetes has no longer ones; so most keys are made with one allocation.
        let mut buffer = [0; 63 + 1 + 253];
        let (slash, end) = (namespace.len(), namespace.len() + 1 + name.len());
        if let Some(text) = buffer.get_mut(..end) {
            text[..slash].copy_from_slice(namespace.as_bytes());
            text[slash] = b'/';
            text[slash + 1..].copy_from_slice(name.as_bytes());
            if let Ok(text) = std::str::from_utf8(text) {
                return ObjectKey(text.into());
            }
        }
        ObjectKey(format!("{namespace}/{name}").into())
    }

    /// The key of an object that is in no namespace.
    pub fn cluster(name: &str) -> ObjectKey {
        ObjectKey(name.into())
    }

    /// The key of the object that has this metadata; `None` if it has no name.
    pub fn of(meta: &ObjectMeta) -> Option<ObjectKey> {
        let name = meta.name.as_deref().filter(|name| !name.is_empty())?;
        Some(match meta.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace, if the object is in one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

/// Reads `namespace/name` or `name`.
impl From<&str> for ObjectKey {
    fn from(text: &str) -> ObjectKey {
        ObjectKey(text.into())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// As `namespace/name`.
impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectKey, D::Error> {
        String::deserialize(deserializer).map(|text| ObjectKey(text.into()))
    }
}

/// The key of an object, `namespace/name`; `None` if it has no name.
#[doc(alias = "MetaNamespaceKeyFunc")]
pub fn key_of(object: &impl Object) -> Option<ObjectKey> {
    ObjectKey::of(object.meta())
}

/// A text that is neither `namespace/name` nor `name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a key: it must be \"namespace/name\" or \"name\"")]
pub struct InvalidKey(pub String);

/// Takes a key apart into namespace, if it has one, and name.
///
/// ```
/// use setpoint::split_key;
///
/// assert_eq!(split_key("default/web"), Ok((Some("default"), "web")));
/// assert_eq!(split_key("node-1"), Ok((None, "node-1")));
/// assert!(split_key("a/b/c").is_err());
/// ```
#[doc(alias = "SplitMetaNamespaceKey")]
pub fn split_key(key: &str) -> Result<(Option<&str>, &str), InvalidKey> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        [name] if !name.is_empty() => Ok((None, name)),
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok((Some(namespace), name)),
        _ => Err(InvalidKey(key.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart_or_refused() {
        for bad in ["", "/", "a/", "/b", "a/b/c"] {
            assert_eq!(split_key(bad), Err(InvalidKey(bad.to_owned())));
        }
    }
}
