//! What can be cached: anything with object metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Something that a cache can hold. Every [`kube::Resource`] is one.
///
/// Implement it for a type of your own to cache less than the server sends (see
/// [`InformerBuilder::transform`](crate::InformerBuilder::transform)): since such a type is no
/// [`kube::Resource`], there is no `Api` through which half an object could be written back.
pub trait Object: Send + Sync + 'static {
    /// The object's metadata: name, namespace, uid and resourceVersion must stay as the server sent them.
    fn meta(&self) -> &ObjectMeta;
}

impl<K: kube::Resource + Send + Sync + 'static> Object for K {
    fn meta(&self) -> &ObjectMeta {
        kube::Resource::meta(self)
    }
}

/// An object from which [`InformerBuilder::trim`](crate::InformerBuilder::trim) took something away.
///
/// It is deliberately neither a [`kube::Resource`] nor serializable, and does not deref to `K`: an update
/// with it would erase on the server what the cache left out. To write, get the whole object from the
/// server, or patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Trimmed<K>(K);

impl<K> Trimmed<K> {
    pub(crate) fn new(object: K) -> Trimmed<K> {
        Trimmed(object)
    }

    /// What is left of the object. For reading.
    pub fn partial(&self) -> &K {
        &self.0
    }
}

impl<K: kube::Resource + Send + Sync + 'static> Object for Trimmed<K> {
    fn meta(&self) -> &ObjectMeta {
        kube::Resource::meta(&self.0)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Small objects for the tests of this crate.

    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Resource;

    use crate::Held;

    pub(crate) fn object(key: &str, uid: &str, version: u64) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let meta = map.meta_mut();
        meta.name = Some(name.to_owned());
        meta.namespace = Some(namespace.to_owned()).filter(|ns| !ns.is_empty());
        meta.uid = Some(uid.to_owned());
        meta.resource_version = Some(version.to_string());
        Arc::new(map)
    }

    pub(crate) fn held(key: &str, uid: &str, version: u64) -> Held<ConfigMap> {
        Held::new(key.into(), object(key, uid, version))
    }
}
