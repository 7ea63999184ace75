//! Deletes requests that nobody needs any more.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DeleteParams, Preconditions};
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};

use super::{APPROVED, DENIED, FAILED, condition, is_issued};
use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long a request stays that was decided on, and one that waits.
const DECIDED: SignedDuration = SignedDuration::from_secs(60 * 60);
const WAITING: SignedDuration = SignedDuration::from_secs(24 * 60 * 60);

pub(crate) fn controller() -> Controller {
    Controller::of::<CertificateSigningRequest>(.., "certificatesigningrequest-cleaner-controller", reconcile)
        .time_limit(TIME_LIMIT)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(request) = cx.lister::<CertificateSigningRequest>()?.get(&key) else {
        return Ok(Action::done());
    };
    let Some(end) = end(&request).filter(|_| request.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::done());
    };
    let left = end.duration_since(cx.env().now());
    if left > SignedDuration::ZERO {
        return Ok(Action::requeue_after(left.unsigned_abs()));
    }
    let requests: Api<CertificateSigningRequest> = Api::all(cx.client());
    let this = Preconditions { uid: request.metadata.uid.clone(), resource_version: None };
    match requests.delete(key.name(), &DeleteParams::default().preconditions(this)).await {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        deleted => deleted.map(|_| Action::done()).map_err(Into::into),
    }
}

/// When a request has had its time.
fn end(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let updated = |type_: &str| condition(request, type_)?.last_update_time.as_ref().map(|time| time.0);
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    let decided = updated(DENIED).or_else(|| updated(FAILED));
    let (since, time) = match (decided, updated(APPROVED)) {
        (Some(decided), _) => (decided, DECIDED),
        (None, Some(approved)) if is_issued(request) => (approved, DECIDED),
        (None, Some(approved)) => (approved, WAITING),
        (None, None) if conditions.is_none_or(Vec::is_empty) => {
            (request.metadata.creation_timestamp.as_ref()?.0, WAITING)
        }
        (None, None) => return None,
    };
    since.checked_add(time).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(status: Value, expected: &str) {
        let spec = json!({"request": "", "signerName": "a/b"});
        let metadata = json!({"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let request =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
        assert_eq!(end(&request).unwrap().to_string(), expected, "{status}");
    }

    #[test]
    fn what_is_decided_goes_after_an_hour_and_what_waits_after_a_day() {
        let is = |type_: &str| json!([{"type": type_, "status": "True", "lastUpdateTime": "2026-01-02T00:00:00Z"}]);
        check(json!({}), "2026-01-02T00:00:00Z");
        check(json!({"conditions": is("Denied")}), "2026-01-02T01:00:00Z");
        check(json!({"conditions": is("Approved")}), "2026-01-03T00:00:00Z");
        check(json!({"conditions": is("Approved"), "certificate": "eA=="}), "2026-01-02T01:00:00Z");
    }
}
