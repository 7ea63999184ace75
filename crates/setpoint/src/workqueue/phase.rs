//! What a key of a queue is doing.

use serde::{Deserialize, Serialize};

/// Where a key is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Not there; or only waiting for its time.
    Absent,
    /// Ready to be taken.
    Queued,
    /// Being processed.
    Processing,
    /// Being processed, and to be queued again.
    Dirty,
    /// Being processed, and to be held when it is done.
    Holding,
    /// The same, and to be queued again after that.
    HoldingDirty,
    /// Until something outside has happened.
    Held,
    /// Held, and to be queued then.
    HeldDirty,
}
