//! CertificateSigningRequests: some are approved without being asked, those that are approved are signed, and old ones
//! are deleted.

mod approve;
mod clean;
mod recognize;
mod sign;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use setpoint_apiserver::pki::CertificateRequest;

pub(crate) use self::approve::controller as approving;
pub(crate) use self::clean::controller as cleaning;
pub(crate) use self::sign::controller as signing;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// The condition of this type.
fn condition<'a>(
    request: &'a CertificateSigningRequest,
    type_: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    request.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Whether there is a certificate.
fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// What is asked for; the server has checked that it can be read.
fn parsed(request: &CertificateSigningRequest) -> Option<CertificateRequest> {
    CertificateRequest::from_pem(&request.spec.request.0).ok()
}
