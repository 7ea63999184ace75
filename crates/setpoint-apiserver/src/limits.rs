//! How much the server holds for its clients at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::status::{Result, Status};

/// Requests at the same time that are not watches. Each may hold a body of a few MiB.
const REQUESTS: usize = 600;
/// Watches at the same time.
const WATCHES: usize = 20_000;

/// Places for requests and for watches. Whoever finds none is told to come back.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new(REQUESTS, WATCHES)
    }
}

impl Limits {
    pub(crate) fn new(requests: usize, watches: usize) -> Limits {
        Limits { requests: Arc::new(Semaphore::new(requests)), watches: Arc::new(Semaphore::new(watches)) }
    }

    /// A place for a request.
    pub(crate) fn request(&self) -> Result<OwnedSemaphorePermit> {
        take(&self.requests, "too many requests at the same time, please try again later")
    }

    /// A place for a watch.
    pub(crate) fn watch(&self) -> Result<OwnedSemaphorePermit> {
        take(&self.watches, "too many watches at the same time, please try again later")
    }
}

fn take(places: &Arc<Semaphore>, message: &str) -> Result<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_owned().map_err(|_| Status::too_many_requests(message, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_no_place_is_told_when_to_come_back() {
        let limits = Limits::new(1, 0);
        let place = limits.request().unwrap();
        let refused = limits.request().unwrap_err();
        assert_eq!((refused.code.as_u16(), refused.details.unwrap().retry_after_seconds), (429, 1));
        drop(place);
        assert!(limits.request().is_ok());
        assert_eq!(limits.watch().unwrap_err().code, 429);
    }
}
