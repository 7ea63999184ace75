//! Who owns whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use setpoint::ObjectKey;

use super::{Kind, Meta};

/// The index of objects by the uids of their owners.
pub(super) const OWNER: &str = "owner";
/// How far up and down is looked.
const MOST_DEPTH: usize = 10;
const MOST_NODES: usize = 300;

pub(super) fn owners(object: &Meta) -> Vec<String> {
    object.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect()
}

/// An object in the tree.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) resource: String,
    pub(super) kind: String,
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) version: String,
    /// The uid of the owner that it stands under.
    pub(super) parent: Option<String>,
    pub(super) depth: usize,
    pub(super) created: Option<i64>,
    pub(super) is_being_deleted: bool,
    /// Whether it is the one that was asked for.
    pub(super) is_asked: bool,
    /// How it is, in words.
    pub(super) state: String,
}

/// The objects around one: from its first owner down to all that this owns, owners before what they own.
/// None if it is not there.
pub(super) fn around(kinds: &[Kind], kind: &Kind, key: &ObjectKey) -> Option<Vec<Node>> {
    let asked = kind.cache.lister().get(key)?;
    let uid = asked.metadata.uid.clone();
    let (mut top, mut at) = (kind, asked);
    for _ in 0..MOST_DEPTH {
        let Some((kind, owner)) = owner_of(kinds, &at) else { break };
        (top, at) = (kind, owner);
    }
    let mut walk = Walk { kinds, asked: uid, nodes: Vec::new(), seen: BTreeSet::new() };
    walk.visit(top, &at, None, 0);
    Some(walk.nodes)
}

/// The controller of an object, or its first owner, if that is known.
fn owner_of<'a>(kinds: &'a [Kind], object: &Meta) -> Option<(&'a Kind, Arc<Meta>)> {
    let owners = object.metadata.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first())?;
    let kind = kinds.iter().find(|kind| is_of(kind, owner))?;
    let key = match object.metadata.namespace.as_deref().filter(|_| kind.resource.is_namespaced) {
        Some(namespace) => ObjectKey::namespaced(namespace, &owner.name),
        None => ObjectKey::cluster(&owner.name),
    };
    let found = kind.cache.lister().get(&key)?;
    // Another object may have taken the name.
    (found.metadata.uid.as_deref() == Some(owner.uid.as_str())).then_some((kind, found))
}

fn is_of(kind: &Kind, owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    kind.resource.api.kind == owner.kind && kind.resource.api.group == group
}

struct Walk<'a> {
    kinds: &'a [Kind],
    asked: Option<String>,
    nodes: Vec<Node>,
    /// Owners may go round in circles.
    seen: BTreeSet<String>,
}

impl Walk<'_> {
    fn visit(&mut self, kind: &Kind, object: &Meta, parent: Option<&str>, depth: usize) {
        let meta = &object.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        let Some(key) = setpoint::key_of(object) else { return };
        if self.nodes.len() >= MOST_NODES || depth > 2 * MOST_DEPTH || !self.seen.insert(uid.clone()) {
            return;
        }
        self.nodes.push(Node {
            resource: kind.name.clone(),
            kind: kind.resource.api.kind.clone(),
            key,
            version: meta.resource_version.clone().unwrap_or_default(),
            parent: parent.map(str::to_owned),
            depth,
            created: meta.creation_timestamp.as_ref().map(|time| time.0.as_millisecond()),
            is_being_deleted: meta.deletion_timestamp.is_some(),
            is_asked: self.asked.as_ref() == Some(&uid),
            state: String::new(),
            uid: uid.clone(),
        });
        for kind in self.kinds {
            let owned = kind.cache.lister().by_index(OWNER, &uid).unwrap_or_default();
            for object in owned {
                self.visit(kind, &object, Some(&uid), depth + 1);
            }
        }
    }
}
