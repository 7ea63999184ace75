//! The time that a replica leads.

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::Fence;

/// What the work of a leader is given. Clones are the same term.
#[derive(Clone)]
pub struct Term {
    client: Client,
    fence: Fence,
    ending: CancellationToken,
    transitions: i32,
}

impl Term {
    pub(super) fn new(client: &Client, fence: Fence, ending: CancellationToken, transitions: i32) -> Term {
        Term { client: fence.client(client), fence, ending, transitions }
    }

    /// The client to write with: it refuses writes when the lease is no longer surely held, and cuts those in
    /// flight. See [`NotLeader`](super::NotLeader).
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// For writes to something else than the API server.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Cancelled when the work shall end: the program shuts down, or the lease is lost. If it is lost, the
    /// work is dropped right after.
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// How often the lease had changed hands when the term began. It grows whenever another replica takes over:
    /// a fencing token for systems that check one.
    pub fn transitions(&self) -> i32 {
        self.transitions
    }
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut term = f.debug_struct("Term");
        term.field("fence", &self.fence).field("transitions", &self.transitions).finish_non_exhaustive()
    }
}
