//! Certificates that are the same after a restart.

use std::fs::Permissions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use setpoint_env::{Env, Later};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CertificateAuthority, DAY, Error, Identity, Pem, SERVER_NAMES, peer};
use crate::folder;
use crate::{KeyError, SigningKey, User};

/// A certificate that ends sooner is replaced: a server may run for weeks before it is started again.
const LEAST_LIFE: Duration = Duration::from_secs(60 * DAY.as_secs());

/// Why there are no certificates in a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder cannot be made.
    #[error("cannot create the folder {}", folder.display())]
    CreateFolder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stored authority cannot be used. It is not replaced by itself: clients trust it.
    #[error(
        "the certificate authority in {} cannot be used; restore it, or remove it and let clients trust a new one",
        folder.display()
    )]
    Authority {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: Error,
    },
    /// The stored key of the tokens of service accounts cannot be used. It is not replaced by itself: that
    /// would void every token.
    #[error("the key in {} cannot be used; restore it, or remove it and let clients ask for new tokens", path.display())]
    SigningKey {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// There is no certificate to store.
    #[error(transparent)]
    Issue(#[from] Error),
}

/// A folder with an authority and what it has issued: `ca`, `server` and `admin`, each a `.crt` and a `.key`
/// that only their owner can read.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_apiserver::User;
/// use setpoint_apiserver::pki::Folder;
/// use setpoint_env::Env;
///
/// let place = tempfile::tempdir()?;
/// let folder = Folder::open(&Env::system(), place.path())?;
/// let admin = folder.client("admin", &User::admin())?;
///
/// let again = Folder::open(&Env::system(), place.path())?;
/// assert_eq!(again.client("admin", &User::admin())?.to_pem(), admin.to_pem());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    env: Env,
    authority: CertificateAuthority,
}

impl Folder {
    /// Opens a folder; it, and an authority in it, is made if there is none.
    pub fn open(env: &Env, path: &Path) -> Result<Folder, FolderError> {
        make(path)?;
        let unusable = |source| FolderError::Authority { folder: path.to_owned(), source };
        let authority = match load(path, "ca")? {
            Some(pem) => CertificateAuthority::from_pem(env, pem).map_err(unusable)?,
            None => {
                let authority = CertificateAuthority::generate(env)?;
                store(path, "ca", &authority.to_pem())?;
                authority
            }
        };
        Ok(Folder { path: path.to_owned(), env: env.clone(), authority })
    }

    /// The authority.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The authority, for those who need no more of the folder.
    #[must_use]
    pub fn into_authority(self) -> CertificateAuthority {
        self.authority
    }

    /// A server certificate as [`CertificateAuthority::issue_server`] makes it: the stored one, if it is for
    /// all the names and good for two more months.
    pub fn server<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Identity, FolderError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let is_for_all = |certificate: &X509Certificate<'_>| {
            let has = names_of(certificate);
            let wanted = SERVER_NAMES.into_iter().chain(names.iter().map(String::as_str));
            wanted.into_iter().all(|name| has.iter().any(|other| other == name))
        };
        self.identity("server", is_for_all, || self.authority.issue_server(names.clone()))
    }

    /// A client certificate as [`CertificateAuthority::issue_client`] makes it: the one that is stored by
    /// this name, if it is this user's and good for two more months.
    pub fn client(&self, name: &str, user: &User) -> Result<Identity, FolderError> {
        let is_users =
            |certificate: &X509Certificate<'_>| peer::user_of(certificate.as_raw()).as_ref() == Some(user);
        self.identity(name, is_users, || self.authority.issue_client(user))
    }

    fn identity(
        &self,
        name: &str,
        fits: impl FnOnce(&X509Certificate<'_>) -> bool,
        issue: impl FnOnce() -> Result<Identity, Error>,
    ) -> Result<Identity, FolderError> {
        let stored = load(&self.path, name)?.and_then(|pem| Identity::from_pem(pem).ok());
        if let Some(identity) = stored
            && identity.is_whole()
            && let Ok((_, certificate)) = X509Certificate::from_der(identity.certificate_der())
            && self.is_good(&certificate)
            && fits(&certificate)
        {
            return Ok(identity);
        }
        let identity = issue()?;
        store(&self.path, name, &identity.to_pem())?;
        Ok(identity)
    }

    /// Whether our authority has issued it, and it holds for a while.
    fn is_good(&self, certificate: &X509Certificate<'_>) -> bool {
        let Ok((_, authority)) = X509Certificate::from_der(self.authority.certificate_der()) else {
            return false;
        };
        let now = self.env.now();
        let validity = certificate.validity();
        certificate.verify_signature(Some(authority.public_key())).is_ok()
            && validity.not_before.timestamp() <= now.as_second()
            && validity.not_after.timestamp() >= now.later(LEAST_LIFE).as_second()
    }
}

