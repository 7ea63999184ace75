//! What the clients write: objects that tell which write made them.

use std::fmt;

/// The resourceVersion of an object, a list or an event.
pub type Version = u64;

/// A moment of a history: nanoseconds since it began, and never the same twice.
pub type Moment = u64;

/// The name of an object, in the order of names: `o003`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u16);

impl Key {
    /// The key of an object of this name, if it is one of ours.
    pub fn parse(name: &str) -> Option<Key> {
        name.strip_prefix('o')?.parse().ok().map(Key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{:03}", self.0)
    }
}

/// What a write leaves in the object: who made it, and which of his operations it was. No two writes have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The client.
    pub client: u16,
    /// The number of the operation, counted by its client.
    pub number: u32,
}

impl Mark {
    /// A mark as it stands in an object.
    pub fn parse(text: &str) -> Option<Mark> {
        let (client, number) = text.strip_prefix('c')?.split_once('-')?;
        Some(Mark { client: client.parse().ok()?, number: number.parse().ok()? })
    }
}

impl Mark {
    /// The label that its write sets: `team=t0` to `t2`.
    pub fn team(&self) -> u8 {
        (self.number % 3) as u8
    }

    /// The node that it gives to a pod which it creates.
    pub(crate) fn node(&self) -> Option<u8> {
        ((self.number / 3) % 3).checked_sub(1).map(|node| node as u8)
    }

    /// The phase that it gives to a pod if it writes its status.
    pub(crate) fn is_running(&self) -> bool {
        self.number.is_multiple_of(2)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}-{}", self.client, self.number)
    }
}

/// What an object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The write that made it so.
    pub mark: Mark,
    /// What a JSON patch found when it was last applied; creates and updates leave nothing here, other patches what there
    /// is.
    pub previous: Option<Mark>,
    /// Which of the objects that had this name.
    pub uid: u128,
    /// What else watches select by, and whether it is about to go. The label follows from the mark.
    pub fields: Fields,
}

/// What else is to be seen of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// `spec.nodeName`: `n0` or `n1`, or none. It stays.
    pub node: Option<u8>,
    /// Whether `status.phase` is `Running`.
    pub is_running: bool,
    /// Whether it is marked as deleted (`deletionTimestamp`): a delete of a pod writes that before it removes the pod.
    pub is_leaving: bool,
}

/// An object at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub key: Key,
    /// Its resourceVersion; for a deleted one, that of the delete.
    pub version: Version,
    /// What it says.
    pub state: State,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} at {}", self.key, self.state.mark, self.version)?;
        self.state.previous.map_or(Ok(()), |previous| write!(f, ", made from {previous}"))
    }
}
