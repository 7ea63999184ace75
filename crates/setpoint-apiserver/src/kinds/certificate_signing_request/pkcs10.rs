//! The certificates and the requests for them inside of objects: PEM, as base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The bytes of a field; those of what is no base64 were refused when the object was decoded.
fn bytes(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap_or_default()
}

/// The DER of a request, or what is wrong with its PEM.
fn request_der(text: &str) -> Result<Vec<u8>, String> {
    match pem::parse(bytes(text)) {
        Ok(block) if block.tag() == "CERTIFICATE REQUEST" => Ok(block.into_contents()),
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

fn parse(der: &[u8]) -> Result<X509CertificationRequest<'_>, String> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A request has to be signed with the key that it is for.
pub(super) fn check_request(text: &str) -> Result<(), String> {
    let der = request_der(text)?;
    let request = parse(&der)?;
    let algorithm = &request.signature_algorithm.algorithm;
    if [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(algorithm) {
        return Err("x509: cannot verify signature: insecure algorithm SHA1-RSA".to_owned());
    }
    request.verify_signature().map_err(|error| error.to_string())
}

/// The organizations in the subject of a request: the groups of whoever gets the certificate.
pub(crate) fn organizations(request: &Value) -> Result<Vec<String>, String> {
    let der = request_der(request["spec"]["request"].as_str().unwrap_or_default())?;
    let request = parse(&der)?;
    let subject = &request.certification_request_info.subject;
    // One that is no text cannot be told from a forbidden one.
    let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        name.as_str().map(str::to_owned).map_err(|error| error.to_string())
    };
    subject.iter_organization().map(text).collect()
}

/// One or more certificates, and nothing else; none at all is fine.
pub(super) fn check_certificates(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let blocks = pem::parse_many(bytes(text)).unwrap_or_default();
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for block in &blocks {
        if block.tag() != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.tag()));
        }
        if block.headers().iter().next().is_some() {
            return Err("no PEM block headers are permitted".to_owned());
        }
        let mut rest = block.contents();
        if rest.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !rest.is_empty() {
            (rest, _) = X509Certificate::from_der(rest).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
