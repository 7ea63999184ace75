//! Who owns whom, as far as the monitors have seen. An object is known by its uid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use setpoint::discovery::ServedResource;
use setpoint::k8s_openapi::api::core::v1::ObjectReference;
use setpoint::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{FOREGROUND, ORPHAN, Work};

pub(super) type Uid = Arc<str>;

/// The objects of all kinds, and their dependents.
#[derive(Default)]
pub(super) struct Graph {
    objects: BTreeMap<Uid, Node>,
    /// By owner, whether it is known or not.
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// Owners that were seen to go and that still have dependents, with their namespaces. Their kind may go too, and
    /// then no server can say any more that they are gone.
    absent: BTreeMap<Uid, Option<String>>,
}

/// An object, as far as ownership goes.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) resource: Arc<ServedResource>,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) is_deleting: bool,
    /// It is being deleted, after its dependents.
    pub(super) is_deleting_dependents: bool,
    is_orphaning: bool,
}

impl Node {
    fn new(resource: &Arc<ServedResource>, meta: &ObjectMeta) -> Node {
        let is_deleting = meta.deletion_timestamp.is_some();
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|known| known == finalizer);
        Node {
            resource: resource.clone(),
            namespace: meta.namespace.clone().filter(|namespace| !namespace.is_empty()),
            name: meta.name.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            is_deleting,
            is_deleting_dependents: is_deleting && has(FOREGROUND),
            is_orphaning: is_deleting && has(ORPHAN),
        }
    }

    /// Whether the object keeps an owner that is deleted in the foreground waiting.
    fn blocks(&self, owner: &str) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|known| known.uid == owner && known.block_owner_deletion == Some(true))
    }

    /// The object in an event about it.
    pub(super) fn reference(&self, uid: &Uid) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.resource.api.api_version.clone()),
            kind: Some(self.resource.api.kind.clone()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        }
    }
}

/// What is known of an owner that an object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is there.
    Solid,
    /// It is there, and is being deleted after its dependents.
    Waiting,
    /// It is there, but in another namespace, where it cannot own the object.
    Elsewhere,
    /// Nobody has seen it.
    No,
}

impl Graph {
    /// Takes over the state of an object. Gives what may have to be done now.
    pub(super) fn see(&mut self, resource: &Arc<ServedResource>, meta: &ObjectMeta) -> Vec<Work> {
        let Some(uid) = meta.uid.as_deref().map(Uid::from) else { return Vec::new() };
        let new = Node::new(resource, meta);
        let old = self.objects.insert(uid.clone(), new.clone());
        let mut work = Vec::new();
        let (before, was_deleting_dependents, was_orphaning) = match &old {
            Some(old) => (old.owners.as_slice(), old.is_deleting_dependents, old.is_orphaning),
            None => (&[][..], false, false),
        };
        if before != new.owners {
            self.change_owners(&uid, before, &new, &mut work);
        }
        if new.is_orphaning && !was_orphaning {
            work.push(Work::Orphan(uid.clone()));
        }
        if new.is_deleting_dependents && !was_deleting_dependents {
            work.push(Work::Delete(uid.clone()));
            work.extend(self.dependents(&uid).into_iter().map(Work::Delete));
        }
        work
    }

    fn change_owners(&mut self, uid: &Uid, before: &[OwnerReference], new: &Node, work: &mut Vec<Work>) {
        for owner in before {
            let is_kept = new.owners.iter().any(|kept| kept.uid == owner.uid);
            if !is_kept {
                self.disown(&owner.uid, uid);
            }
            // An owner that waits for this object may have waited for the last time.
            if !new.blocks(&owner.uid) {
                work.extend(self.waiting_owner(&owner.uid));
            }
        }
        for owner in &new.owners {
            self.dependents.entry(Uid::from(owner.uid.as_str())).or_default().insert(uid.clone());
        }
        if new.owners.iter().any(|owner| self.known(owner, new.namespace.as_deref()) != Known::Solid) {
            work.push(Work::Delete(uid.clone()));
        }
    }

    fn waiting_owner(&self, uid: &str) -> Option<Work> {
        let owner = self.objects.get(uid)?;
        owner.is_deleting_dependents.then(|| Work::Delete(uid.into()))
    }

    /// Forgets an object that is gone. Gives what may have to be done now.
    pub(super) fn forget(&mut self, uid: &str) -> Vec<Work> {
        let Some(node) = self.objects.remove(uid) else { return Vec::new() };
        let mut work = Vec::new();
        for owner in &node.owners {
            self.disown(&owner.uid, uid);
            work.extend(self.waiting_owner(&owner.uid));
        }
        let dependents = self.dependents(uid);
        if !dependents.is_empty() {
            self.absent.insert(uid.into(), node.namespace);
        }
        work.extend(dependents.into_iter().map(Work::Delete));
        work
    }

    fn disown(&mut self, owner: &str, uid: &str) {
        let Some(dependents) = self.dependents.get_mut(owner) else { return };
        dependents.remove(uid);
        if dependents.is_empty() {
            self.dependents.remove(owner);
            self.absent.remove(owner);
        }
    }

    /// Forgets all objects of a kind, which are gone with it.
    pub(super) fn forget_kind(&mut self, name: &str) -> Vec<Work> {
        let of_kind = self.objects.iter().filter(|(_, node)| node.resource.name() == name);
        let gone: Vec<Uid> = of_kind.map(|(uid, _)| uid.clone()).collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// Whether the owner of an object in `namespace` was seen to go. One in another namespace never was its owner.
    pub(super) fn is_absent(&self, owner: &str, namespace: Option<&str>) -> bool {
        let absent = self.absent.get(owner).map(Option::as_deref);
        absent.is_some_and(|home| home.is_none() || home == namespace)
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.objects.get(uid)
    }

    /// The objects that name this one as an owner, in order.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Uid> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The dependents that a deletion in the foreground waits for.
    pub(super) fn blocking(&self, uid: &str) -> Vec<Uid> {
        let mut blocking = self.dependents(uid);
        blocking.retain(|dependent| self.objects.get(dependent).is_some_and(|node| node.blocks(uid)));
        blocking
    }

    /// What is known of an owner that an object in `namespace` names.
    pub(super) fn known(&self, owner: &OwnerReference, namespace: Option<&str>) -> Known {
        match self.objects.get(owner.uid.as_str()) {
            None => Known::No,
            Some(node) if node.namespace.is_some() && node.namespace.as_deref() != namespace => {
                Known::Elsewhere
            }
            // A reference that gets anything but the uid wrong is looked up on the server.
            Some(node) if node.name != owner.name || node.resource.api.kind != owner.kind => Known::No,
            Some(node) if node.is_deleting_dependents => Known::Waiting,
            Some(_) => Known::Solid,
        }
    }
}
