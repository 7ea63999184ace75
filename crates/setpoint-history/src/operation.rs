//! One request of a client, and what came of it.

use std::fmt;

use crate::object::{Item, Key, Mark, Moment, Version};

/// How fresh a read has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// No resourceVersion: everything that was done before the read began.
    Latest,
    /// `resourceVersion=0`: any state.
    Any,
    /// This version or a newer one.
    AtLeast(Version),
    /// The state at just this version.
    Exact(Version),
}

/// Where a page of a list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continue {
    /// The last object of the page before.
    pub after: Key,
    /// The version of the page before. None if the server has said that the list goes on at another one.
    pub version: Option<Version>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the request")]
pub enum Call {
    Create {
        key: Key,
    },
    /// PUT; with a version, only if the object is still at it.
    Update {
        key: Key,
        expect: Option<Version>,
    },
    /// A merge patch that sets the mark.
    MergePatch {
        key: Key,
    },
    /// A JSON patch that moves the mark into `previous` and sets a new one: applied twice, it shows.
    JsonPatch {
        key: Key,
    },
    /// A strategic merge patch that sets the mark.
    StrategicPatch {
        key: Key,
    },
    /// Server-side apply of the mark, by force: it makes the object if there is none.
    Apply {
        key: Key,
    },
    /// A merge patch of the status, which sets the mark and the phase.
    StatusPatch {
        key: Key,
    },
    Delete {
        key: Key,
        expect: Option<Version>,
    },
    /// Deletes the first objects of the collection, or all.
    DeleteCollection {
        limit: Option<u32>,
    },
    Get {
        key: Key,
        fresh: Fresh,
    },
    List {
        fresh: Fresh,
        limit: Option<u32>,
        from: Option<Continue>,
    },
}

impl Call {
    /// The object that it is about, if it is one.
    pub fn key(&self) -> Option<Key> {
        match *self {
            Call::Create { key }
            | Call::Update { key, .. }
            | Call::MergePatch { key }
            | Call::JsonPatch { key }
            | Call::StrategicPatch { key }
            | Call::Apply { key }
            | Call::StatusPatch { key }
            | Call::Delete { key, .. }
            | Call::Get { key, .. } => Some(key),
            Call::List { .. } | Call::DeleteCollection { .. } => None,
        }
    }

    /// Whether it leaves its mark in an object.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Call::Create { .. }
                | Call::Update { .. }
                | Call::MergePatch { .. }
                | Call::JsonPatch { .. }
                | Call::StrategicPatch { .. }
                | Call::Apply { .. }
                | Call::StatusPatch { .. }
        )
    }

    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        self.writes() || matches!(self, Call::Delete { .. } | Call::DeleteCollection { .. })
    }

    /// How it lists objects, if it does: how fresh, how many, and where it goes on.
    pub fn listing(&self) -> Option<(Fresh, Option<u32>, Option<Continue>)> {
        match *self {
            Call::List { fresh, limit, from } => Some((fresh, limit, from)),
            // The answer lists what was there.
            Call::DeleteCollection { limit } => Some((Fresh::Latest, limit, None)),
            _ => None,
        }
    }

    /// Whether it names a version that an object must be at.
    pub fn is_conditional(&self) -> bool {
        matches!(self, Call::Update { expect: Some(_), .. } | Call::Delete { expect: Some(_), .. })
    }

    /// What it is called in figures.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Call::Create { .. } => "create",
            Call::Update { expect: None, .. } => "update",
            Call::Update { expect: Some(_), .. } => "update at a version",
            Call::MergePatch { .. } => "merge patch",
            Call::JsonPatch { .. } => "JSON patch",
            Call::StrategicPatch { .. } => "strategic merge patch",
            Call::Apply { .. } => "apply",
            Call::StatusPatch { .. } => "patch of the status",
            Call::Delete { expect: None, .. } => "delete",
            Call::Delete { expect: Some(_), .. } => "delete at a version",
            Call::DeleteCollection { .. } => "delete of a collection",
            Call::Get { .. } => "get",
            Call::List { from: Some(_), .. } => "next page",
            Call::List { limit: Some(_), .. } => "first page",
            Call::List { fresh: Fresh::Exact(_), .. } => "list at a version",
            Call::List { .. } => "list",
        }
    }
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object as it was written.
    Written(Item),
    /// The uid of the object that was deleted.
    Deleted(u128),
    /// The object that was read.
    Found(Item),
    /// The objects of a list or of a page of it.
    Listed {
        /// The version of the list.
        version: Version,
        /// Its objects, in the order of the answer.
        items: Vec<Item>,
        /// Whether more pages follow.
        more: bool,
    },
    /// The object was marked as deleted: what was written is stored, or the object is removed instead, as kube-apiserver does
    /// with what has no time left.
    Leaving,
    /// There is no such object.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// It is at another version than the request named.
    Conflict,
    /// The version is no longer there (410).
    Expired,
    /// Nothing was done, for reasons that say nothing about the object: the status code.
    Refused(u16),
    /// The answer got lost.
    Unknown,
    /// A status code from 500 on, which does not say whether it was done.
    Failed(u16),
    /// An answer that no server gives.
    Unreadable(String),
}

