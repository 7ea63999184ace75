//! Certificate authorities, and what they issue.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use setpoint_env::{Env, Later};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::CertificateError;

/// Certificates are valid from a little in the past: the clock of an API server may be behind ours.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// A certificate as text, with what matters of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) pem: String,
    der: CertificateDer<'static>,
    /// When it was made.
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    /// DNS names and addresses, in order.
    pub(super) names: Vec<String>,
}

impl Certificate {
    pub(super) fn parse(pem: &str) -> Result<Certificate, CertificateError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(invalid)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(invalid)?;
        let at = |seconds| Timestamp::from_second(seconds).map_err(invalid);
        let since = at(parsed.validity().not_before.timestamp())?.later(CLOCK_SKEW);
        let until = at(parsed.validity().not_after.timestamp())?;
        let alternatives = parsed.subject_alternative_name().map_err(invalid)?;
        let general = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let mut names: Vec<String> = general.filter_map(text_of).collect();
        names.sort_unstable();
        Ok(Certificate { pem: pem.to_owned(), since, until, names, der: der.clone() })
    }

    /// All in a text with several.
    pub(super) fn parse_all(pem: &str) -> Result<Vec<Certificate>, CertificateError> {
        const END: &str = "-----END CERTIFICATE-----";
        let parts = pem.split_inclusive(END).map(str::trim).filter(|part| !part.is_empty());
        parts.map(|part| Certificate::parse(&format!("{part}\n"))).collect()
    }

    /// Whether two thirds of its life are over.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let third = self.until.duration_since(self.since).unsigned_abs().checked_div(3).unwrap_or_default();
        now >= self.until.earlier(third)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Whether this is the key of its subject.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let Ok(key) = KeyPair::from_pem(key) else { return false };
        X509Certificate::from_der(&self.der)
            .is_ok_and(|(_, parsed)| parsed.public_key().raw == key.subject_public_key_info())
    }

    /// Whether this authority has signed it.
    pub(super) fn is_signed_by(&self, authority: &Certificate) -> bool {
        let (Ok((_, own)), Ok((_, theirs))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der))
        else {
            return false;
        };
        own.issuer() == theirs.subject() && own.verify_signature(Some(theirs.public_key())).is_ok()
    }
}

fn text_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(four) => Some(std::net::Ipv4Addr::from(four).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|all| std::net::Ipv6Addr::from(all).to_string()),
        },
        _ => None,
    }
}

/// A new authority: its certificate and its key. Keys come from the operating system, never from `env`: a key that a seed
/// can repeat is no secret.
pub(super) fn make_authority(env: &Env, life: Duration) -> Result<(Certificate, String), CertificateError> {
    // Of its own name, so that nobody takes the certificates of one for those of another.
    let mut params = params(env, life, &format!("setpoint webhooks {}", env.uuid()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((Certificate::parse(&certificate.pem())?, key.serialize_pem()))
}

/// A certificate for a server of these names, and its key.
pub(super) fn issue(
    env: &Env,
    authority: &Certificate,
    authority_key: &str,
    names: &[String],
    life: Duration,
) -> Result<(Certificate, String), CertificateError> {
    let issuer_key = KeyPair::from_pem(authority_key).map_err(invalid)?;
    let issuer = Issuer::from_ca_cert_der(&authority.der, issuer_key).map_err(invalid)?;
    let named = CertificateParams::new(names.to_vec()).map_err(failed)?;
    let mut params = params(env, life, "webhooks");
    params.subject_alt_names = named.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok((Certificate::parse(&certificate.pem())?, key.serialize_pem()))
}

/// What all certificates have in common.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the crate's times have no other addition, and ours are short"
)]
fn params(env: &Env, life: Duration, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = env.now().as_second().try_into().map_or(Duration::ZERO, Duration::from_secs);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(life);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn invalid(error: impl std::fmt::Display) -> CertificateError {
    CertificateError::Invalid(error.to_string())
}

fn failed(error: rcgen::Error) -> CertificateError {
    CertificateError::Make(error.to_string())
}