/// The key of the tokens of service accounts in a folder: the stored one, or a new one.
pub(crate) fn signing_key(folder: &Path) -> Result<SigningKey, FolderError> {
    make(folder)?;
    let path = folder.join("sa.key");
    match std::fs::read_to_string(&path) {
        Ok(text) => SigningKey::from_pem(&text).map_err(|source| FolderError::SigningKey { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = SigningKey::generate();
            write(folder, &path, &key.to_pem()).map_err(|source| FolderError::Write { path, source })?;
            Ok(key)
        }
        Err(source) => Err(FolderError::Read { path, source }),
    }
}

/// Makes the folder, for its owner alone.
fn make(path: &Path) -> Result<(), FolderError> {
    folder::create(path).map_err(|source| FolderError::CreateFolder { folder: path.to_owned(), source })
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    extension.value.general_names.iter().filter_map(text).collect()
}

/// The stored pair; none if there is no certificate.
fn load(folder: &Path, name: &str) -> Result<Option<Pem>, FolderError> {
    let read = |extension| {
        let path = folder.join(name).with_extension(extension);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FolderError::Read { path, source }),
        }
    };
    let Some(certificate) = read("crt")? else { return Ok(None) };
    Ok(Some(Pem { certificate, key: read("key")?.unwrap_or_default() }))
}

/// The certificate comes last: if it is there, so is its key.
fn store(folder: &Path, name: &str, pem: &Pem) -> Result<(), FolderError> {
    for (extension, text) in [("key", &pem.key), ("crt", &pem.certificate)] {
        let path = folder.join(name).with_extension(extension);
        write(folder, &path, text).map_err(|source| FolderError::Write { path, source })?;
    }
    Ok(())
}

fn write(place: &Path, path: &Path, text: &str) -> io::Result<()> {
    let owner_only = Permissions::from_mode(0o600);
    let mut file = tempfile::Builder::new().prefix(".pki-").permissions(owner_only).tempfile_in(place)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    folder::sync(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Folder {
        Folder::open(&Env::system(), folder).unwrap()
    }

    #[test]
    fn what_was_issued_is_used_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pki");
        let (first, second) = (open(&path), open(&path));
        assert_eq!(first.authority().to_pem(), second.authority().to_pem());
        let server = first.server(["api.example", "192.0.2.7"]).unwrap();
        for names in [&["api.example", "192.0.2.7"][..], &["192.0.2.7"], &[]] {
            assert_eq!(second.server(names.iter().copied()).unwrap().to_pem(), server.to_pem(), "{names:?}");
        }
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
    }

    #[test]
    fn a_certificate_that_does_not_fit_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let folder = open(place.path());
        let server = folder.server(["one.example"]).unwrap().to_pem();
        let other = folder.server(["two.example"]).unwrap().to_pem();
        assert_ne!(other, server);
        assert_eq!(folder.server(["two.example"]).unwrap().to_pem(), other);
        let admin = folder.client("admin", &User::admin()).unwrap().to_pem();
        let jane = User::new("jane", ["developers"]);
        assert_ne!(folder.client("admin", &jane).unwrap().to_pem(), admin);
    }

    #[test]
    fn a_certificate_of_another_authority_or_a_wrong_key_is_replaced() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = open(ours.path());
        let stranger = open(theirs.path()).server(["api.example"]).unwrap().to_pem();
        store(ours.path(), "server", &stranger).unwrap();
        let replaced = folder.server(["api.example"]).unwrap().to_pem();
        assert_ne!(replaced, stranger);
        store(ours.path(), "server", &Pem { key: stranger.key, ..replaced.clone() }).unwrap();
        assert_ne!(folder.server(["api.example"]).unwrap().to_pem(), replaced);
    }

    #[test]
    fn a_damaged_authority_is_not_replaced_in_silence() {
        let place = tempfile::tempdir().unwrap();
        let pem = open(place.path()).authority().to_pem();
        std::fs::remove_file(place.path().join("ca.key")).unwrap();
        let error = Folder::open(&Env::system(), place.path()).unwrap_err();
        assert!(error.to_string().contains("restore it, or remove it"), "{error}");
        // Of a first start that was cut off there is at most a key.
        std::fs::write(place.path().join("ca.key"), &pem.key).unwrap();
        std::fs::remove_file(place.path().join("ca.crt")).unwrap();
        assert_ne!(open(place.path()).authority().to_pem(), pem);
    }
}
