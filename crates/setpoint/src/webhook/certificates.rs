//! The certificate that a webhook server shows, and how it is renewed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use setpoint_env::{Env, Task, TaskHealth};

use super::managed::ManagedCertificates;

/// How often files are looked at. A renewed certificate is mounted days before the old one ends.
const LOOK: Duration = Duration::from_secs(10);

/// Where a webhook server's certificate comes from.
#[derive(Clone)]
pub struct Certificates {
    origin: Origin,
}

#[derive(Clone)]
enum Origin {
    Files(Files),
    Pem(Pair),
    Managed(Box<ManagedCertificates>),
}

#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        match &self.origin {
            Origin::Files(Files { certificate, key }) => {
                f.debug_struct("Files").field("certificate", certificate).field("key", key).finish()
            }
            Origin::Pem(_) => f.write_str("Pem"),
            Origin::Managed(_) => f.write_str("Managed"),
        }
    }
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The API server cannot be asked for certificates, or told of them.
    #[error("the API server refuses {what}")]
    Api {
        /// What it is about.
        what: String,
        /// Why.
        source: kube::Error,
    },
    /// It is not PEM, or not a certificate and its key.
    #[error("not a certificate and its key in PEM: {0}")]
    Invalid(String),
    /// A self-signed certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
}

impl Certificates {
    /// PEM files, as a mounted secret of type `kubernetes.io/tls` has them. When they change, new connections
    /// get the new certificate; if what they change to is unusable, the old one stays.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Certificates {
        Certificates { origin: Origin::Files(Files { certificate: certificate.into(), key: key.into() }) }
    }

    /// A certificate chain and its key, in PEM.
    pub fn pem(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Certificates {
        Certificates { origin: Origin::Pem(Pair { certificate: certificate.into(), key: key.into() }) }
    }

    /// A new certificate for these names, signed by itself, and the same certificate in PEM, for the `caBundle`
    /// of whoever shall call. For development, and for a single replica that registers itself.
    ///
    /// ```
    /// use setpoint::webhook::Certificates;
    ///
    /// let (certificates, ca_bundle) = Certificates::self_signed(["localhost", "127.0.0.1"])?;
    /// assert!(ca_bundle.starts_with("-----BEGIN CERTIFICATE-----"));
    /// # Ok::<(), setpoint::webhook::CertificateError>(())
    /// ```
    pub fn self_signed<S: Into<String>>(
        names: impl IntoIterator<Item = S>,
    ) -> Result<(Certificates, String), CertificateError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| CertificateError::Make(error.to_string()))?;
        let bundle = made.cert.pem();
        Ok((Certificates::pem(bundle.as_bytes(), made.signing_key.serialize_pem()), bundle))
    }

    /// TLS settings of a server that shows this certificate. They follow the source as long as the task lives, if there
    /// is one.
    pub async fn start(&self, env: &Env) -> Result<(Arc<ServerConfig>, Option<Task<()>>), CertificateError> {
        let (pair, keeper) = match &self.origin {
            Origin::Pem(pair) => (pair.clone(), None),
            Origin::Files(files) => (files.read().await?, None),
            Origin::Managed(plan) => {
                let (keeper, pair) = plan.first(env).await?;
                (pair, Some(keeper))
            }
        };
        let current = Arc::new(Current { key: RwLock::new(parse(&pair)?) });
        let health = TaskHealth::new("the certificates of the webhook server");
        let watching = match (&self.origin, keeper) {
            (_, Some(keeper)) => {
                let current = Arc::clone(&current);
                Some(env.supervise(&health, move || keeper.clone().run(pair.clone(), Arc::clone(&current))))
            }
            (Origin::Files(files), None) => {
                let (files, current) = (files.clone(), Arc::clone(&current));
                Some(
                    env.supervise(&health, move || follow(files.clone(), pair.clone(), Arc::clone(&current))),
                )
            }
            (_, None) => None,
        };
        let provider = Arc::new(ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| CertificateError::Invalid(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(current);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(tls), watching))
    }
}

impl From<ManagedCertificates> for Certificates {
    fn from(managed: ManagedCertificates) -> Certificates {
        Certificates { origin: Origin::Managed(Box::new(managed)) }
    }
}

impl Files {
    async fn read(&self) -> Result<Pair, CertificateError> {
        Ok(Pair { certificate: read(&self.certificate).await?, key: read(&self.key).await? })
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let text = tokio::fs::read(path).await;
    text.map_err(|source| CertificateError::Read { path: path.to_owned(), source })
}

/// A chain and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

pub(super) fn parse(pair: &Pair) -> Result<Arc<CertifiedKey>, CertificateError> {
    let invalid = |error: &dyn fmt::Display| CertificateError::Invalid(error.to_string());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pair.certificate)
        .collect::<Result<_, _>>()
        .map_err(|e| invalid(&e))?;
    if chain.is_empty() {
        return Err(invalid(&"there is no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|error| invalid(&error))?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| invalid(&error))?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|error| invalid(&error))?;
    Ok(Arc::new(certified))
}

/// Looks at the files again and again.
async fn follow(files: Files, mut known: Pair, current: Arc<Current>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let pair = match files.read().await {
            Ok(pair) if pair != known => pair,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "the webhook server keeps its certificate");
                continue;
            }
        };
        match parse(&pair) {
            Ok(key) => {
                current.set(key);
                tracing::info!("the webhook server has a new certificate");
            }
            // Maybe one of the two files is not written yet: the next look tells.
            Err(error) => tracing::warn!(%error, "the webhook server keeps its certificate"),
        }
        known = pair;
    }
}

/// The certificate that new connections get.
#[derive(Debug)]
pub(super) struct Current {
    key: RwLock<Arc<CertifiedKey>>,
}

impl Current {
    pub(super) fn set(&self, key: Arc<CertifiedKey>) {
        *self.key.write() = key;
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key.read()))
    }
}
