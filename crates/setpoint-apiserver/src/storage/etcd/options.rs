//! Where an etcd cluster is, and how to talk to it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::storage::NotStored;

/// What kube-apiserver begins all keys with, unless it is told otherwise.
const PREFIX: &str = "/registry";

/// Where an etcd cluster is, and how to talk to it.
///
/// ```no_run
/// use setpoint_apiserver::{ApiServer, EtcdOptions};
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let etcd = EtcdOptions::new(["https://10.0.0.1:2379", "https://10.0.0.2:2379"])
///     .ca_file("ca.crt".as_ref())?
///     .certificate_files("client.crt".as_ref(), "client.key".as_ref())?;
/// let server = ApiServer::builder().connect(&etcd).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct EtcdOptions {
    endpoints: Vec<String>,
    prefix: String,
    pub(super) ca: Option<Vec<u8>>,
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) user: Option<(String, String)>,
}

impl EtcdOptions {
    /// A cluster with these members: `http://127.0.0.1:2379`.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> EtcdOptions {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: PREFIX.to_owned(),
            ca: None,
            identity: None,
            user: None,
        }
    }

    /// What all keys begin with; `/registry` unless set, as in kube-apiserver.
    pub fn prefix(self, prefix: impl Into<String>) -> EtcdOptions {
        EtcdOptions { prefix: prefix.into(), ..self }
    }

    /// The authority of the members' certificates, a PEM file. Unless set, those of this machine.
    pub fn ca_file(self, file: &Path) -> Result<EtcdOptions, EtcdError> {
        Ok(EtcdOptions { ca: Some(read(file)?), ..self })
    }

    /// The certificate that this server shows, and its key, both PEM files.
    pub fn certificate_files(self, certificate: &Path, key: &Path) -> Result<EtcdOptions, EtcdError> {
        Ok(EtcdOptions { identity: Some((read(certificate)?, read(key)?)), ..self })
    }

    /// The user of etcd that this server is.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> EtcdOptions {
        EtcdOptions { user: Some((name.into(), password.into())), ..self }
    }

    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// What all keys begin with, with a slash at both ends.
    pub(super) fn root(&self) -> String {
        match self.prefix.trim_matches('/') {
            "" => "/".to_owned(),
            prefix => format!("/{prefix}/"),
        }
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest is secret.
        let EtcdOptions { endpoints, prefix, .. } = self;
        f.debug_struct("EtcdOptions")
            .field("endpoints", endpoints)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    std::fs::read(path).map_err(|source| EtcdError::File { path: path.to_owned(), source })
}

/// Why a server cannot use etcd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// A file of certificates or keys cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The options make no sense.
    #[error("{0}; check the addresses of etcd and its certificates")]
    Options(String),
    /// It cannot be reached.
    #[error(
        "etcd at {endpoints} cannot be used: {why}; check that it runs, its address, certificates and credentials"
    )]
    Unreachable {
        /// The members that were tried.
        endpoints: String,
        /// Why.
        why: String,
    },
    /// A copy could not be made.
    #[error("the copy is not complete: {0}")]
    Copy(String),
    /// What a server needs at first could not be written.
    #[error("what a new server needs could not be written: {0}")]
    NotStored(String),
}

impl From<NotStored> for EtcdError {
    fn from(error: NotStored) -> EtcdError {
        EtcdError::NotStored(error.to_string())
    }
}
