//! The names inside of a certificate.

use rcgen::{CertificateParams, DistinguishedName, Issuer, KeyPair, PublicKeyData, SanType, SigningKey};
use rustls::pki_types::CertificateDer;
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Error, ASN1ErrorKind, DERWriter};

use super::Error;
use crate::User;

pub(super) const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];
pub(super) const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];
/// Kubernetes' own attribute for the uid of a user.
pub(super) const USER_UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// Where the subject stands in a `TBSCertificate` (RFC 5280, 4.1).
const SUBJECT: usize = 5;

/// A name that a server answers to.
pub(super) fn alternative_name(name: String) -> Result<SanType, Error> {
    if let Ok(address) = name.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    match name.as_str().try_into() {
        Ok(text) if name.split('.').all(is_label) => Ok(SanType::DnsName(text)),
        _ => Err(Error::InvalidName { name }),
    }
}

/// A certificate for `user`, signed by `issuer`.
pub(super) fn sign_for_user(
    params: CertificateParams,
    key: &KeyPair,
    issuer: &Issuer<'_, KeyPair>,
    user: &User,
) -> Result<CertificateDer<'static>, Error> {
    sign_with_subject(params, key, issuer, &subject_of(user))
}

/// A certificate with this subject, as DER, signed by `issuer`.
///
/// `rcgen` writes each attribute of a subject at most once, but a user in several groups needs several
/// organizations (rustls/rcgen#81). So it writes an empty subject, which is replaced, and the certificate
/// is signed again.
pub(super) fn sign_with_subject(
    mut params: CertificateParams,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, KeyPair>,
    subject: &[u8],
) -> Result<CertificateDer<'static>, Error> {
    params.distinguished_name = DistinguishedName::new();
    let certificate = params.signed_by(key, issuer)?;
    let parts = elements(certificate.der()).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    let [to_be_signed, algorithm, _signature] = parts.as_slice() else {
        return Err(rcgen::Error::CouldNotParseCertificate.into());
    };
    let to_be_signed =
        with_subject(to_be_signed, subject).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    let signature = issuer.key().sign(&to_be_signed)?;
    let signed = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&to_be_signed);
            writer.next().write_der(algorithm);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    Ok(signed.into())
}

/// The parts of a DER sequence, each one still encoded.
fn elements(der: &[u8]) -> Result<Vec<Vec<u8>>, ASN1Error> {
    yasna::parse_der(der, |reader| reader.collect_sequence_of(|reader| reader.read_der()))
}

fn with_subject(to_be_signed: &[u8], subject: &[u8]) -> Result<Vec<u8>, ASN1Error> {
    let mut parts = elements(to_be_signed)?;
    let old = parts.get_mut(SUBJECT).ok_or(ASN1Error::new(ASN1ErrorKind::Eof))?;
    *old = subject.to_vec();
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for part in &parts {
                writer.next().write_der(part);
            }
        });
    }))
}

fn subject_of(user: &User) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for group in &user.groups {
                write_attribute(writer.next(), &ORGANIZATION, group);
            }
            write_attribute(writer.next(), &COMMON_NAME, &user.name);
            if !user.uid.is_empty() {
                write_attribute(writer.next(), &USER_UID, &user.uid);
            }
        });
    })
}

fn write_attribute(writer: DERWriter<'_>, oid: &[u64], value: &str) {
    writer.write_set(|writer| {
        writer.next().write_sequence(|writer| {
            writer.next().write_oid(&ObjectIdentifier::from_slice(oid));
            writer.next().write_utf8_string(value);
        });
    });
}

/// A certificate as text.
pub(super) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate.as_ref()), config)
}
