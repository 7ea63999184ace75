//! How the store is.

use std::sync::Arc;

use super::super::NotStored;

/// How the store is.
#[derive(Clone, Debug)]
pub(super) enum Health {
    /// It takes every change.
    Well,
    /// There is no room on the disk; it takes changes that need none.
    Full,
    /// It takes no change any more, until the server is started again.
    Stopped(Arc<str>),
}

pub(super) fn full() -> NotStored {
    let why = "the disk of the server's store is full; delete objects or make some room, and try again";
    NotStored { why: why.into(), is_full: true, refused: None }
}

pub(super) fn refused(why: impl Into<Arc<str>>) -> NotStored {
    NotStored { why: why.into(), is_full: false, refused: None }
}
