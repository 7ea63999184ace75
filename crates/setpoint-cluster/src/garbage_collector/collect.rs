//! What is done about one object, after a look at the server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use setpoint::Event;
use setpoint::discovery::{self, ServedResource};
use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use setpoint::kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use setpoint::kube::core::DynamicObject;
use setpoint::kube::{self, Api};
use tokio::time::timeout;

use super::graph::{Known, Node, Uid};
use super::{Collector, FOREGROUND, ORPHAN, TIME_LIMIT, Work};

/// How long to wait after a conflict.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// Why an object has to wait; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    #[error(transparent)]
    Server(#[from] kube::Error),
    #[error("it took longer than {TIME_LIMIT:?}")]
    Late,
    #[error("no kind {kind:?} in {api_version:?}, which an owner is said to have")]
    UnknownKind { api_version: String, kind: String },
}

/// The owners of an object, by what is to be said of them.
#[derive(Default)]
struct Owners {
    solid: Vec<OwnerReference>,
    dangling: Vec<OwnerReference>,
    waiting: Vec<OwnerReference>,
}

impl Collector {
    pub(super) async fn work(&self, work: Work) -> Result<(), CollectError> {
        let done = async {
            match &work {
                Work::Delete(uid) => self.delete(uid).await,
                Work::Orphan(uid) => self.orphan(uid).await,
            }
        };
        match timeout(TIME_LIMIT, done).await.unwrap_or(Err(CollectError::Late)) {
            // The object has changed since it was looked at, which is no failure: look again.
            Err(CollectError::Server(kube::Error::Api(status))) if status.code == 409 => {
                tracing::debug!(?work, "an object has changed in the meantime; requeued");
                self.queue.add_after(work, AFTER_CONFLICT);
                Ok(())
            }
            done => done,
        }
    }

    fn node(&self, uid: &Uid) -> Option<Node> {
        self.graph.lock().get(uid).cloned()
    }

    fn api(&self, node: &Node) -> Api<DynamicObject> {
        node.resource.objects(&self.client, node.namespace.as_deref())
    }

    /// The object as the server has it; if it is gone, or another one has its name, the graph forgets it.
    async fn live(&self, uid: &Uid, node: &Node) -> Result<Option<ObjectMeta>, CollectError> {
        let found = self.api(node).get_metadata_opt(&node.name).await?;
        let meta = found.map(|found| found.metadata).filter(|meta| meta.uid.as_deref() == Some(&**uid));
        if meta.is_none() {
            let work = self.graph.lock().forget(uid);
            self.enqueue(work);
        }
        Ok(meta)
    }

    /// Deletes an object that has no owner left.
    async fn delete(&self, uid: &Uid) -> Result<(), CollectError> {
        let Some(node) = self.node(uid) else { return Ok(()) };
        if node.is_deleting && !node.is_deleting_dependents {
            return Ok(());
        }
        if !node.is_deleting_dependents && self.is_clearly_owned(uid, &node) {
            return Ok(());
        }
        let Some(live) = self.live(uid, &node).await? else { return Ok(()) };
        if node.is_deleting_dependents {
            return self.finish_foreground(uid, &node, &live).await;
        }
        if live.owner_references.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let Some(owners) = self.classify(&node, &live).await? else { return Ok(()) };
        let gone = owners.dangling.iter().chain(&owners.waiting);
        if !owners.solid.is_empty() {
            let gone: Vec<&str> = gone.map(|owner| owner.uid.as_str()).collect();
            return if gone.is_empty() { Ok(()) } else { self.drop_owners(&node, &live, &gone).await };
        }
        let dependents = self.graph.lock().dependents(uid);
        let has = |finalizer: &str| live.finalizers.iter().flatten().any(|known| known == finalizer);
        let policy = if !owners.waiting.is_empty() && !dependents.is_empty() {
            self.break_cycle(&node, &live, &dependents).await?;
            PropagationPolicy::Foreground
        } else if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.remove(uid, &node, policy).await
    }

    /// Whether every owner is there and stays. Also tells of owners in other namespaces.
    fn is_clearly_owned(&self, uid: &Uid, node: &Node) -> bool {
        let mut is_owned = true;
        for owner in &node.owners {
            let known = self.graph.lock().known(owner, node.namespace.as_deref());
            is_owned &= known == Known::Solid;
            if known == Known::Elsewhere {
                self.tell_of_namespace(uid, node, owner);
            }
        }
        is_owned
    }

