//! Changing through a subresource, or in the name of somebody else, what one may not change.

use super::{Attack, NAMESPACE, own};

pub(super) const KINDS: usize = 9;

/// The pod that an administrator has made in the hostile user's namespace.
const POD: &str = "guarded";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// In what the server has stored, this word and that name are signs that an attack has worked.
const SIGNS: [&str; 2] = ["trespass", "system:admin"];
/// A request for a certificate of `CN=hostile`, in PEM, in base64.
const PKCS_10: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITU1IUUNBUUF3RWpFUU1BNEdBMVVFQXd3SGFHOXpkR2xzWlRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OQpBd0VIQTBJQUJNdHNJc3BDNEFTSEowWVRGNjhTU0hXVUVjQVg4UHNCd0pxdFp3bE5XVG5xOFU0WUVYcTdLNVluCnFUZTVOUkQwN3VKS3Q0R3ZzbDNBQmt4UllLZVlHWE9nQURBS0JnZ3Foa2pPUFFRREFnTklBREJGQWlBcUlmcFcKZ202cU1WWEsrbUtqOU9KcTRJbElFT0xuOTYvMTMweHcyTmNGUndJaEFNUzRWT2t5UDRNZjYzaGZIc0drNGhoNAoxUHhDMFFCRmZTOGsrdVAxc1ZHeQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

/// What an administrator makes before: paths and bodies. The user may edit one namespace, use the subresources of pods that are
/// attacked, and ask for certificates.
pub(crate) fn prepared(user: &str) -> Vec<(String, String)> {
    let rbac = "apis/rbac.authorization.k8s.io/v1";
    let subject = format!(r#"[{{"kind":"User","name":"{user}"}}]"#);
    let bind = |name: &str, role: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"subjects":{subject},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}}}}"#
        )
    };
    let role = r#"{"metadata":{"name":"requester"},"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests"],"verbs":["create","get","update","patch"]},{"apiGroups":[""],"resources":["pods/ephemeralcontainers","pods/resize"],"verbs":["update","patch"]}]}"#;
    let account = r#"{"metadata":{"name":"guarded"}}"#;
    let pod = format!(
        r#"{{"metadata":{{"name":"{POD}"}},"spec":{{"serviceAccountName":"guarded","containers":[{{"name":"c","image":"i","resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
    );
    vec![
        ("/api/v1/namespaces".to_owned(), format!(r#"{{"metadata":{{"name":"{NAMESPACE}"}}}}"#)),
        (own(rbac, "rolebindings"), bind("own", "edit")),
        (format!("/{rbac}/clusterroles"), role.to_owned()),
        (format!("/{rbac}/clusterrolebindings"), bind("requesters", "requester")),
        (own("api/v1", "serviceaccounts"), account.to_owned()),
        (own("api/v1", "pods"), pod),
    ]
}

/// What an administrator reads afterwards, and what must not be in it.
pub(crate) fn trespass(read: impl Fn(&str) -> String) -> Option<String> {
    [own("api/v1", &format!("pods/{POD}")), REQUESTS.to_owned()].into_iter().find_map(|path| {
        let found = read(&path);
        let has_signs = SIGNS.iter().any(|sign| found.contains(sign));
        // A page that was not found would have none.
        let is_there = found.contains("creationTimestamp");
        (has_signs || !is_there).then(|| format!("{path}: {found}"))
    })
}

pub(super) fn attack(n: usize, round: usize) -> Attack {
    let subresource = |name: &str| own("api/v1", &format!("pods/{POD}/{name}"));
    let spec = r#""spec":{"hostPID":true,"serviceAccountName":"trespass","nodeSelector":{"a":"trespass"},"containers":[{"name":"c","image":"trespass","securityContext":{"privileged":true},"resources":{"requests":{"cpu":"2"}}}],"tolerations":[{"key":"trespass","operator":"Exists"}]}"#;
    let whole = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{POD}","namespace":"{NAMESPACE}","labels":{{"a":"trespass"}},"finalizers":["example.com/trespass"]}},{spec},"status":{{"phase":"Running","message":"trespass"}}}}"#
    );
    let patch = |name: &str, media: &'static str| Attack {
        method: "PATCH",
        path: subresource(name),
        media,
        body: format!(r#"{{"metadata":{{"annotations":{{"a":"trespass"}}}},{spec}}}"#),
    };
    let request = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"request":"{PKCS_10}","signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"username":"system:admin","uid":"system:admin","groups":["system:admin"],"extra":{{"system:admin":["x"]}}}},"status":{{"conditions":[{{"type":"Approved","status":"True","reason":"trespass"}}]}}}}"#
        )
    };
    match n {
        0 => Attack::json("PUT", subresource("ephemeralcontainers"), whole),
        1 => Attack::json("PUT", subresource("resize"), whole),
        2 => patch("ephemeralcontainers", "application/merge-patch+json"),
        3 => patch("resize", "application/strategic-merge-patch+json"),
        4 => Attack::json("PUT", subresource("status"), whole),
        5 => Attack::json("POST", REQUESTS, request("hostile")),
        6 => Attack::json("PUT", format!("{REQUESTS}/hostile"), request("hostile")),
        7 => Attack {
            method: "PATCH",
            path: format!(
                "{REQUESTS}/hostile/{}",
                if round.is_multiple_of(2) { "approval" } else { "status" }
            ),
            media: "application/merge-patch+json",
            body: request("hostile"),
        },
        _ => Attack {
            method: "PATCH",
            path: format!("{REQUESTS}/hostile"),
            media: "application/json-patch+json",
            body: r#"[{"op":"replace","path":"/spec/username","value":"system:admin"}]"#.to_owned(),
        },
    }
}
