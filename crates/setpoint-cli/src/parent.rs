//! The process that has started this one.

use std::time::Duration;

use rustix::process::{Pid, getppid};

/// How often it is looked where the system cannot tell.
const LOOK: Duration = Duration::from_millis(200);

/// The parent process, if it is one that a child should end with: not the first process of the system, which takes over
/// whatever its own parent leaves.
#[derive(Debug)]
pub(crate) struct Parent(Option<Pid>);

impl Parent {
    /// The parent as it is now.
    pub(crate) fn now() -> Parent {
        Parent(getppid().filter(|parent| !parent.is_init()))
    }

    /// Waits until it has ended; for ever if there is none. A thread of it that ends is not its end.
    pub(crate) async fn ended(&self) {
        let Some(parent) = self.0 else { return std::future::pending().await };
        #[cfg(target_os = "linux")]
        if let Ok(ended) = pidfd(parent) {
            // After this look the descriptor is that of the parent, and not of another process with its number.
            if getppid() == Some(parent) && ended.readable().await.is_ok() {
                return;
            }
        }
        while getppid() == Some(parent) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Readable when the process has ended.
#[cfg(target_os = "linux")]
#[allow(
    deprecated,
    reason = "its successor is unsafe; an `OwnedFd` is one descriptor from its beginning to its end"
)]
fn pidfd(process: Pid) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let process = pidfd_open(process, PidfdFlags::NONBLOCK)?;
    tokio::io::unix::AsyncFd::with_interest(process, tokio::io::Interest::READABLE)
}
