//! Who must know at once how far a cache has got.

use super::apply::Change;
use crate::{Held, ResourceVersion, Scope};

/// Called by whoever applies a batch, right after it is in the cache. It must be quick, and must not call the informer.
///
/// An [`EventHandler`](crate::EventHandler) learns what has changed, later and folded; this learns how far the cache is.
pub(crate) trait Observer<T>: Send + Sync {
    /// A batch is in the cache.
    fn applied(&self, batch: &Applied<'_, T>);
}

/// A batch that is in the cache.
pub(crate) struct Applied<'a, T> {
    pub(crate) scope: &'a Scope,
    /// Where the cache is in this scope now.
    pub(crate) version: Option<&'a ResourceVersion>,
    /// Whether it was a list: what it does not have may never have been in the cache.
    pub(crate) is_list: bool,
    pub(super) changes: &'a [Change<T>],
}

impl<'a, T> Applied<'a, T> {
    /// What the batch has taken out of the cache.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &'a Held<T>> + use<'a, T> {
        self.changes.iter().filter_map(|change| match change {
            Change::Deleted { old, .. } => Some(old),
            _ => None,
        })
    }
}
