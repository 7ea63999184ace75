//! Rights on signers: who may approve, sign and attest, and the one group that nobody may ask for.

use serde_json::Value;

use super::{Attributes, Operation};
use crate::authorize;
use crate::kinds;
use crate::rbac;
use crate::server::Core;
use crate::status::Result;
use crate::user::User;

const GROUP: &str = "certificates.k8s.io";
/// Its certificates are those of clients of this very server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// `CertificateApproval`: whoever approves needs the right to, for the signer.
pub(super) async fn approve(core: &Core, attributes: &Attributes<'_>) -> Result<()> {
    match attributes.old {
        Some(old) if attributes.subresource() == "approval" => {
            check(core, attributes, "approve", "approve requests with", old).await
        }
        _ => Ok(()),
    }
}

/// `CertificateSigning`: whoever puts a certificate into a request needs the right to.
pub(super) async fn sign(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    let Some(old) = attributes.old.filter(|_| attributes.subresource() == "status") else { return Ok(()) };
    let is_same = |field: &str| old["status"].get(field) == object["status"].get(field);
    if is_same("certificate") && is_same("conditions") {
        return Ok(());
    }
    check(core, attributes, "sign", "sign requests with", old).await
}

/// `ClusterTrustBundleAttest`: whoever speaks for a signer needs the right to.
pub(super) async fn attest(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    // Validation keeps the signer of a bundle as it is.
    let is_unnamed = object["spec"]["signerName"].as_str().is_none_or(str::is_empty);
    let is_same = attributes.old.is_some_and(|old| rbac::changes_only_ownership(old, object));
    if !attributes.subresource().is_empty() || is_unnamed || is_same {
        return Ok(());
    }
    check(core, attributes, "attest", "attest for", object).await
}

/// `CertificateSubjectRestriction`: whoever signs for this server does not look at groups; so no request names this one.
pub(super) fn restrict_subject(attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    let is_new = attributes.operation == Operation::Create && attributes.subresource().is_empty();
    if !is_new || object["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    match kinds::requested_organizations(object) {
        Ok(groups) if groups.iter().any(|group| group == MASTERS) => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            Err(attributes.forbidden(Some(object), &why))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(attributes.forbidden(Some(object), &format!("failed to parse CSR: {why}"))),
    }
}

/// Whether the user has the right on the signer of an object, or on all signers of its domain.
async fn check(
    core: &Core,
    attributes: &Attributes<'_>,
    verb: &str,
    doing: &str,
    object: &Value,
) -> Result<()> {
    let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let user = &attributes.request.user;
    if allows(core, user, verb, signer).await? || allows(core, user, verb, &format!("{domain}/*")).await? {
        return Ok(());
    }
    let why = format!("user not permitted to {doing} signerName {signer:?}");
    Err(attributes.forbidden(Some(object), &why))
}

async fn allows(core: &Core, user: &User, verb: &str, signer: &str) -> Result<bool> {
    let attributes = authorize::Attributes {
        verb: verb.into(),
        group: GROUP.into(),
        resource: "signers".into(),
        name: signer.into(),
        ..authorize::Attributes::default()
    };
    Ok(authorize::decide(core, user, &attributes).await?.allowed)
}
