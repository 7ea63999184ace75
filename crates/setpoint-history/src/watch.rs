//! One watch, from its request to its end.

use std::fmt;

use crate::object::{Item, Moment, Version};
use crate::select::Select;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// After this version.
    Version(Version),
    /// With what is there now: `sendInitialEvents=true`.
    Now,
}

/// What a watch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An object is there that was not.
    Added(Item),
    /// An object is another.
    Modified(Item),
    /// An object is gone; its last state, at the version of the delete.
    Deleted(Item),
    /// Everything up to this version was told.
    Bookmark(Version),
    /// The same, and all that was there at the beginning is among it.
    InitialEnd(Version),
}

impl Event {
    /// The version that it brings its watcher to.
    pub fn version(&self) -> Version {
        match self {
            Event::Added(item) | Event::Modified(item) | Event::Deleted(item) => item.version,
            Event::Bookmark(version) | Event::InitialEnd(version) => *version,
        }
    }

    /// The object that it is about.
    pub fn item(&self) -> Option<&Item> {
        match self {
            Event::Added(item) | Event::Modified(item) | Event::Deleted(item) => Some(item),
            Event::Bookmark(_) | Event::InitialEnd(_) => None,
        }
    }
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client or the server has closed it, or the connection broke.
    Closed,
    /// Its version is no longer there (410).
    Expired,
    /// It did not tell of this version in time, though it was long committed.
    Stuck(Version),
    /// It was refused, or an ERROR event came: another status code than 410.
    Failed(u16),
    /// Its request got no answer.
    NoAnswer,
    /// It said something that no server says.
    Unreadable(String),
}

/// One watch, from its request to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Who watched.
    pub watcher: u16,
    /// Which of his watches.
    pub number: u32,
    /// What it takes.
    pub select: Select,
    /// Where it began.
    pub from: From,
    /// Before the request was sent.
    pub start: Moment,
    /// What it told, and when.
    pub told: Vec<(Moment, Event)>,
    /// How it ended.
    pub ended: Ended,
}

impl Watch {
    /// The version that this watch has told everything up to, if it has told anything.
    pub fn told_to(&self) -> Option<Version> {
        let whole = match self.from {
            From::Version(_) => true,
            From::Now => self.told.iter().any(|(_, event)| matches!(event, Event::InitialEnd(_))),
        };
        self.told.last().filter(|_| whole).map(|(_, event)| event.version())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Added(item) => write!(f, "ADDED {item}"),
            Event::Modified(item) => write!(f, "MODIFIED {item}"),
            Event::Deleted(item) => write!(f, "DELETED {item}"),
            Event::Bookmark(version) => write!(f, "BOOKMARK {version}"),
            Event::InitialEnd(version) => write!(f, "BOOKMARK {version} after the initial events"),
        }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}-{}: watch {}", self.watcher, self.number, self.select)?;
        match self.from {
            From::Version(version) => write!(f, " after {version}")?,
            From::Now => f.write_str(" from now on")?,
        }
        write!(f, "; began at {:.6} ms", self.start as f64 / 1e6)
    }
}
