//! Volumes that show several sources in one folder.

use std::collections::BTreeSet;

use super::super::super::at::At;
use super::source::{downward_file, key_to_path};

const CONFLICT: &str = "conflicting duplicate paths";

pub(super) fn validate(volume: &At) {
    let mut paths = BTreeSet::new();
    for source in volume.field("sources").items() {
        let mut count = 0;
        for name in ["secret", "configMap"] {
            let files = source.field(name);
            if !files.exists() {
                continue;
            }
            count += 1;
            files.field("name").has_text();
            for item in files.field("items").items() {
                key_to_path(&item);
                let path = item.field("path").text();
                if !path.is_empty() && !paths.insert(path) {
                    volume.invalid_as(files.field("name").text(), CONFLICT);
                }
            }
        }
        let downward = source.field("downwardAPI");
        if downward.exists() {
            count += 1;
            for file in downward.field("items").items() {
                downward_file(&file, &downward);
                let path = file.field("path").text();
                if !path.is_empty() && !paths.insert(path) {
                    volume.invalid_as(path, CONFLICT);
                }
            }
        }
        let token = source.field("serviceAccountToken");
        if token.exists() {
            count += 1;
            service_account_token(&token, volume);
        }
        let bundle = source.field("clusterTrustBundle");
        if bundle.exists() {
            count += 1;
            trust_bundle(&bundle);
            if !paths.insert(bundle.field("path").text()) {
                volume.invalid_as(bundle.field("path").text(), CONFLICT);
            }
        }
        count += usize::from(source.field("podCertificate").exists());
        if count > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn service_account_token(token: &At, volume: &At) {
    let expiration = token.field("expirationSeconds");
    match expiration.number() {
        None => expiration.required(""),
        Some(seconds) if seconds < 600 => {
            expiration.invalid("may not specify a duration less than 10 minutes")
        }
        Some(seconds) if seconds > 1 << 32 => {
            expiration.invalid("may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    // The path is shown as one of the volume's.
    let place = volume.alias("path");
    let path = place.with(token.field("path").value());
    if path.has_text() {
        path.unreserved_path();
    }
}

fn trust_bundle(bundle: &At) {
    match (bundle.field("name").exists(), bundle.field("signerName").exists()) {
        (true, true) => bundle.invalid("only one of name and signerName may be used"),
        (false, false) => bundle.required("either name or signerName must be specified"),
        (true, false) if bundle.field("name").is_empty() => {
            bundle.field("name").required("must be a valid object name");
        }
        (false, true) if bundle.field("signerName").is_empty() => {
            bundle.field("signerName").required("must be a valid signer name");
        }
        _ => {}
    }
    bundle.field("path").has_text();
    bundle.field("path").unreserved_path();
}
