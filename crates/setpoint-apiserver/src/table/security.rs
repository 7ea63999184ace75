//! Roles, their bindings, and certificates.

use jiff::SignedDuration;
use serde_json::Value;

use super::cells::{human_duration, labels, list, name, text, text_or};
use super::{AGE, Column, NAME, Printer};

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "rolebindings" | "clusterrolebindings" => &BINDING,
        "certificatesigningrequests" => &SIGNING_REQUEST,
        "clustertrustbundles" => &TRUST_BUNDLE,
        "podcertificaterequests" => &POD_CERTIFICATE_REQUEST,
        _ => return None,
    })
}

const BINDING: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Role", "The role that the binding gives."),
        AGE,
        Column::text("Users", "The users who get it.").wide(),
        Column::text("Groups", "The groups that get it.").wide(),
        Column::text("ServiceAccounts", "The service accounts that get it.").wide(),
    ],
    cells: |object, context| {
        let subjects = |kind: &str, text: &dyn Fn(&Value) -> String| {
            let found = list(object, "/subjects").iter().filter(|s| super::text(s, "/kind") == kind);
            Value::from(found.map(text).collect::<Vec<_>>().join(", "))
        };
        let plain = |subject: &Value| text(subject, "/name").to_owned();
        let namespaced =
            |subject: &Value| format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"));
        vec![
            name(object),
            format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into(),
            context.age(object),
            subjects("User", &plain),
            subjects("Group", &plain),
            subjects("ServiceAccount", &namespaced),
        ]
    },
};

const SIGNER: Column = Column::text("SignerName", "Who signs, or has signed.");

const SIGNING_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        SIGNER,
        Column::text("Requestor", "Who asks for the certificate."),
        Column::text("RequestedDuration", "How long the certificate should be good."),
        Column::text("Condition", "Whether it is approved and issued."),
    ],
    cells: |object, context| {
        let duration = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
        let duration = duration.map_or_else(
            || "<none>".to_owned(),
            |seconds| human_duration(SignedDuration::from_secs(seconds)),
        );
        vec![
            name(object),
            context.age(object),
            text_or(object, "/spec/signerName", "<none>").into(),
            text(object, "/spec/username").into(),
            duration.into(),
            signing_status(object).into(),
        ]
    },
};

fn signing_status(request: &Value) -> String {
    let has = |kind| list(request, "/status/conditions").iter().any(|found| text(found, "/type") == kind);
    let mut status = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

const TRUST_BUNDLE: Printer = Printer {
    columns: &[NAME, SIGNER],
    cells: |object, _| vec![name(object), text_or(object, "/spec/signerName", "<none>").into()],
};

const POD_CERTIFICATE_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        Column::text("PodName", "The pod that the certificate is for."),
        Column::text("ServiceAccountName", "The service account of the pod."),
        Column::text("NodeName", "The node of the pod."),
        SIGNER,
        Column::text("State", "Pending, Issued, Denied or Failed."),
        Column::text("UnverifiedUserAnnotations", "What the pod tells the signer."),
    ],
    cells: |object, _| {
        let conditions = list(object, "/status/conditions").iter().rev();
        let mut states = conditions.map(|found| text(found, "/type"));
        let state = states.find(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"));
        vec![
            name(object),
            text(object, "/spec/podName").into(),
            text(object, "/spec/serviceAccountName").into(),
            text(object, "/spec/nodeName").into(),
            text(object, "/spec/signerName").into(),
            state.unwrap_or("Pending").into(),
            labels(object, "/spec/unverifiedUserAnnotations").into(),
        ]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_signing_request_shows_how_far_it_is() {
        let check = |conditions: &[&str], certificate: &str, expect: &str| {
            let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind})).collect();
            let request = json!({"status": {"conditions": conditions, "certificate": certificate}});
            assert_eq!(signing_status(&request), expect);
        };
        check(&[], "", "Pending");
        check(&["Approved"], "eA==", "Approved,Issued");
        check(&["Approved", "Failed"], "", "Approved,Failed");
        check(&["Approved", "Denied"], "", "Denied");
    }
}