    fn tell_of_namespace(&self, uid: &Uid, node: &Node, owner: &OwnerReference) {
        let namespace = node.namespace.as_deref().unwrap_or_default();
        let OwnerReference { api_version, kind, name, uid: owner_uid, .. } = owner;
        let note = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner_uid}] \
             does not exist in namespace {namespace:?}"
        );
        self.recorder.event_about(node.reference(uid), Event::warning("OwnerRefInvalidNamespace", note));
    }

    /// Looks each owner up on the server. `None` if one of them can never be found, so that nothing may be done.
    async fn classify(&self, node: &Node, live: &ObjectMeta) -> Result<Option<Owners>, CollectError> {
        let mut owners = Owners::default();
        for owner in live.owner_references.iter().flatten() {
            if self.graph.lock().is_absent(&owner.uid, node.namespace.as_deref()) {
                owners.dangling.push(owner.clone());
                continue;
            }
            let resource = self.kind_of(owner).await?;
            if resource.is_namespaced && node.namespace.is_none() {
                // An object of the whole cluster cannot be owned by one in a namespace: no deletion can follow.
                return Ok(None);
            }
            let api = resource.objects(&self.client, node.namespace.as_deref());
            let found = api.get_metadata_opt(&owner.name).await?.map(|found| found.metadata);
            match found.filter(|meta| meta.uid.as_ref() == Some(&owner.uid)) {
                None => owners.dangling.push(owner.clone()),
                Some(meta) if is_deleting_dependents(&meta) => owners.waiting.push(owner.clone()),
                Some(_) => owners.solid.push(owner.clone()),
            }
        }
        Ok(Some(owners))
    }

    /// The kind that an owner is said to have. The server is asked if it is not known.
    async fn kind_of(&self, owner: &OwnerReference) -> Result<Arc<ServedResource>, CollectError> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let find = |kinds: &[Arc<ServedResource>]| {
            let mut kinds = kinds.iter();
            kinds.find(|kind| kind.api.kind == owner.kind && kind.api.group == group).cloned()
        };
        if let Some(known) = find(&self.kinds.lock()) {
            return Ok(known);
        }
        let kinds = discovery::served(&self.client).await?;
        let found = find(&kinds);
        *self.kinds.lock() = kinds;
        found.ok_or_else(|| CollectError::UnknownKind {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
        })
    }

    /// Takes owners that are gone, or wait for their dependents, out of an object that has others.
    async fn drop_owners(&self, node: &Node, live: &ObjectMeta, gone: &[&str]) -> Result<(), CollectError> {
        let mut owners = live.owner_references.clone().unwrap_or_default();
        owners.retain(|owner| !gone.contains(&owner.uid.as_str()));
        self.write_owners(node, live, &owners).await
    }

    async fn write_owners(
        &self,
        node: &Node,
        live: &ObjectMeta,
        owners: &[OwnerReference],
    ) -> Result<(), CollectError> {
        let patch = json!({"metadata": {
            "uid": live.uid, "resourceVersion": live.resource_version, "ownerReferences": owners,
        }});
        self.patch(node, &patch).await
    }

    async fn patch(&self, node: &Node, patch: &serde_json::Value) -> Result<(), CollectError> {
        let api = self.api(node);
        match api.patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            patched => Ok(patched.map(drop)?),
        }
    }

    /// If owners and dependents both wait for each other, this object lets its owners go first.
    async fn break_cycle(
        &self,
        node: &Node,
        live: &ObjectMeta,
        dependents: &[Uid],
    ) -> Result<(), CollectError> {
        let is_cycle = {
            let graph = self.graph.lock();
            dependents.iter().any(|uid| graph.get(uid).is_some_and(|node| node.is_deleting_dependents))
        };
        if !is_cycle {
            return Ok(());
        }
        let mut owners = live.owner_references.clone().unwrap_or_default();
        owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
        self.write_owners(node, live, &owners).await
    }

    async fn remove(&self, uid: &Uid, node: &Node, policy: PropagationPolicy) -> Result<(), CollectError> {
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        match self.api(node).delete(&node.name, &parameters.preconditions(preconditions)).await {
            // A conflict, because another one has its name by now, is looked into by the next try.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    /// Lets an object that is deleted in the foreground go, once nothing blocks it; until then sees to what does.
    async fn finish_foreground(&self, uid: &Uid, node: &Node, live: &ObjectMeta) -> Result<(), CollectError> {
        let blocking = self.graph.lock().blocking(uid);
        if blocking.is_empty() {
            return self.drop_finalizer(node, live, FOREGROUND).await;
        }
        let going = {
            let graph = self.graph.lock();
            let is_going = |uid: &Uid| graph.get(uid).is_some_and(|node| node.is_deleting_dependents);
            blocking.into_iter().filter(|uid| !is_going(uid)).map(Work::Delete).collect()
        };
        self.enqueue(going);
        Ok(())
    }

    async fn drop_finalizer(&self, node: &Node, live: &ObjectMeta, name: &str) -> Result<(), CollectError> {
        let mut finalizers = live.finalizers.clone().unwrap_or_default();
        let before = finalizers.len();
        finalizers.retain(|finalizer| finalizer != name);
        if finalizers.len() == before {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": live.uid, "resourceVersion": live.resource_version, "finalizers": finalizers,
        }});
        self.patch(node, &patch).await
    }

    /// Takes the dependents of an object away from it, then lets it go.
    async fn orphan(&self, uid: &Uid) -> Result<(), CollectError> {
        let Some(node) = self.node(uid) else { return Ok(()) };
        let dependents = self.graph.lock().dependents(uid);
        for dependent in dependents {
            let Some(child) = self.node(&dependent) else { continue };
            if let Some(live) = self.live(&dependent, &child).await? {
                self.drop_owners(&child, &live, &[uid]).await?;
            }
        }
        match self.live(uid, &node).await? {
            Some(live) => self.drop_finalizer(&node, &live, ORPHAN).await,
            None => Ok(()),
        }
    }
}

fn is_deleting_dependents(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND)
}
