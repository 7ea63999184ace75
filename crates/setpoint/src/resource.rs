//! Before stage 1: a kind without its type, and whether its objects are in namespaces.

use std::any::TypeId;

use k8s_openapi::ClusterResourceScope;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};

/// A kind without its type, and whether its objects are in namespaces: what it takes to watch and to write a kind that is
/// known at run time only.
///
/// [`find_resource`](crate::client::find_resource) asks the server for one, [`discovery::served`](crate::discovery::served)
/// for all. Those who know the scope without asking say it:
///
/// ```
/// use setpoint::kube::core::{ApiResource, GroupVersionKind};
/// use setpoint::{ScopedResource, Watch};
///
/// let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
/// let widgets = ScopedResource::namespaced(ApiResource::from_gvk(&widget));
/// assert_eq!(widgets.name(), "widgets.example.com");
/// let all = Watch::dynamic(&widgets);
/// # let _ = all;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopedResource {
    /// Its group, version, kind and plural.
    pub api: ApiResource,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

impl ScopedResource {
    /// A kind whose objects are in namespaces.
    pub fn namespaced(api: ApiResource) -> ScopedResource {
        ScopedResource { api, is_namespaced: true }
    }

    /// A kind whose objects are in no namespace.
    pub fn cluster(api: ApiResource) -> ScopedResource {
        ScopedResource { api, is_namespaced: false }
    }

    /// A kind that is known at compile time.
    pub fn of<K: Resource<DynamicType = ()> + 'static>() -> ScopedResource {
        let is_namespaced = TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>();
        ScopedResource { api: ApiResource::erase::<K>(&()), is_namespaced }
    }

    /// `pods`, `deployments.apps`: the plural and the group, as `kubectl api-resources -o name` prints them.
    pub fn name(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }

    /// The objects in a namespace, or in all. A namespace means nothing for a kind whose objects are in none.
    pub fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.api),
            None => Api::all_with(client.clone(), &self.api),
        }
    }

    /// The path of its objects in a namespace, or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        DynamicObject::url_path(&self.api, namespace.filter(|_| self.is_namespaced))
    }
}
