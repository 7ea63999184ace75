//! Bundles of certificates that a signer, or nobody in particular, vouches for.

use serde_json::Value;

use super::at::At;
use crate::metadata::names;

pub(super) fn validate(bundle: &At, old: Option<&Value>) {
    let spec = bundle.field("spec");
    let signer = spec.field("signerName");
    if !signer.is_empty() {
        signer.signer_name();
    }
    let metadata = bundle.field("metadata");
    name(&metadata.field("name"), signer.text());
    if let Some(old) = old {
        // Whoever vouches for one signer may not take over the bundle of another.
        let same = signer.text() == old["spec"]["signerName"].as_str().unwrap_or_default();
        if !same {
            signer.invalid_text("field is immutable");
        }
    }
}

/// The signer is a part of the name, so that nobody else can take it.
fn name(name: &At, signer: &str) {
    if signer.is_empty() {
        if name.text().contains(':') {
            return name.invalid("ClusterTrustBundle without signer name must not have \":\" in its name");
        }
        return name.has_form(names::dns1123_subdomain);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.text().strip_prefix(&prefix) {
        Some(rest) => {
            for problem in names::dns1123_subdomain(rest) {
                name.invalid(problem);
            }
        }
        None => name.invalid(format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )),
    }
}
