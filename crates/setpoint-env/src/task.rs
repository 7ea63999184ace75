//! A task that its owner stops.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

/// A running task. Dropping it cancels the task; awaiting it gives the task's result.
#[derive(Debug)]
#[must_use = "dropping a Task cancels it"]
pub struct Task<T> {
    handle: JoinHandle<T>,
}

impl<T> Task<T> {
    pub(crate) fn new(handle: JoinHandle<T>) -> Task<T> {
        Task { handle }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Cancels the task and waits until it is gone. A panic inside the task is not re-raised.
    pub async fn stop(mut self) {
        self.handle.abort();
        let _ended = (&mut self.handle).await;
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(cx)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}
