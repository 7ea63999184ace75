//! Where a store is kept: a file, or in tests a disk that fails.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::backends::FileBackend;
use ::redb::{Builder, Database};

use super::fault::Fault;
use super::file::initialize;
use super::guard::{Guarded, Latch};
use super::reserve;
use crate::folder;

/// What redb may keep of the file in memory. Reads are served from the state, so it needs only the pages that
/// a commit changes.
const CACHE: usize = 16 << 20;

/// A place for a store.
pub(super) trait Medium: Debug + Send {
    /// Its name in messages.
    fn path(&self) -> &Path;

    /// Opens the store, or makes it. Whatever is opened has been checked from end to end.
    fn open(&self, latch: &Latch) -> Result<Opened, Fault>;

    /// Sets [`reserve::BYTES`] aside, and fails if there is hardly more room than that.
    fn reserve(&self) -> io::Result<()>;

    /// Gives up what is set aside.
    fn release(&self);

    /// Makes the next reader read from the disk, and not what the system remembers of it.
    fn forget_cached(&self);
}

/// A database, and what was found when it was opened.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) condition: Condition,
}

/// What was found when a database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It was closed, and is as it was.
    Whole,
    /// It was not closed. If the last commit was not all there, it was taken back.
    Recovered,
    /// It was not what had been written, and was repaired.
    Repaired,
}

/// When what is written has to be on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before it is answered.
    #[default]
    Synced,
    /// When the system likes. A process that ends loses nothing; a power cut may cost the whole store.
    Unsynced,
}

/// A file.
#[derive(Debug)]
pub(super) struct FilePath {
    path: PathBuf,
    durability: Durability,
}

impl FilePath {
    pub(super) fn new(path: &Path, durability: Durability) -> FilePath {
        FilePath { path: path.to_owned(), durability }
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Makes the store under another name first: a file of the right name is always a whole store.
    fn create(&self) -> Result<(), Fault> {
        let fresh = fresh(self.folder()).map_err(::redb::StorageError::Io)?;
        let backend = FileBackend::new(fresh.reopen().map_err(::redb::StorageError::Io)?)?;
        let backend = Guarded::new(backend, &Latch::default(), self.durability);
        initialize(&builder().create_with_backend(backend)?)?;
        match fresh.persist_noclobber(&self.path) {
            Ok(_) => {}
            // Somebody else was faster, and has it open by now.
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(::redb::StorageError::Io(error.error).into()),
        }
        match self.durability {
            Durability::Synced => Ok(folder::sync(self.folder()).map_err(::redb::StorageError::Io)?),
            Durability::Unsynced => Ok(()),
        }
    }
}

/// A file that becomes a store when it is complete.
pub(super) fn fresh(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let owner_only = std::fs::Permissions::from_mode(0o600);
    tempfile::Builder::new().prefix(".objects-").permissions(owner_only).tempfile_in(folder)
}

impl Medium for FilePath {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, latch: &Latch) -> Result<Opened, Fault> {
        let open = || OpenOptions::new().read(true).write(true).open(&self.path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create()?;
                open()
            }
            other => other,
        };
        let file = file.map_err(::redb::StorageError::Io)?;
        let backend = Guarded::new(FileBackend::new(file)?, latch, self.durability);
        verified(|builder| builder.create_with_backend(backend))
    }

    fn reserve(&self) -> io::Result<()> {
        if self.durability == Durability::Unsynced {
            // Whoever can lose it all does not need to make room by deletes.
            return Ok(());
        }
        reserve::make(&self.path.with_extension("reserve"))
    }

    fn release(&self) {
        reserve::give_up(&self.path.with_extension("reserve"));
    }

    fn forget_cached(&self) {
        let forgotten = File::open(&self.path)
            .and_then(|file| Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?));
        if let Err(error) = forgotten {
            tracing::warn!(%error, path = %self.path.display(), "the page cache still has the file; reboot before you start again");
        }
    }
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Opens a database and checks all of it. After a crash redb does that by itself.
pub(super) fn verified(
    open: impl FnOnce(&mut Builder) -> Result<Database, ::redb::DatabaseError>,
) -> Result<Opened, Fault> {
    let mut builder = builder();
    let recovered = Arc::new(AtomicBool::new(false));
    builder.set_repair_callback({
        let recovered = Arc::clone(&recovered);
        move |_| recovered.store(true, Ordering::Relaxed)
    });
    let mut database = open(&mut builder)?;
    let condition = if recovered.load(Ordering::Relaxed) {
        Condition::Recovered
    } else if database.check_integrity()? {
        Condition::Whole
    } else {
        tracing::warn!("the store was damaged and has been repaired; the newest changes may be missing");
        Condition::Repaired
    };
    Ok(Opened { database, condition })
}
