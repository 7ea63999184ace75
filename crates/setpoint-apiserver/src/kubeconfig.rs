//! The file that tells kubectl and other clients where the server is and who they are.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::pki::{CertificateAuthority, Identity};

/// The name of the cluster, the user and the context.
const NAME: &str = "setpoint";
/// Larger files are not ours.
const MAX_SIZE: u64 = 1024 * 1024;

/// Why the kubeconfig was not written, read or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its folder cannot be made.
    #[error("cannot create the folder {}", folder.display())]
    CreateFolder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a file already, and it is not one of ours: it may hold the way to other clusters.
    #[error("{} exists and has other clusters than {NAME:?} in it", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
}

/// A kubeconfig with one cluster, one user and one context, all of the name `setpoint`. It has everything
/// in it: no other files are needed.
#[derive(Clone)]
pub struct Kubeconfig {
    yaml: String,
}

impl Kubeconfig {
    /// A kubeconfig for the server at `url`, whose certificate `authority` has issued, as `client`.
    pub fn new(url: &str, authority: &CertificateAuthority, client: &Identity) -> Kubeconfig {
        let client = client.to_pem();
        let user = format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            BASE64_STANDARD.encode(client.certificate),
            BASE64_STANDARD.encode(client.key),
        );
        Kubeconfig::with_user(url, authority, &user)
    }

    /// The same as whoever has this bearer token.
    pub fn with_token(url: &str, authority: &CertificateAuthority, token: &str) -> Kubeconfig {
        Kubeconfig::with_user(url, authority, &format!("token: {token:?}"))
    }

    fn with_user(url: &str, authority: &CertificateAuthority, user: &str) -> Kubeconfig {
        let yaml = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {NAME}\n  \
               cluster:\n    \
                 server: {url:?}\n    \
                 certificate-authority-data: {authority}\n\
             users:\n\
             - name: {NAME}\n  \
               user:\n    \
                 {user}\n\
             contexts:\n\
             - name: {NAME}\n  \
               context:\n    \
                 cluster: {NAME}\n    \
                 user: {NAME}\n\
             current-context: {NAME}\n",
            authority = BASE64_STANDARD.encode(authority.certificate_pem()),
        );
        Kubeconfig { yaml }
    }

    /// The text of the file.
    pub fn as_yaml(&self) -> &str {
        &self.yaml
    }

    /// Writes the file, so that a reader sees all of it or none, and nobody but its owner may read it. A
    /// missing folder is made, for the owner alone. An older file is replaced if it is one of ours.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        check_ours(path)?;
        let folder = folder_of(path);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| Error::CreateFolder { folder: folder.to_owned(), source })?;
        self.write_in(folder, path).map_err(|source| Error::Write { path: path.to_owned(), source })
    }

    fn write_in(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let owner_only = std::fs::Permissions::from_mode(0o600);
        let mut file =
            tempfile::Builder::new().prefix(".kubeconfig-").permissions(owner_only).tempfile_in(folder)?;
        file.write_all(self.yaml.as_bytes())?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes the file if it still is what [`write`](Kubeconfig::write) has written. Says whether it did.
    pub fn remove_if_unchanged(&self, path: &Path) -> Result<bool, Error> {
        if read(path)?.is_none_or(|text| text != self.yaml) {
            return Ok(false);
        }
        remove(path)
    }
}

/// Removes what an earlier server left at `path`, so that the file is there only while it is of use. A file
/// that is not ours stays, and is an error.
pub fn remove_stale(path: &Path) -> Result<(), Error> {
    check_ours(path)?;
    remove(path)?;
    Ok(())
}

fn remove(path: &Path) -> Result<bool, Error> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::Write { path: path.to_owned(), source }),
    }
}

/// The folder of a file; a bare name is in the current one.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a file that may be the only way to somebody's other clusters.
fn check_ours(path: &Path) -> Result<(), Error> {
    match read(path)? {
        Some(text) if !is_ours(&text) => Err(Error::NotOurs { path: path.to_owned() }),
        _ => Ok(()),
    }
}

fn is_ours(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        clusters: Vec<Cluster>,
    }
    #[derive(Deserialize)]
    struct Cluster {
        name: String,
    }
    text.trim().is_empty()
        || serde_saphyr::from_str::<Config>(text)
            .is_ok_and(|config| config.clusters.iter().all(|cluster| cluster.name == NAME))
}

/// The text of the file, or `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>, Error> {
    let result = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    match result {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use setpoint_env::Env;

    use super::*;
    use crate::User;

    fn kubeconfig() -> Kubeconfig {
        let ca = CertificateAuthority::generate(&Env::system()).unwrap();
        Kubeconfig::new("https://127.0.0.1:6443", &ca, &ca.issue_client(&User::admin()).unwrap())
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn clients_understand_it() {
        let config = kube::config::Kubeconfig::from_yaml(kubeconfig().as_yaml()).unwrap();
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(config.current_context.as_deref(), Some(NAME));
    }

    #[test]
    fn only_its_owner_may_read_it_and_no_other_file_stays_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/kubeconfig");
        kubeconfig().write(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_older_one_of_ours_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let (old, new) = (kubeconfig(), kubeconfig());
        old.write(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        new.write(&path).unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), new.yaml);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_file_with_other_clusters_is_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in
            ["clusters: [{name: production}]", "clusters: [{name: setpoint}, {name: b}]", "a: [", "\u{0}"]
        {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(kubeconfig().write(&path), Err(Error::NotOurs { .. })), "{text}");
            assert!(matches!(remove_stale(&path), Err(Error::NotOurs { .. })), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn it_is_removed_only_while_it_is_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let (mine, newer) = (kubeconfig(), kubeconfig());
        assert!(!mine.remove_if_unchanged(&path).unwrap());
        newer.write(&path).unwrap();
        assert!(!mine.remove_if_unchanged(&path).unwrap());
        assert!(newer.remove_if_unchanged(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = kubeconfig().write(&file.join("below/kubeconfig")).unwrap_err();
        assert!(matches!(error, Error::Read { .. } | Error::CreateFolder { .. }), "{error:?}");
        let error = kubeconfig().write(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Read { .. }), "{error:?}");
    }
}
