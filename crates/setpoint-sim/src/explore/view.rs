//! The objects that there are, for what a user wants to hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::object::ObjectId;

/// The objects of the server at one moment.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) objects: BTreeMap<ObjectId, Arc<Value>>,
}

impl View {
    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectId, &Value)> {
        self.objects.iter().map(|(id, value)| (id, &**value))
    }

    /// All objects of a kind, in the order of their namespaces and names.
    ///
    /// # Panics
    /// When an object is not what its type says.
    pub fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let kind = K::DynamicType::default();
        let (group, plural) = (K::group(&kind), K::plural(&kind));
        let those = self.objects.iter().filter(|(id, _)| *id.group == *group && *id.resource == *plural);
        those
            .map(|(_, value)| K::deserialize(&**value).expect("the server keeps objects of this type"))
            .collect()
    }

    /// One object of a kind; `namespace` is none for kinds without namespaces.
    pub fn get<K>(&self, namespace: Option<&str>, name: &str) -> Option<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let kind = K::DynamicType::default();
        let path = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let (group, resource) = (K::group(&kind).into(), K::plural(&kind).into());
        let value = self.objects.get(&ObjectId { group, resource, path: path.into() })?;
        K::deserialize(&**value).ok()
    }
}
