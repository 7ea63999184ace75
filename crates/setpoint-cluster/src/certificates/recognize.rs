//! What each of Kubernetes' own signers signs.

use std::collections::BTreeSet;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use setpoint_apiserver::pki::CertificateRequest;

pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

/// Whether the request's signer signs it: none if the signer is somebody else, or why not.
pub(super) fn check(
    request: &CertificateSigningRequest,
    parsed: &CertificateRequest,
) -> Option<Result<(), String>> {
    let usages: BTreeSet<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
    match request.spec.signer_name.as_str() {
        CLIENT => Some(client_usages(&usages)),
        KUBELET_CLIENT => Some(kubelet_client(parsed, &usages)),
        KUBELET_SERVING => Some(kubelet_serving(parsed, &usages)),
        _ => None,
    }
}

fn client_usages(usages: &BTreeSet<&str>) -> Result<(), String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains("client auth") {
        return Err("missing required usage for client certificate: client auth".to_owned());
    }
    Ok(())
}

/// The usages of a kubelet: a signature and one kind of authentication; enciphering is for older keys.
fn kubelet_usages(usages: &BTreeSet<&str>, kind: &str) -> Result<(), String> {
    let mut rest = usages.clone();
    rest.remove("key encipherment");
    if rest == BTreeSet::from(["digital signature", kind]) {
        return Ok(());
    }
    Err(format!(
        "usages did not match [digital signature {kind}] or [digital signature key encipherment {kind}]"
    ))
}

fn node(parsed: &CertificateRequest) -> Result<(), String> {
    if parsed.organizations != [NODES] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if !parsed.common_name.starts_with(NODE) {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    Ok(())
}

pub(super) fn kubelet_client(parsed: &CertificateRequest, usages: &BTreeSet<&str>) -> Result<(), String> {
    node(parsed)?;
    if parsed.dns_names > 0 {
        return Err("DNS subjectAltNames are not allowed".to_owned());
    }
    if parsed.ip_addresses > 0 {
        return Err("IP subjectAltNames are not allowed".to_owned());
    }
    if parsed.other_names > 0 {
        return Err("URI and Email subjectAltNames are not allowed".to_owned());
    }
    kubelet_usages(usages, "client auth")
}

fn kubelet_serving(parsed: &CertificateRequest, usages: &BTreeSet<&str>) -> Result<(), String> {
    node(parsed)?;
    if parsed.dns_names == 0 && parsed.ip_addresses == 0 {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if parsed.other_names > 0 {
        return Err("URI and Email subjectAltNames are not allowed".to_owned());
    }
    kubelet_usages(usages, "server auth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_are_those_of_the_signer() {
        let set = |usages: &[&'static str]| usages.iter().copied().collect::<BTreeSet<_>>();
        assert!(client_usages(&set(&["client auth", "digital signature"])).is_ok());
        assert!(client_usages(&set(&["digital signature"])).is_err());
        assert!(client_usages(&set(&["client auth", "server auth"])).is_err());
        assert!(
            kubelet_usages(&set(&["digital signature", "client auth", "key encipherment"]), "client auth")
                .is_ok()
        );
        assert!(kubelet_usages(&set(&["client auth"]), "client auth").is_err());
    }
}
