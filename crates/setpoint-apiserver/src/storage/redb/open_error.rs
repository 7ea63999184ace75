//! Why a store cannot be opened.

use std::io;
use std::path::PathBuf;

use super::super::NotStored;

/// Why a store cannot be opened. The message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its folder cannot be made.
    #[error("cannot create the folder {}", folder.display())]
    CreateFolder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key of the tokens of service accounts cannot be read or written.
    #[error(transparent)]
    SigningKey(crate::pki::FolderError),
    /// There is nothing to open.
    #[error("there is no store at {}; name the folder of setpoint up --data", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{} is in use by another process; stop that one", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A newer version has written it.
    #[error(
        "{} was written by a newer version of setpoint (format {found}, this one knows {known}); use that version",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that this version can read.
        known: u64,
    },
    /// The database under it is of a version that this one cannot read.
    #[error(
        "{} is in redb's file format {found}, which no version of setpoint has written; open it with redb 2.6 to \
         upgrade it, or move it away to start empty",
        path.display()
    )]
    OldDatabase {
        /// The file.
        path: PathBuf,
        /// redb's file format.
        found: u8,
    },
    /// The file is not what was written.
    #[error("{} is damaged or no store of setpoint ({detail}); restore a backup (setpoint store restore), or move it away to start empty", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// It may not be written.
    #[error("{} cannot be written; give this user the right to", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no room on the disk.
    #[error("the disk of {} is full; make some room", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The first objects cannot be stored.
    #[error("cannot store the first objects: {why}")]
    NotStored {
        /// Why.
        why: String,
    },
    /// The system gives no thread to write with.
    #[error("cannot start a thread")]
    Thread {
        /// Why.
        source: io::Error,
    },
}

impl From<NotStored> for OpenError {
    fn from(error: NotStored) -> OpenError {
        OpenError::NotStored { why: error.why.to_string() }
    }
}
