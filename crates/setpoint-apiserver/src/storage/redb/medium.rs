//! Where a store is kept: a file, or in tests a disk that fails.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::{Builder, Database};

use super::fault::Fault;
use super::file::initialize;

/// What redb may keep of the file in memory. Reads are served from the state, so it needs only the pages that
/// a commit changes.
const CACHE: usize = 16 << 20;

/// A place for a store.
pub(super) trait Medium: Debug + Send {
    /// Its name in messages.
    fn path(&self) -> &Path;

    /// Opens the store, or makes it. Whatever is opened has been checked from end to end.
    fn open(&self) -> Result<Database, Fault>;
}

/// A file.
#[derive(Debug)]
pub(super) struct FilePath {
    path: PathBuf,
}

impl FilePath {
    pub(super) fn new(path: &Path) -> FilePath {
        FilePath { path: path.to_owned() }
    }

    /// Makes the store under another name first: a file of the right name is always a whole store.
    fn create(&self) -> Result<(), Fault> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let owner_only = std::fs::Permissions::from_mode(0o600);
        let fresh = tempfile::Builder::new()
            .prefix(".objects-")
            .permissions(owner_only)
            .tempfile_in(folder)
            .map_err(::redb::StorageError::Io)?;
        initialize(&builder().create_file(fresh.reopen().map_err(::redb::StorageError::Io)?)?)?;
        match fresh.persist_noclobber(&self.path) {
            Ok(_) => {}
            // Somebody else was faster, and has it open by now.
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(::redb::StorageError::Io(error.error).into()),
        }
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(::redb::StorageError::Io)?;
        Ok(())
    }
}

impl Medium for FilePath {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> Result<Database, Fault> {
        let open = || OpenOptions::new().read(true).write(true).open(&self.path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create()?;
                open()
            }
            other => other,
        };
        let file = file.map_err(::redb::StorageError::Io)?;
        verified(|builder| builder.create_file(file))
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Opens a database and checks all of it. After a crash redb does that by itself.
pub(super) fn verified(
    open: impl FnOnce(&mut Builder) -> Result<Database, ::redb::DatabaseError>,
) -> Result<Database, Fault> {
    let mut builder = builder();
    let repaired = Arc::new(AtomicBool::new(false));
    builder.set_repair_callback({
        let repaired = Arc::clone(&repaired);
        move |_| repaired.store(true, Ordering::Relaxed)
    });
    let mut database = open(&mut builder)?;
    if !repaired.load(Ordering::Relaxed) && !database.check_integrity()? {
        tracing::warn!("the store was damaged and has been repaired; the newest changes may be missing");
    }
    Ok(database)
}