impl Outcome {
    /// Whether nobody knows if it was done.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Outcome::Unknown | Outcome::Failed(_) | Outcome::Leaving)
    }
}

/// One request of a client, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who, and which of his operations; it is the mark of a write.
    pub mark: Mark,
    /// What was asked for.
    pub call: Call,
    /// Before the request was sent.
    pub start: Moment,
    /// After the answer had come, or when the client gave up.
    pub end: Moment,
    /// What came of it.
    pub outcome: Outcome,
}

impl fmt::Display for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fresh::Latest => Ok(()),
            Fresh::Any => f.write_str(", any state"),
            Fresh::AtLeast(version) => write!(f, ", at {version} or newer"),
            Fresh::Exact(version) => write!(f, ", at exactly {version}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = |expect: &Option<Version>| {
            expect.map(|version| format!(", if it is at {version}")).unwrap_or_default()
        };
        match self {
            Call::Create { key } => write!(f, "create {key}"),
            Call::Update { key, expect } => write!(f, "update {key}{}", expected(expect)),
            Call::MergePatch { key } => write!(f, "merge patch of {key}"),
            Call::JsonPatch { key } => write!(f, "JSON patch of {key}"),
            Call::StrategicPatch { key } => write!(f, "strategic merge patch of {key}"),
            Call::Apply { key } => write!(f, "apply {key}"),
            Call::StatusPatch { key } => write!(f, "merge patch of the status of {key}"),
            Call::Delete { key, expect } => write!(f, "delete {key}{}", expected(expect)),
            Call::DeleteCollection { limit } => {
                f.write_str("delete the collection")?;
                limit.map_or(Ok(()), |limit| write!(f, ", at most {limit}"))
            }
            Call::Get { key, fresh } => write!(f, "get {key}{fresh}"),
            Call::List { fresh, limit, from } => {
                write!(f, "list{fresh}")?;
                limit.map_or(Ok(()), |limit| write!(f, ", at most {limit}"))?;
                from.map_or(Ok(()), |from| write!(f, ", after {}", from.after))
            }
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Written(item) => write!(f, "wrote {item}"),
            Outcome::Deleted(_) => f.write_str("deleted"),
            Outcome::Found(item) => write!(f, "found {item}"),
            Outcome::Listed { version, items, more } => {
                write!(f, "listed at {version}:")?;
                items.iter().try_for_each(|item| write!(f, " {}@{}", item.key, item.version))?;
                f.write_str(if *more { " …" } else { "" })
            }
            Outcome::Leaving => f.write_str("found it marked as deleted"),
            Outcome::NotFound => f.write_str("not found"),
            Outcome::AlreadyExists => f.write_str("already exists"),
            Outcome::Conflict => f.write_str("conflict"),
            Outcome::Expired => f.write_str("expired"),
            Outcome::Refused(code) => write!(f, "refused with {code}"),
            Outcome::Unknown => f.write_str("no answer"),
            Outcome::Failed(code) => write!(f, "failed with {code}"),
            Outcome::Unreadable(text) => write!(f, "unreadable: {text}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |moment: Moment| moment as f64 / 1e6;
        write!(
            f,
            "{}: {}; from {:.6} to {:.6} ms: {}",
            self.mark,
            self.call,
            millis(self.start),
            millis(self.end),
            self.outcome
        )
    }
}
