//! Objects by their controller: an index in the shared cache, and taking and letting go by labels.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Selector;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use setpoint::Watchable;
use setpoint::owner::{Claim, adoption_patch, claim, controller_of, release_patch};
use setpoint::{Context, IndexError, Lister, ObjectKey, ReconcileError, SharedInformerFactory};

use crate::failure::is_not_found;

/// The index by the uid of an object's controller, or by its namespace if it has none.
const INDEX: &str = "controller-or-namespace";

/// A kind in namespaces that can be read and written.
pub(crate) trait Kind:
    Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug
{
}

impl<K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug> Kind for K {}

/// The shared cache of a kind, indexed by controller.
pub(crate) fn by_controller<T: Kind>(informers: &SharedInformerFactory) -> Lister<T> {
    let informer = informers.informer::<T>();
    match informer.add_index(INDEX, |object: &T| vec![index_value(object)]) {
        // Another controller has asked for it before.
        Ok(()) | Err(IndexError::Exists(_)) => {}
        Err(error) => tracing::error!(%error, "cannot index by controller"),
    }
    informer.lister()
}

fn index_value<T: Kind>(object: &T) -> String {
    match controller_of(object) {
        Some(owner) => owner.uid.clone(),
        None => nobodys(&object.namespace().unwrap_or_default()),
    }
}

/// What objects without a controller are found under. No uid has a slash.
fn nobodys(namespace: &str) -> String {
    format!("{namespace}/")
}

/// The objects that the owner of this uid controls, by name.
pub(crate) fn of<T: Kind>(lister: &Lister<T>, uid: &str) -> Vec<Arc<T>> {
    lister.by_index(INDEX, uid).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot look up by controller");
        Vec::new()
    })
}

/// The objects that an owner controls, and those of its namespace that nobody does.
pub(crate) fn candidates<K: Kind, T: Kind>(lister: &Lister<T>, owner: &K) -> Vec<Arc<T>> {
    let mut found = of(lister, &owner.uid().unwrap_or_default());
    found.extend(of(lister, &nobodys(&owner.namespace().unwrap_or_default())));
    found
}

/// The keys of the owners that a changed object concerns: its controller, or, if it has none, everybody in its
/// namespace whose selector takes it.
pub(crate) fn concerned<K: Kind, T: Kind>(
    owners: &Lister<K>,
    object: &T,
    selects: impl Fn(&K, &T) -> bool,
) -> Vec<ObjectKey> {
    let namespace = object.namespace().unwrap_or_default();
    if let Some(owner) = controller_of(object) {
        let is_kind = owner.kind == K::kind(&()) && owner.api_version == K::api_version(&());
        let key = is_kind.then(|| ObjectKey::namespaced(&namespace, &owner.name));
        return key.into_iter().collect();
    }
    let owners = owners.namespace(&namespace).list();
    let taking = owners.iter().filter(|owner| selects(owner, object));
    taking.map(|owner| ObjectKey::namespaced(&namespace, &owner.name_any())).collect()
}

/// Takes what is nobody's and matches, lets go of what matches no more, and returns what is the owner's then.
/// An object that is taken gets `finalizer`.
pub(crate) async fn claim_all<K, T>(
    cx: &Context,
    owner: &K,
    selector: &Selector,
    candidates: Vec<Arc<T>>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<T>>, ReconcileError>
where
    K: Kind,
    T: Kind,
{
    let namespace = owner.namespace().unwrap_or_default();
    let api: Api<T> = Api::namespaced(cx.client(), &namespace);
    let (mut claimed, mut may_adopt) = (Vec::new(), false);
    for object in candidates {
        match claim(owner, selector, &*object) {
            Claim::Keep => claimed.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let patch = release_patch(owner, &*object);
                write(&api, &object.name_any(), &patch).await?;
            }
            Claim::Adopt => {
                if !may_adopt {
                    check_alive(cx, owner).await?;
                    may_adopt = true;
                }
                let Some(mut patch) = adoption_patch(owner, &*object) else { continue };
                if let Some(finalizer) = finalizer {
                    let mut finalizers = object.finalizers().to_vec();
                    finalizers.retain(|other| other != finalizer);
                    finalizers.push(finalizer.to_owned());
                    patch["metadata"]["finalizers"] = json!(finalizers);
                }
                claimed.extend(write(&api, &object.name_any(), &patch).await?.map(Arc::new));
            }
        }
    }
    Ok(claimed)
}

/// Nothing is taken by an owner that is gone, or going, or another one by now: the cache may be behind.
async fn check_alive<K: Kind>(cx: &Context, owner: &K) -> Result<(), ReconcileError> {
    let (name, namespace) = (owner.name_any(), owner.namespace().unwrap_or_default());
    let live = Api::<K>::namespaced(cx.client(), &namespace).get(&name).await?;
    let kind = K::kind(&());
    if live.meta().uid != owner.meta().uid {
        return Err(format!("the {kind} {namespace}/{name} is gone; another one has its name").into());
    }
    if live.meta().deletion_timestamp.is_some() {
        return Err(format!("the {kind} {namespace}/{name} is being deleted; it adopts nothing").into());
    }
    Ok(())
}

/// The patched object; none if it is gone.
async fn write<T: Resource + DeserializeOwned + Clone + Debug>(
    api: &Api<T>,
    name: &str,
    patch: &serde_json::Value,
) -> Result<Option<T>, kube::Error> {
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
