//! What is said when a backend does not answer: kube-apiserver's words, which people search for.

use std::error::Error;
use std::io;

use http::{HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use crate::response::{Body, respond};
use crate::upstream::chain;

/// A failure as text, as Go's servers send it.
pub(super) fn text(code: StatusCode, message: &str) -> Response<Body> {
    let mut response = respond(code, "text/plain; charset=utf-8", format!("{message}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// 503 for a backend that is known to be away.
pub(super) fn unavailable() -> Response<Body> {
    text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
}

/// 503 for one that could not be reached just now.
pub(super) fn unreachable(why: &str) -> Response<Body> {
    text(StatusCode::SERVICE_UNAVAILABLE, &format!("error trying to reach service: {why}"))
}

/// Why a request to `authority` failed.
pub(super) fn reason(error: &(dyn Error + 'static), authority: &str) -> String {
    let mut source = Some(error);
    while let Some(one) = source {
        let io = one.downcast_ref::<io::Error>();
        match io.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                return format!("dial tcp {authority}: connect: connection refused");
            }
            Some(io::ErrorKind::TimedOut) => return format!("dial tcp {authority}: i/o timeout"),
            _ => {}
        }
        if let Some(rustls::Error::InvalidCertificate(why)) = one.downcast_ref::<rustls::Error>() {
            return format!("tls: failed to verify certificate: x509: {}", untrusted(why));
        }
        // An error of input and output hides what it is made of.
        source = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => one.source(),
        };
    }
    chain(error)
}

/// What is wrong with a certificate.
fn untrusted(why: &CertificateError) -> String {
    let is_not_now = |now: &UnixTime, relation: &str, limit: &UnixTime| {
        let time = |time: &UnixTime| {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
        };
        format!(
            "certificate has expired or is not yet valid: current time {} is {relation} {}",
            time(now),
            time(limit)
        )
    };
    match why {
        // The other one is of an authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } if !presented.is_empty() => {
            // Each is of the form `DnsName("api.wardle.svc")`, or an address, which Go leaves out.
            let names: Vec<&str> = presented.iter().filter_map(|name| name.split('"').nth(1)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        CertificateError::ExpiredContext { time, not_after } => is_not_now(time, "after", not_after),
        CertificateError::NotValidYetContext { time, not_before } => is_not_now(time, "before", not_before),
        other => other.to_string(),
    }
}
