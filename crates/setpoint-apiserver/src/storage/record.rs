//! One stored value.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use bytes::Bytes;

use super::Revision;
use crate::object::Attributes;

/// One stored value, at the revision of its last change. Immutable, shared by everybody who reads it.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its path within the collection.
    pub path: Box<str>,
    /// When it was last changed.
    pub revision: Revision,
    /// The value as the server encoded it.
    pub value: Bytes,
    /// What selectors look at, worked out when a selector first asks.
    pub attributes: Attributes,
    /// What history has counted for it; 0 if history does not hold it.
    pub(super) counted: AtomicUsize,
    /// Whether another record has taken its place.
    pub(super) is_replaced: AtomicBool,
}

impl Record {
    pub(crate) fn new(path: Box<str>, revision: Revision, value: Bytes) -> Record {
        Record {
            path,
            revision,
            value,
            attributes: Attributes::default(),
            counted: AtomicUsize::new(0),
            is_replaced: AtomicBool::new(false),
        }
    }

    /// How many bytes it takes, about.
    pub(super) fn weight(&self) -> usize {
        size_of::<Record>() + self.path.len() + self.value.len() + self.attributes.weight()
    }
}
