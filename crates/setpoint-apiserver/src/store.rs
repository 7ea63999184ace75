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
#[cfg(feature = "etcd")]
use setpoint_env::Env;

use crate::authorize;
use crate::folder;
use crate::response::Body;
use crate::server::Core;
use crate::status::{GroupResource, Result as Answer, Status};
#[cfg(feature = "etcd")]
pub use crate::storage::Copied;
pub use crate::storage::{BackupError, OpenError, RestoreError, Restored, Summary};
use crate::storage::{Encoder, Reader};
#[cfg(feature = "etcd")]
use crate::storage::{EtcdError, EtcdOptions};
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

/// Everything in an etcd as a backup, piece by piece.
#[cfg(feature = "etcd")]
pub async fn backup_of_etcd(
    etcd: &EtcdOptions,
    env: &Env,
) -> Result<impl Iterator<Item = Bytes> + use<>, EtcdError> {
    Ok(Encoder::new(crate::storage::copy::read(etcd, env).await?, env.now()))
}

/// Copies the store in `folder`, which no server may use, into an etcd that has nothing else. What is there already is
/// skipped, so a copy that was interrupted can be repeated. `progress` is told how many objects are there, and of how many.
#[cfg(feature = "etcd")]
pub async fn copy_to_etcd(
    folder: &Path,
    etcd: &EtcdOptions,
    env: &Env,
    progress: impl FnMut(usize, usize),
) -> Result<Copied, CopyError> {
    let snapshot = crate::storage::snapshot_of(folder)?;
    Ok(crate::storage::copy::write(etcd, snapshot, env, progress).await?)
}

/// The same from one etcd to another.
#[cfg(feature = "etcd")]
pub async fn copy_between_etcds(
    from: &EtcdOptions,
    to: &EtcdOptions,
    env: &Env,
    progress: impl FnMut(usize, usize),
) -> Result<Copied, CopyError> {
    let snapshot = crate::storage::copy::read(from, env).await?;
    Ok(crate::storage::copy::write(to, snapshot, env, progress).await?)
}

/// Why a copy was not made.
#[cfg(feature = "etcd")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// etcd cannot be read or written.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
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
