//! Approves kubelets' requests for client certificates, if who asks may have one.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};

use super::recognize::{KUBELET_CLIENT, kubelet_client};
use super::{APPROVED, DENIED, condition, is_issued, parsed};
use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn controller() -> Controller {
    Controller::of::<CertificateSigningRequest>(
        ..,
        "certificatesigningrequest-approving-controller",
        reconcile,
    )
    .time_limit(TIME_LIMIT)
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(request) = cx.lister::<CertificateSigningRequest>()?.get(&key) else {
        return Ok(Action::done());
    };
    let is_decided = condition(&request, APPROVED).or(condition(&request, DENIED)).is_some();
    if is_decided || is_issued(&request) || request.spec.signer_name != KUBELET_CLIENT {
        return Ok(Action::done());
    }
    let Some(parsed) = parsed(&request) else { return Ok(Action::done()) };
    let usages: BTreeSet<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
    if kubelet_client(&parsed, &usages).is_err() {
        return Ok(Action::done());
    }
    let is_self = request.spec.username.as_deref() == Some(parsed.common_name.as_str());
    let ways = [
        (
            is_self,
            "selfnodeclient",
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        ),
        (true, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
    ];
    for (_, permission, message) in ways.into_iter().filter(|(is_way, _, _)| *is_way) {
        if is_allowed(&cx, &request, permission).await? {
            return approve(&cx, &request, message).await;
        }
    }
    Ok(Action::done())
}

/// Asks the server whether who made the request may have such a certificate.
async fn is_allowed(
    cx: &Context,
    request: &CertificateSigningRequest,
    permission: &str,
) -> Result<bool, kube::Error> {
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        subresource: Some(permission.to_owned()),
        verb: Some("create".to_owned()),
        version: Some("*".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: request.spec.username.clone(),
        uid: request.spec.uid.clone(),
        groups: request.spec.groups.clone(),
        extra: request.spec.extra.clone(),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(cx.untracked_client());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn approve(
    cx: &Context,
    request: &CertificateSigningRequest,
    message: &str,
) -> Result<Action, ReconcileError> {
    let known = request.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut conditions: Vec<_> = known.iter().map(|condition| json!(condition)).collect();
    let now = format!("{:.0}", cx.env().now());
    conditions.push(json!({
        "type": APPROVED, "status": "True", "reason": "AutoApproved", "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    }));
    let patch = json!({
        "metadata": {"uid": request.metadata.uid, "resourceVersion": request.metadata.resource_version},
        "status": {"conditions": conditions},
    });
    let requests: Api<CertificateSigningRequest> = Api::all(cx.client());
    let (name, parameters) = (request.name_any(), PatchParams::default());
    match requests.patch_subresource("approval", &name, &parameters, &Patch::Merge(&patch)).await {
        Err(error) if failure::is_not_found(&error) => Ok(Action::done()),
        patched => patched.map(|_| Action::done()).map_err(Into::into),
    }
}
