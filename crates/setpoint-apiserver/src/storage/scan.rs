//! Reading many records: a scan goes over a part of a collection at one revision, a chunk at a time.

use std::sync::Arc;

use futures::future::BoxFuture;
use setpoint_kinds::FieldLabel;

use super::{ReadError, Record, Revision};

/// How fresh a read has to be. Engines that read from their own memory are always at the newest revision; for others it
/// decides what the read costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Whatever the engine has at hand.
    Any,
    /// Everything that was committed before the read began.
    Latest,
    /// This revision or a newer one. [`super::Storage::reached`] waits for it; a read does not.
    AtLeast(Revision),
    /// The state at exactly this revision.
    Exact(Revision),
}

/// Which part of a collection to read.
#[derive(Clone, Debug)]
pub(crate) struct ListQuery {
    pub collection: Arc<str>,
    /// Only paths that begin with this: all, or one `namespace/`.
    pub prefix: Box<str>,
    pub fresh: Freshness,
    /// Only paths after this one.
    pub after: Option<Box<str>>,
    /// How many records the prefix has up to `after`, as far as the caller knows: an engine that cannot tell how many
    /// remain without a walk relies on it.
    pub before: Option<usize>,
    /// An engine may leave out records that do not fit this. The caller still has to look at each.
    pub hint: Option<Hint>,
}

/// What the caller looks for, for engines that can find it faster than by looking at everything.
#[derive(Clone, Debug)]
pub(crate) enum Hint {
    /// Records whose path is this, or ends with a slash and this.
    Name(Box<str>),
    /// Records whose field has this value.
    Field(Field, Box<str>),
}

/// A field that records can be found by: one of those that the kind can be selected by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub labels: &'static [FieldLabel],
    /// Its place among them.
    pub at: usize,
}

impl Field {
    pub(crate) fn name(&self) -> &'static str {
        self.labels[self.at].label
    }

    pub(crate) fn value<'a>(&self, record: &'a Record) -> &'a str {
        &record.attributes.fields(&record.value, self.labels)[self.at]
    }

    /// The same if somebody has asked for it before.
    pub(crate) fn known<'a>(&self, record: &'a Record) -> Option<&'a str> {
        record.attributes.known_fields().map(|fields| &*fields[self.at])
    }
}

impl ListQuery {
    /// The whole collection, as it is now.
    pub(crate) fn all(collection: &Arc<str>) -> ListQuery {
        ListQuery {
            collection: Arc::clone(collection),
            prefix: "".into(),
            fresh: Freshness::Latest,
            after: None,
            before: Some(0),
            hint: None,
        }
    }

    /// Only paths that begin with this.
    pub(crate) fn under(self, prefix: impl Into<Box<str>>) -> ListQuery {
        ListQuery { prefix: prefix.into(), ..self }
    }
}

/// A part of a collection at one revision.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub records: Vec<Arc<Record>>,
    pub revision: Revision,
}

/// Some consecutive records of a scan, in the order of their paths.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// None at all does not mean that the scan has ended: the engine may need another call to get further.
    pub records: Vec<Arc<Record>>,
    /// Whether there are no more records.
    pub end: bool,
    /// How many records follow, if the engine knows without looking; a hint leaves none out of this count.
    pub remaining: Option<usize>,
}

/// A part of a collection at one revision, read chunk by chunk. It holds no lock in between.
pub(crate) trait Scan: Send {
    /// The revision of all chunks.
    fn revision(&self) -> Revision;

    /// At most `limit` more records. Fails if the engine has meanwhile forgotten the state at the revision.
    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Chunk, ReadError>>;

    /// How many records and changes were looked at so far.
    fn visited(&self) -> usize;
}
