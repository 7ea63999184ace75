//! What can go wrong with the file.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::file::KNOWN_FORMAT;
use super::open_error::OpenError;

/// A failure of the file, before it is known who has to be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Database(::redb::Error),
    #[error("it has {0}")]
    Damaged(&'static str),
    #[error("its format {found} is newer than {KNOWN_FORMAT}")]
    Newer { found: u64 },
    #[error("the writer panicked: {0}")]
    Panicked(String),
}

/// redb has an error type an operation; all of them become one here.
impl<E: Into<::redb::Error>> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::Database(error.into())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

impl Fault {
    /// Whether there was no room. If nothing else has failed, the file is as it was before.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Fault::Database(::redb::Error::Io(error)) if is_full(error))
    }

    /// What somebody who wants to open the store has to know.
    pub(super) fn at(self, path: &Path) -> OpenError {
        let path = path.to_owned();
        let error = match self {
            Fault::Newer { found } => return OpenError::Newer { path, found, known: KNOWN_FORMAT },
            Fault::Damaged(what) => return OpenError::Damaged { path, detail: format!("it has {what}") },
            Fault::Panicked(what) => return OpenError::Damaged { path, detail: what },
            Fault::Database(error) => error,
        };
        match error {
            ::redb::Error::DatabaseAlreadyOpen => OpenError::Locked { path },
            ::redb::Error::UpgradeRequired(found) => OpenError::OldDatabase { path, found },
            ::redb::Error::Io(source) if is_full(&source) => OpenError::Full { path },
            ::redb::Error::Io(source) => match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    OpenError::ReadOnly { path, source }
                }
                ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                    OpenError::Damaged { path, detail: source.to_string() }
                }
                _ => OpenError::Io { path, source },
            },
            other => OpenError::Damaged { path, detail: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_what_to_do() {
        let io = |kind: ErrorKind| Fault::from(::redb::StorageError::Io(kind.into()));
        for (fault, advice) in [
            (io(ErrorKind::StorageFull), "the disk of /d/f is full; make some room"),
            (io(ErrorKind::ReadOnlyFilesystem), "/d/f cannot be written; give this user the right to"),
            (io(ErrorKind::UnexpectedEof), "/d/f is damaged"),
            (Fault::Damaged("an unreadable row"), "(it has an unreadable row); restore a backup"),
            (Fault::Newer { found: 9 }, "(format 9, this one knows 2); use that version"),
            (Fault::from(::redb::DatabaseError::DatabaseAlreadyOpen), "in use by another process; stop that"),
            (Fault::from(::redb::DatabaseError::UpgradeRequired(2)), "redb's file format 2"),
        ] {
            let text = fault.at(Path::new("/d/f")).to_string();
            assert!(text.contains(advice) && !text.contains('\n'), "{text}");
        }
    }
}
