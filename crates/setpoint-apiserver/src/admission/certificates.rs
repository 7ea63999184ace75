//! Rights on signers: who may approve, sign and attest, and the one group that nobody may ask for.

use serde_json::Value;

use super::{Attributes, Operation};
use crate::authorize;
use crate::kinds;
use crate::rbac;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::user::User;

const GROUP: &str = "certificates.k8s.io";
/// Its certificates are those of clients of this very server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Whether the object may be written, as far as signers are concerned.
pub(super) async fn validate(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    let resource = &attributes.request.resource;
    if resource.group() != GROUP {
        return Ok(());
    }
    match (resource.plural(), attributes.subresource(), attributes.old) {
        ("certificatesigningrequests", "", None) => restrict_subject(attributes, object),
        ("certificatesigningrequests", "approval", Some(old)) => {
            check(core, attributes, "approve", "approve requests with", old).await
        }
        ("certificatesigningrequests", "status", Some(old)) => {
            let is_same = |field: &str| old["status"].get(field) == object["status"].get(field);
            if is_same("certificate") && is_same("conditions") {
                return Ok(());
            }
            check(core, attributes, "sign", "sign requests with", old).await
        }
        ("clustertrustbundles", "", old) => {
            // Validation keeps the signer of a bundle as it is.
            let is_unnamed = object["spec"]["signerName"].as_str().is_none_or(str::is_empty);
            if is_unnamed || old.is_some_and(|old| rbac::changes_only_ownership(old, object)) {
                return Ok(());
            }
            check(core, attributes, "attest", "attest for", object).await
        }
        _ => Ok(()),
    }
}

/// Whoever signs for this server does not look at groups; so no request names this one.
fn restrict_subject(attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    if attributes.operation != Operation::Create || object["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    match kinds::requested_organizations(object) {
        Ok(groups) if groups.iter().any(|group| group == MASTERS) => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            Err(forbidden(attributes, object, &why))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(forbidden(attributes, object, &format!("failed to parse CSR: {why}"))),
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
    Err(forbidden(attributes, object, &why))
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

fn forbidden(attributes: &Attributes<'_>, object: &Value, why: &str) -> Status {
    let name = attributes.name(Some(object));
    Status::forbidden(attributes.request.resource.group_resource(), name, why)
}
