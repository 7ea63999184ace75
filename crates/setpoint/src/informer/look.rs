//! An informer as it is now, for those who look.

use super::{Inner, ScopeParts};
use crate::facts::{CacheProbe, CacheState, Name, ScopeState};
use crate::{Object, ObjectKey, ResourceVersion, Scope};

impl<T: Object> CacheProbe for Inner<T> {
    fn state(&self, id: u64) -> CacheState {
        let scope = |parts: &ScopeParts<T>| ScopeState {
            namespace: parts.scope.namespace().map(Name::from),
            version: self.core.indexer.watermark(&parts.scope),
            pending: parts.fifo.len(),
            trouble: parts.trouble.lock().clone(),
        };
        CacheState {
            id,
            resource: self.core.name.as_str().into(),
            scopes: self.scopes.iter().map(scope).collect(),
            objects: self.core.indexer.len(),
            has_synced: self.core.has_synced(),
            is_healthy: !self.core.is_restarting(),
            handlers: self.core.handlers(),
        }
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.core.indexer.view(|view| view.keys(&Scope::Cluster))
    }

    fn version(&self, key: &ObjectKey) -> Option<ResourceVersion> {
        self.core.indexer.held(key).and_then(|held| held.version().cloned())
    }
}
