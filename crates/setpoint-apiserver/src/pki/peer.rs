//! Reading the certificate of a peer.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::subject::{COMMON_NAME, ORGANIZATION, USER_UID};
use crate::User;

/// Who a client certificate says its owner is. `None` if it names nobody.
pub(crate) fn user_of(certificate: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut user = User::default();
    for attribute in certificate.subject().iter_attributes() {
        let Some(oid) = attribute.attr_type().iter() else { continue };
        let Ok(value) = attribute.as_str() else { continue };
        let oid: Vec<u64> = oid.collect();
        if oid == COMMON_NAME {
            value.clone_into(&mut user.name);
        } else if oid == ORGANIZATION {
            user.groups.push(value.to_owned());
        } else if oid == USER_UID {
            value.clone_into(&mut user.uid);
        }
    }
    (!user.name.is_empty()).then_some(user)
}

/// When the first certificate of a chain expires. `None` if one of them cannot be read.
pub(crate) fn end_of(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let mut first: Option<Timestamp> = None;
    for certificate in chain {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let end =
            Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
        first = Some(first.map_or(end, |first| first.min(end)));
    }
    first
}

/// The public key that a certificate is for (a DER `SubjectPublicKeyInfo`).
pub(crate) fn public_key_of(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.public_key().raw.to_vec())
}
