//! Who sees every change at the moment it is committed.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::write::{Effect, Write};

/// A change that was committed: see [`Builder::observer`](crate::Builder::observer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Committed {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The resource: `deployments`.
    pub resource: Box<str>,
    /// The object: `namespace/name`, or `name`.
    pub path: Box<str>,
    /// The resourceVersion of the change.
    pub revision: u64,
    /// The object as it is stored, as JSON; of one that was deleted, its last state.
    pub value: Bytes,
    /// Whether it was deleted.
    pub is_deleted: bool,
}

/// Is told of every change while it is committed.
#[derive(Clone)]
pub(crate) struct Observer(Arc<dyn Fn(Committed) + Send + Sync>);

impl Observer {
    pub(crate) fn new(tell: impl Fn(Committed) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(tell))
    }

    pub(super) fn tell(&self, write: &Write) {
        // A collection is called `group/resource`, and `core` is the group that has no name.
        let (group, resource) =
            write.key.collection.split_once('/').unwrap_or(("core", &write.key.collection));
        (self.0)(Committed {
            group: if group == "core" { "" } else { group }.into(),
            resource: resource.into(),
            path: write.key.path.clone(),
            revision: write.record.revision,
            value: write.record.value.clone(),
            is_deleted: write.effect == Effect::Delete,
        });
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
