//! What an API server has to allow a controller: read off its builder, for `setpoint gen rbac`.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource;
#[doc(inline)]
pub use setpoint_kinds::Verb;

/// The verbs that something needs, by API group and resource (`foos`, `foos/status`).
///
/// ```
/// use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use setpoint::permissions::Verb;
/// use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
///
/// # async fn reconcile(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> { Ok(Action::done()) }
/// let controller = Controller::of::<ConfigMap>(.., "maps", reconcile)
///     .owns::<Secret>(..)
///     .writes::<Secret>(&[Verb::Create, Verb::Patch]);
/// let needs = controller.permissions();
/// assert_eq!(needs.verbs("", "configmaps"), [Verb::List, Verb::Watch]);
/// assert_eq!(needs.verbs("", "secrets"), [Verb::List, Verb::Watch, Verb::Create, Verb::Patch]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    rules: BTreeMap<(String, String), BTreeSet<Verb>>,
    /// The namespaces that it works in; none for the whole cluster.
    pub namespaces: Vec<String>,
    /// The namespace and the name of the lease that it is elected by.
    pub lease: Option<(String, String)>,
    /// The namespaces and names of the Secrets with the certificates of its webhooks.
    pub certificates: BTreeSet<(String, String)>,
}

impl Permissions {
    /// Adds verbs on the objects of `K`.
    pub fn allow<K: Resource<DynamicType = ()>>(&mut self, verbs: &[Verb]) {
        self.add(&K::group(&()), &K::plural(&()), verbs);
    }

    /// Adds verbs on a subresource of `K`.
    pub fn allow_subresource<K: Resource<DynamicType = ()>>(&mut self, subresource: &str, verbs: &[Verb]) {
        self.add(&K::group(&()), &format!("{}/{subresource}", K::plural(&())), verbs);
    }

    /// Adds verbs on a resource.
    pub fn add(&mut self, group: &str, resource: &str, verbs: &[Verb]) {
        self.rules.entry((group.to_owned(), resource.to_owned())).or_default().extend(verbs);
    }

    /// Adds everything that another does. Where it works, and the lease that it is elected by, stay as they are.
    pub fn merge(&mut self, other: &Permissions) {
        for ((group, resource), verbs) in &other.rules {
            self.rules.entry((group.clone(), resource.clone())).or_default().extend(verbs);
        }
        self.certificates.extend(other.certificates.iter().cloned());
    }

    /// The verbs on a resource, in order.
    pub fn verbs(&self, group: &str, resource: &str) -> Vec<Verb> {
        let verbs = self.rules.get(&(group.to_owned(), resource.to_owned()));
        verbs.into_iter().flatten().copied().collect()
    }

    /// All of them: group, resource, verbs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<Verb>)> {
        self.rules.iter().map(|((group, resource), verbs)| (group.as_str(), resource.as_str(), verbs))
    }
}
