//! Making a store from a backup.

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ::redb::{Database, ReadableDatabase, ReadableTable};
use jiff::Timestamp;

use super::super::Revision;
use super::super::backup::{BackupError, Reader, Summary};
use super::fault::Fault;
use super::file::{COMPACTED, FLOOR, FORGOTTEN, FORMAT, LOG, POSITION, REVISION};
use super::medium::{builder, fresh};
use super::open_error::OpenError;
use super::{FILE, row};
use crate::folder;

/// How far revisions are ahead of those in the backup, at least.
const LEAP: Revision = 1_000_000_000;
/// And how much further for each second since it was made: more than a server can write.
const LEAP_A_SECOND: Revision = 100_000;
/// How many bytes of rows share a transaction.
const TRANSACTION: usize = 8 << 20;

/// Why a backup was not restored. Whatever was in the folder is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error("{} cannot be restored", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BackupError,
    },
    /// There is a store already.
    #[error("{} exists already; choose another folder, or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The new store cannot be made.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// What was restored.
#[derive(Debug)]
#[non_exhaustive]
pub struct Restored {
    /// What the backup had.
    pub backup: Summary,
    /// Where the store goes on. No client has seen this revision or a later one.
    pub revision: u64,
    /// Where the store is that was there before.
    pub replaced: Option<PathBuf>,
}

/// Makes a store in `place` from a backup. With `force` it takes the place of one that is there, which is kept.
pub(crate) fn restore(
    backup: &Path,
    place: &Path,
    force: bool,
    now: Timestamp,
) -> Result<Restored, RestoreError> {
    let unusable = |source| RestoreError::Backup { path: backup.to_owned(), source };
    let mut file = File::open(backup).map_err(|error| unusable(error.into()))?;
    let summary = Reader::new(BufReader::new(&file)).and_then(Reader::verify).map_err(unusable)?;
    let target = place.join(FILE);
    let io = |source| RestoreError::Store(OpenError::Io { path: target.clone(), source });
    let exists = is_free(&target)?;
    if exists && !force {
        return Err(RestoreError::Exists { path: target });
    }
    folder::create(place)
        .map_err(|source| OpenError::CreateFolder { folder: place.to_owned(), source })
        .map_err(RestoreError::Store)?;

    let fresh = fresh(place).map_err(io)?;
    let revision = ahead_of(&summary, now);
    let mut copied = || -> Result<(), CopyError> {
        let database = builder().create_file(fresh.reopen()?).map_err(Fault::from)?;
        file.seek(SeekFrom::Start(0))?;
        fill(&database, Reader::new(BufReader::new(&file))?, revision)?;
        file.seek(SeekFrom::Start(0))?;
        compare(&database, Reader::new(BufReader::new(&file))?)
    };
    copied().map_err(|trouble| match trouble {
        CopyError::Backup(source) => unusable(source),
        CopyError::Store(fault) => RestoreError::Store(fault.at(&target)),
    })?;
    fresh.as_file().sync_all().map_err(io)?;

    let mut replaced = None;
    if exists {
        let aside = place.join(format!("{FILE}.replaced-{}", now.as_second()));
        // A second name, so that there is a store under the first one at every moment.
        std::fs::hard_link(&target, &aside).map_err(io)?;
        fresh.persist(&target).map_err(|error| io(error.error))?;
        replaced = Some(aside);
    } else {
        fresh.persist_noclobber(&target).map_err(|error| io(error.error))?;
    }
    folder::sync(place).map_err(io)?;
    Ok(Restored { backup: summary, revision, replaced })
}

/// Which side of the copy has failed.
enum CopyError {
    Backup(BackupError),
    Store(Fault),
}

impl From<BackupError> for CopyError {
    fn from(error: BackupError) -> CopyError {
        CopyError::Backup(error)
    }
}

impl From<Fault> for CopyError {
    fn from(fault: Fault) -> CopyError {
        CopyError::Store(fault)
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> CopyError {
        CopyError::Store(::redb::StorageError::Io(error).into())
    }
}

/// Whether there is a store. It is an error if a server uses it.
fn is_free(target: &Path) -> Result<bool, OpenError> {
    let path = || target.to_owned();
    let file = match File::open(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        outcome => outcome.map_err(|source| OpenError::Io { path: path(), source })?,
    };
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path: path(), source }),
    }
}

/// A revision that the store which the backup was made from cannot have reached since.
fn ahead_of(backup: &Summary, now: Timestamp) -> Revision {
    let seconds = u64::try_from(now.as_second().saturating_sub(backup.made.as_second())).unwrap_or(0);
    backup.revision.saturating_add(LEAP).saturating_add(seconds.saturating_mul(LEAP_A_SECOND))
}

/// Every object is of the time before history, and all of that is given up.
fn fill(database: &Database, mut backup: Reader<impl io::Read>, revision: Revision) -> Result<(), CopyError> {
    let mut row = Vec::new();
    let mut is_over = false;
    while !is_over {
        let transaction = database.begin_write().map_err(Fault::from)?;
        {
            let mut log = transaction.open_table(LOG).map_err(Fault::from)?;
            let mut bytes = 0;
            while bytes < TRANSACTION {
                let Some(revision) = backup.next(&mut row)? else {
                    is_over = true;
                    break;
                };
                if row::decode(revision, &row, |name| name.into()).is_none() {
                    return Err(BackupError::Damaged("an object is unreadable").into());
                }
                log.insert(revision, row.as_slice()).map_err(Fault::from)?;
                bytes += row.len();
            }
        }
        transaction.commit().map_err(Fault::from)?;
    }
    // Only now: without a format it is no store.
    let transaction = database.begin_write().map_err(Fault::from)?;
    {
        transaction.open_table(FORGOTTEN).map_err(Fault::from)?;
        let mut position = transaction.open_table(POSITION).map_err(Fault::from)?;
        let numbers =
            [(FORMAT, backup.format), (REVISION, revision), (FLOOR, revision), (COMPACTED, revision)];
        for (name, number) in numbers {
            position.insert(name, number).map_err(Fault::from)?;
        }
    }
    transaction.commit().map_err(Fault::from)?;
    Ok(())
}

/// Reads both again: the store has what the backup has, and nothing else.
fn compare(database: &Database, mut backup: Reader<impl io::Read>) -> Result<(), CopyError> {
    let transaction = database.begin_read().map_err(Fault::from)?;
    let log = transaction.open_table(LOG).map_err(Fault::from)?;
    let mut row = Vec::new();
    for entry in log.iter().map_err(Fault::from)? {
        let (revision, stored) = entry.map_err(Fault::from)?;
        if backup.next(&mut row)? != Some(revision.value()) || row != stored.value() {
            return Err(Fault::Damaged("something else than the backup").into());
        }
    }
    match backup.next(&mut row)? {
        None => Ok(()),
        Some(_) => Err(Fault::Damaged("less than the backup").into()),
    }
}
