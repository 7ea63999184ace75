//! Backups of a store, and stores from backups.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use jiff::Timestamp;
//! use setpoint_apiserver::{ApiServer, store};
//!
//! let folder = tempfile::tempdir()?;
//! let server = ApiServer::builder().open(folder.path().join("data")).await?;
//! let file = folder.path().join("backup");
//! let mut backup = store::BackupFile::create(&file)?;
//! for piece in server.backup() {
//!     std::io::Write::write_all(&mut backup, &piece)?;
//! }
//! let summary = backup.finish()?;
//! server.close().await;
//!
//! let restored = store::restore(&file, &folder.path().join("again"), false, Timestamp::now())?;
//! assert_eq!(restored.backup, summary);
//! assert!(restored.revision > summary.revision);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;

use crate::authorize;
use crate::folder;
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result as Answer, Status};
pub use crate::storage::{BackupError, OpenError, RestoreError, Restored, Summary};
use crate::storage::{Encoder, Reader};
use crate::user::User;

/// Where a running server gives out a backup of itself, to members of `system:masters` alone.
pub const BACKUP_PATH: &str = "/setpoint/backup";

/// The backup of a store in `folder` that no server uses, piece by piece.
pub fn backup(folder: &Path, now: Timestamp) -> Result<impl Iterator<Item = Bytes>, OpenError> {
    Ok(Encoder::new(crate::storage::snapshot_of(folder)?, now))
}

/// Makes a store in `folder` from a backup. If there is one already, it is an error; with `force` that one is kept under
/// another name. Revisions go on far ahead of the backup's, so that no client has seen them.
pub fn restore(backup: &Path, folder: &Path, force: bool, now: Timestamp) -> Result<Restored, RestoreError> {
    crate::storage::restore(backup, folder, force, now)
}

/// Reads a backup from end to end, and says what is in it.
pub fn verify(backup: &Path) -> Result<Summary, BackupError> {
    Reader::new(BufReader::new(File::open(backup)?))?.verify()
}

/// A backup that is being written. It gets its name when it is complete and verified, and durable.
#[derive(Debug)]
pub struct BackupFile {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl BackupFile {
    /// Begins a backup that will be at `path`.
    pub fn create(path: &Path) -> io::Result<BackupFile> {
        let file = tempfile::Builder::new().prefix(".backup-").tempfile_in(folder_of(path))?;
        Ok(BackupFile { file, path: path.to_owned() })
    }

    /// Reads all of it again, and gives it its name.
    pub fn finish(mut self) -> Result<Summary, BackupError> {
        self.file.flush()?;
        let summary = verify(self.file.path())?;
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).map_err(|error| error.error)?;
        folder::sync(folder_of(&self.path))?;
        Ok(summary)
    }
}

impl Write for BackupFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The backup of a server, piece by piece.
pub(crate) fn pieces(core: &Core) -> impl Iterator<Item = Bytes> + Send + use<> {
    Encoder::new(core.storage.snapshot(), core.env.now())
}

/// Whether a path about the server is that of its backup.
pub(crate) fn is_backup(segments: &[String]) -> bool {
    segments.iter().map(String::as_str).eq(BACKUP_PATH.split('/').skip(1))
}

/// Answers a request for a backup. It has every secret in it, so no role can allow it.
pub(crate) fn respond(core: &Core, user: &User) -> Answer<Response<Body>> {
    if !authorize::is_master(user) {
        let what = GroupResource { group: "", resource: "" };
        return Err(Status::forbidden(what, "", "only members of system:masters may make a backup"));
    }
    let mut response = Response::new(Body::stream(futures::stream::iter(pieces(core))));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
