//! The controller that the swarm judges: each parent, a ConfigMap, has one child, a Secret whose name the server
//! generates. Whether there is one only the cache says, so a reconcile on a stale cache makes two.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use setpoint::workqueue::ItemExponential;
use setpoint::{Action, Context, Controller, Finalize, ObjectKey, ReconcileError, Watch, finalize};

/// On parents and children: the parent's name.
pub(crate) const LABEL: &str = "parent";
/// On a child: the size that it has.
pub(crate) const SIZE: &str = "size";
/// The parents' finalizer.
pub(crate) const FINALIZER: &str = "swarm.example.com/child";

/// Who looks on.
pub(crate) trait Witness: Send + Sync + 'static {
    /// A reconcile of `key` begins, and reads the caches.
    fn reads(&self, _key: &ObjectKey, _cx: &Context) {}

    /// How long a reconcile takes between what it reads and what it writes.
    fn thinks(&self, _key: &ObjectKey) -> Duration {
        Duration::ZERO
    }
}

impl Witness for () {}

struct State(Arc<dyn Witness>);

/// The controller. Its retries do not take longer than 5 seconds. It caches all Secrets, or those that may be children.
pub(crate) fn controller(witness: Arc<dyn Witness>, caches_all: bool) -> Controller {
    let (base, most) = (Duration::from_millis(20), Duration::from_secs(5));
    let secrets = Watch::<Secret>::new();
    Controller::of::<ConfigMap>(.., "swarm", reconcile)
        .owns(if caches_all { secrets } else { secrets.labels(LABEL) })
        .workers(2)
        .rate_limiter(ItemExponential::new(base, most))
        .state(State(witness))
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    cx.state::<State>()?.0.reads(&key, &cx);
    let Some(parent) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    if !parent.labels().contains_key(LABEL) {
        return Ok(Action::done());
    }
    let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
    let step = async |step| match step {
        Finalize::Apply(parent) => apply(&key, &cx, &parent).await,
        Finalize::Cleanup(parent) => {
            let children = children_of(&cx, &parent);
            remove(&key, &cx.client(), &children).await?;
            Ok(Action::done())
        }
    };
    finalize(&maps, FINALIZER, parent, step).await
}

/// One child of the right size, or none.
async fn apply(key: &ObjectKey, cx: &Context, parent: &ConfigMap) -> Result<Action, ReconcileError> {
    let children = children_of(cx, parent);
    let time = cx.state::<State>()?.0.thinks(key);
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
    let secrets: Api<Secret> = Api::default_namespaced(cx.client());
    match (wanted_size(parent), children.as_slice()) {
        (None, children) => remove(key, &cx.client(), children).await?,
        (Some(size), []) => {
            secrets.create(&PostParams::default(), &child_of(parent, size)?).await?;
        }
        (Some(size), [child]) if child.annotations().get(SIZE).is_none_or(|has| has != size) => {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {SIZE: size}}}));
            secrets.patch(&child.name_any(), &PatchParams::default(), &patch).await?;
        }
        (Some(_), [_]) => {}
        (Some(_), _) => return Err(format!("{key} has {} children", children.len()).into()),
    }
    Ok(Action::done())
}

/// The size of the child that a parent wants, if it wants one.
pub(crate) fn wanted_size(parent: &ConfigMap) -> Option<&str> {
    parent.data.as_ref().and_then(|data| data.get(SIZE)).map(String::as_str)
}

fn child_of(parent: &ConfigMap, size: &str) -> Result<Secret, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{}-", parent.name_any()),
            "labels": {LABEL: parent.name_any()},
            "annotations": {SIZE: size},
            "ownerReferences": [parent.controller_owner_ref(&())],
        },
    }))
}

/// The children that the cache has.
fn children_of(cx: &Context, parent: &ConfigMap) -> Vec<Arc<Secret>> {
    let mut children = cx.lister::<Secret>().expect("it owns Secrets").list();
    children.retain(|child| {
        child.owner_references().iter().any(|owner| Some(&owner.uid) == parent.uid().as_ref())
    });
    children
}

/// Deletes children: of every other parent by their names, of the others as a collection.
async fn remove(key: &ObjectKey, client: &Client, children: &[Arc<Secret>]) -> Result<(), kube::Error> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let as_collection = key.name().bytes().last().is_some_and(|last| last % 2 == 1);
    if as_collection && !children.is_empty() {
        let those = ListParams::default().labels(&format!("{LABEL}={}", key.name()));
        secrets.delete_collection(&DeleteParams::default(), &those).await?;
        return Ok(());
    }
    for child in children {
        let preconditions = Some(Preconditions { uid: child.uid(), resource_version: None });
        let deleting = DeleteParams { preconditions, ..DeleteParams::default() };
        match secrets.delete(&child.name_any(), &deleting).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}
