//! Signs what is approved, with the key of the server's authority.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::Api;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, patch_status};
use setpoint_apiserver::pki::CertificateAuthority;

use super::{APPROVED, FAILED, condition, is_issued, parsed, recognize};
use crate::failure;
use crate::time::time;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long a certificate is good for at most, and at least.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SHORTEST: Duration = Duration::from_secs(10 * 60);

pub(crate) fn controller(authority: Arc<CertificateAuthority>) -> Controller {
    Controller::of::<CertificateSigningRequest>(.., "certificatesigningrequest-signing-controller", reconcile)
        .time_limit(TIME_LIMIT)
        .state(authority)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(request) = cx.lister::<CertificateSigningRequest>()?.get(&key) else {
        return Ok(Action::done());
    };
    if condition(&request, APPROVED).is_none() || condition(&request, FAILED).is_some() || is_issued(&request)
    {
        return Ok(Action::done());
    }
    let Some(parsed) = parsed(&request) else { return Ok(Action::done()) };
    // What other signers are asked for is theirs.
    let Some(verdict) = recognize::check(&request, &parsed) else { return Ok(Action::done()) };
    let mut status = request.status.clone().unwrap_or_default();
    match verdict {
        Ok(()) => {
            let usages = request.spec.usages.clone().unwrap_or_default();
            let certificate = cx.state::<Arc<CertificateAuthority>>()?.sign(&parsed, &usages, life(&request));
            let certificate = certificate.map_err(ReconcileError::terminal)?;
            status.certificate = Some(ByteString(certificate.into_bytes()));
        }
        Err(why) => status.conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
            type_: FAILED.to_owned(),
            status: "True".to_owned(),
            reason: Some("SignerValidationFailure".to_owned()),
            message: Some(why),
            last_update_time: Some(time(cx.env().now())),
            last_transition_time: Some(time(cx.env().now())),
        }),
    }
    let requests: Api<CertificateSigningRequest> = Api::all(cx.client());
    match patch_status(&requests, &request, &status).await {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        written => written.map(|_| Action::done()).map_err(Into::into),
    }
}

/// How long the certificate is good for: what was asked, within limits.
fn life(request: &CertificateSigningRequest) -> Duration {
    let asked = request.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    asked.map_or(LONGEST, |seconds| Duration::from_secs(seconds).clamp(SHORTEST, LONGEST))
}
