//! One stored value.

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
}

impl Record {
    pub(crate) fn new(path: Box<str>, revision: Revision, value: Bytes) -> Record {
        Record { path, revision, value, attributes: Attributes::default() }
    }
}
