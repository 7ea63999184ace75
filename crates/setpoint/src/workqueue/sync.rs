//! The queue's one lock. A file of its own, so that the model checker can put its own lock here.

pub(super) use parking_lot::{Mutex, MutexGuard};
