//! Certificates: an authority of our own, and what it issues.
//!
//! ```
//! # fn main() -> Result<(), setpoint_apiserver::pki::Error> {
//! use setpoint_apiserver::User;
//! use setpoint_apiserver::pki::CertificateAuthority;
//! use setpoint_env::Env;
//!
//! let ca = CertificateAuthority::generate(&Env::system())?;
//! let server = ca.issue_server(["api.example.com"])?;
//! let admin = ca.issue_client(&User::admin())?;
//! let tls = ca.server_config(&server)?;
//! # drop((admin, tls));
//! # Ok(())
//! # }
//! ```

mod client_authorities;
mod folder;
mod peer;
mod request;
mod subject;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use client_authorities::{ClientAuthorities, verifier};
pub(crate) use folder::signing_key;
pub use folder::{Folder, FolderError};
pub(crate) use peer::{end_of, public_key_of, user_of};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
pub use request::CertificateRequest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use setpoint_env::Env;

use crate::User;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * DAY.as_secs());
const LEAF_LIFE: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Certificates are valid from a little in the past: the clock of a client may be behind ours.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// The names that every server certificate is valid for: how clients inside and outside of a cluster know
/// the API server. 10.96.0.1 is the address of the `kubernetes` service.
const SERVER_NAMES: [&str; 8] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be in a certificate.
    #[error("{name:?} is neither an IP address nor a DNS name, so no certificate can be issued for it")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// A user without a name.
    #[error("a client certificate needs a user with a name")]
    NamelessUser,
    /// The PEM text does not hold what it should.
    #[error("no usable {what} in the PEM text")]
    InvalidPem {
        /// What is missing.
        what: &'static str,
    },
    /// A key that belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The cryptography failed.
    #[error("cannot make a certificate")]
    Generate(#[from] rcgen::Error),
    /// TLS does not accept the certificates.
    #[error("cannot use the certificates for TLS")]
    Tls(#[from] rustls::Error),
}

/// A certificate and its private key, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority: issues the certificates of one API server and of its clients.
pub struct CertificateAuthority {
    env: Env,
    issuer: Issuer<'static, KeyPair>,
    pem: Pem,
    certificate: CertificateDer<'static>,
}

impl CertificateAuthority {
    /// A new authority with a new key, valid for ten years.
    ///
    /// Keys come from the operating system, never from `env`: a key that a seed can repeat is no secret.
    pub fn generate(env: &Env) -> Result<CertificateAuthority, Error> {
        let mut params = params(env, AUTHORITY_LIFE);
        params.distinguished_name = common_name("setpoint");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(CertificateAuthority {
            env: env.clone(),
            pem: Pem { certificate: certificate.pem(), key: key.serialize_pem() },
            certificate: certificate.into(),
            issuer: Issuer::new(params, key),
        })
    }

    /// An authority that was stored with [`to_pem`](CertificateAuthority::to_pem).
    pub fn from_pem(env: &Env, pem: Pem) -> Result<CertificateAuthority, Error> {
        let certificate = read_certificate(&pem)?;
        let key = KeyPair::from_pem(&pem.key).map_err(|_| Error::InvalidPem { what: "private key" })?;
        if peer::public_key_of(&certificate) != Some(key.subject_public_key_info()) {
            return Err(Error::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(CertificateAuthority { env: env.clone(), issuer, pem, certificate })
    }

    /// The authority as text, with its private key.
    pub fn to_pem(&self) -> Pem {
        self.pem.clone()
    }

    /// The certificate that clients have to trust, as text.
    pub fn certificate_pem(&self) -> &str {
        &self.pem.certificate
    }

    /// The certificate that clients have to trust.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A server certificate, valid for one year: for the names that every API server has (`localhost`,
    /// `kubernetes.default.svc` …) and for `names`, which are DNS names or IP addresses.
    pub fn issue_server<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Identity, Error> {
        let mut all: Vec<String> = SERVER_NAMES.map(str::to_owned).into();
        for name in names.into_iter().map(Into::into) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        let mut params = params(&self.env, LEAF_LIFE);
        params.subject_alt_names =
            all.into_iter().map(subject::alternative_name).collect::<Result<_, _>>()?;
        params.distinguished_name = common_name("kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity::new(certificate.into(), &key))
    }

    /// A client certificate, valid for one year: the common name is the user's name, the organizations are
    /// the user's groups. `extra` has no place in a certificate.
    pub fn issue_client(&self, user: &User) -> Result<Identity, Error> {
        if user.name.is_empty() {
            return Err(Error::NamelessUser);
        }
        let mut params = params(&self.env, LEAF_LIFE);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = subject::sign_for_user(params, &key, &self.issuer, user)?;
        Ok(Identity::new(certificate, &key))
    }

    /// The TLS side of a server: it shows `server`'s certificate, and takes client certificates that this
    /// authority issued. A client may have none; whether that is enough is decided request by request.
    ///
    /// Sessions are not resumed: TLS would take the certificate of the old session for granted, expired or not. Most
    /// clients (all that are written in Go) never ask for it.
    pub fn server_config(&self, server: &Identity) -> Result<Arc<ServerConfig>, Error> {
        server_config(&self.env, server, std::slice::from_ref(&self.certificate))
    }
}

/// The same where the certificate of the server and the authorities of its clients come from elsewhere. Without
/// authorities no client certificate is asked for.
pub fn server_config(
    env: &Env,
    server: &Identity,
    client_authorities: &[CertificateDer<'static>],
) -> Result<Arc<ServerConfig>, Error> {
    if client_authorities.is_empty() {
        return server_config_with(env, server, None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in client_authorities {
        roots.add(authority.clone())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    server_config_with(env, server, Some(verifier))
}

/// The same with somebody who checks the certificates of clients.
pub(crate) fn server_config_with(
    env: &Env,
    server: &Identity,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_details(provider, Arc::new(Clock(env.clone())))
        .with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(server.chain.clone(), server.key.clone_key())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// All certificates of a PEM text. There is at least one.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let invalid = Error::InvalidPem { what: "certificate" };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(invalid)
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").field("pem", &self.pem).finish_non_exhaustive()
    }
}

/// A certificate of a server or a client, and its private key.
#[derive(Debug)]
pub struct Identity {
    pem: Pem,
    /// Its own certificate, then those of the authorities in between.
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(certificate: CertificateDer<'static>, key: &KeyPair) -> Identity {
        Identity {
            pem: Pem { certificate: subject::pem_of(&certificate), key: key.serialize_pem() },
            chain: vec![certificate],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    /// An identity from text: its certificate, which those of the authorities in between may follow, and its key in
    /// PKCS #8, SEC 1 or PKCS #1.
    pub fn from_pem(pem: Pem) -> Result<Identity, Error> {
        let chain = certificates(&pem.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes())
            .map_err(|_| Error::InvalidPem { what: "private key" })?;
        Ok(Identity { pem, chain, key })
    }

    /// Whether the key is the certificate's.
    fn is_whole(&self) -> bool {
        let key = KeyPair::from_pem(&self.pem.key).map(|key| key.subject_public_key_info());
        key.is_ok_and(|key| peer::public_key_of(&self.chain[0]) == Some(key))
    }

    /// The certificate and its key, as text.
    pub fn to_pem(&self) -> Pem {
        self.pem.clone()
    }

    /// The certificate.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        // There is at least one: `certificates` and `new` see to it.
        &self.chain[0]
    }

    /// The certificate, then those of the authorities in between.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key.
    pub fn key_der(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }
}

/// What all certificates have in common.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the crate's times have no other addition, and ours are short"
)]
fn params(env: &Env, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = env.now().as_second().try_into().map_or(Duration::ZERO, Duration::from_secs);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(life);
    params.serial_number = Some(serial_number(env));
    params
}

/// 127 random bits: a serial number is positive, so the first bit is off.
fn serial_number(env: &Env) -> SerialNumber {
    let mut bytes = [0; 16];
    env.fill(&mut bytes);
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn read_certificate(pem: &Pem) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.certificate.as_bytes())
        .map_err(|_| Error::InvalidPem { what: "certificate" })
}

/// TLS checks validity by the clock that the certificates were issued by.
#[derive(Debug)]
pub(crate) struct Clock(pub(crate) Env);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.now().as_second().try_into().ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests;
