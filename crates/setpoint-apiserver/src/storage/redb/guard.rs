//! Noticing a sync that fails.

use std::io;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use ::redb::{BackendError, StorageBackend};

use super::medium::Durability;

/// Remembers the first sync that failed. Linux takes the pages of a failed sync for written: the next sync succeeds
/// without them, and readers see data that no disk has. So there is no way on.
#[derive(Clone, Debug, Default)]
pub(super) struct Latch(Arc<OnceLock<String>>);

impl Latch {
    /// Why a sync has failed, if one has.
    pub(super) fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn check(&self) -> io::Result<()> {
        self.why().map_or(Ok(()), |why| Err(io::Error::other(format!("an earlier sync has failed: {why}"))))
    }
}

/// A backend that changes nothing more once a sync has failed.
#[derive(Debug)]
pub(super) struct Guarded<B> {
    backend: B,
    latch: Latch,
    durability: Durability,
}

impl<B> Guarded<B> {
    pub(super) fn new(backend: B, latch: &Latch, durability: Durability) -> Guarded<B> {
        Guarded { backend, latch: latch.clone(), durability }
    }
}

impl<B: StorageBackend> StorageBackend for Guarded<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.latch.check()?;
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.latch.check()?;
        if self.durability == Durability::Unsynced {
            return Ok(());
        }
        self.backend.sync_data().inspect_err(|error| {
            // The first one is the one to tell of.
            let _set = self.latch.0.set(error.to_string());
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.latch.check()?;
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::redb::backends::InMemoryBackend;

    use super::*;

    /// Counts the syncs that reach it.
    #[derive(Debug, Default)]
    struct Counting {
        memory: InMemoryBackend,
        syncs: Arc<AtomicUsize>,
    }

    impl StorageBackend for Counting {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.memory.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.memory.write(offset, data)
        }
    }

    #[test]
    fn an_unsynced_store_asks_for_no_sync() {
        for (durability, is_synced) in [(Durability::Synced, true), (Durability::Unsynced, false)] {
            let backend = Counting::default();
            let syncs = Arc::clone(&backend.syncs);
            let guarded = Guarded::new(backend, &Latch::default(), durability);
            let database = ::redb::Builder::new().create_with_backend(guarded).unwrap();
            database.begin_write().unwrap().commit().unwrap();
            drop(database);
            assert_eq!(syncs.load(Ordering::Relaxed) > 0, is_synced, "{durability:?}");
        }
    }
}
