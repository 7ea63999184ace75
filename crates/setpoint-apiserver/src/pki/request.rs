//! Requests for certificates of keys that others keep.

use std::time::Duration;

use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use rustls::pki_types::CertificateSigningRequestDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use super::{CertificateAuthority, Error, params, subject};

/// A request for a certificate (PKCS #10), and who it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateRequest {
    der: Vec<u8>,
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// How many DNS names it asks for.
    pub dns_names: usize,
    /// How many IP addresses it asks for.
    pub ip_addresses: usize,
    /// How many other names it asks for.
    pub other_names: usize,
}

impl CertificateRequest {
    /// Reads a request from PEM text.
    pub fn from_pem(text: &[u8]) -> Result<CertificateRequest, Error> {
        const INVALID: Error = Error::InvalidPem { what: "certificate request" };
        let block = pem::parse(text).map_err(|_| INVALID)?;
        if block.tag() != "CERTIFICATE REQUEST" {
            return Err(INVALID);
        }
        let der = block.into_contents();
        let (_, request) = X509CertificationRequest::from_der(&der).map_err(|_| INVALID)?;
        let name = &request.certification_request_info.subject;
        let text = |name: &AttributeTypeAndValue<'_>| name.as_str().map(str::to_owned).map_err(|_| INVALID);
        let organizations = name.iter_organization().map(text).collect::<Result<_, _>>()?;
        let common_name = name.iter_common_name().next().map(text).transpose()?.unwrap_or_default();
        let (mut dns_names, mut ip_addresses, mut other_names) = (0, 0, 0);
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => dns_names += 1,
                    GeneralName::IPAddress(_) => ip_addresses += 1,
                    _ => other_names += 1,
                }
            }
        }
        Ok(CertificateRequest { common_name, organizations, dns_names, ip_addresses, other_names, der })
    }
}

impl CertificateAuthority {
    /// Signs a request, as PEM text: for the subject and the names that it has, for these usages (as
    /// CertificateSigningRequests name them), and never as an authority.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        life: Duration,
    ) -> Result<String, Error> {
        let der = CertificateSigningRequestDer::from(request.der.as_slice());
        let mut wanted = CertificateSigningRequestParams::from_der(&der)?;
        let own = params(&self.env, life);
        wanted.params.not_before = own.not_before;
        wanted.params.not_after = own.not_after;
        wanted.params.serial_number = own.serial_number;
        wanted.params.is_ca = IsCa::ExplicitNoCa;
        wanted.params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
        wanted.params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        wanted.params.use_authority_key_identifier_extension = true;
        let (_, parsed) = X509CertificationRequest::from_der(&request.der)
            .map_err(|_| Error::InvalidPem { what: "certificate request" })?;
        let subject = parsed.certification_request_info.subject.as_raw();
        let certificate =
            subject::sign_with_subject(wanted.params, &wanted.public_key, &self.issuer, subject)?;
        Ok(subject::pem_of(&certificate))
    }
}

fn key_usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(name: &str) -> Option<ExtendedKeyUsagePurpose> {
    let other = |oid: &[u64]| ExtendedKeyUsagePurpose::Other(oid.to_vec());
    Some(match name {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        "ipsec end system" => other(&[1, 3, 6, 1, 5, 5, 7, 3, 5]),
        "ipsec tunnel" => other(&[1, 3, 6, 1, 5, 5, 7, 3, 6]),
        "ipsec user" => other(&[1, 3, 6, 1, 5, 5, 7, 3, 7]),
        "microsoft sgc" => other(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => other(&[2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use setpoint_env::Env;
    use x509_parser::prelude::X509Certificate;

    use super::super::user_of;
    use super::*;

    #[test]
    fn a_signed_request_is_its_subject_and_no_authority() {
        let ca = CertificateAuthority::generate(&Env::system()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let request = CertificateRequest::from_pem(request.as_bytes()).unwrap();
        assert_eq!(
            (request.common_name.as_str(), request.organizations.as_slice()),
            ("jane", &["dev".to_owned()][..])
        );
        let pem = ca.sign(&request, &["client auth".to_owned()], Duration::from_secs(600)).unwrap();
        let der = super::super::certificates(&pem).unwrap().remove(0);
        let user = user_of(&der).unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jane", &["dev".to_owned()][..]));
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(!certificate.is_ca());
        let (_, authority) = X509Certificate::from_der(ca.certificate_der()).unwrap();
        certificate.verify_signature(Some(authority.public_key())).unwrap();
        assert!(CertificateRequest::from_pem(b"nonsense").is_err());
    }
}
