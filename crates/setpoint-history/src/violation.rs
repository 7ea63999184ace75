//! What a history says that no correct server shows.

use std::fmt;

/// A promise of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// A version means one state of one object, whoever reads it.
    OneState,
    /// A write is done once or not at all, and stays so; one that was refused is never done.
    Once,
    /// A write finds the state that it says it found: no update is lost.
    Follows,
    /// Operations take effect between their start and their end, in the order of versions.
    Linearizable,
    /// A list is the state at its version; all pages of a list are of one version, or the server says that they are not.
    Snapshot,
    /// The events of a watch come in the order of versions.
    Ordered,
    /// No event comes twice.
    Unique,
    /// No event is left out.
    Reliable,
    /// An event tells the whole change: ADDED if the object was not there, MODIFIED if it was.
    Atomic,
    /// A watch after a version tells what came after it.
    Resumable,
    /// What a bookmark covers was told before it.
    Bookmarkable,
    /// Calls that are always valid are not refused.
    Served,
    /// Answers can be read.
    Readable,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::OneState => "a version is one state",
            Promise::Once => "a write is done once or never",
            Promise::Follows => "a write finds what it names",
            Promise::Linearizable => "operations are linearizable",
            Promise::Snapshot => "a list is a snapshot",
            Promise::Ordered => "a watch is ordered",
            Promise::Unique => "a watch is unique",
            Promise::Reliable => "a watch is reliable",
            Promise::Atomic => "a watch is atomic",
            Promise::Resumable => "a watch is resumable",
            Promise::Bookmarkable => "a watch is bookmarkable",
            Promise::Served => "valid calls are served",
            Promise::Readable => "answers can be read",
        })
    }
}

/// A promise that was broken, and the few operations that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// How.
    pub why: String,
    /// The operations and events that contradict each other.
    pub evidence: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.why)?;
        self.evidence.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
