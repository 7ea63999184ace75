//! CertificateSigningRequests: who asks is the server's to say, what is asked for stays, and approving and signing are
//! rights of their own.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::Env;

use crate::support::Api;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

fn params(organization: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params
}

/// A PKCS#10 request, as base64 of PEM.
fn pkcs10(organization: &str) -> String {
    let request = params(organization).serialize_request(&KeyPair::generate().unwrap()).unwrap();
    BASE64_STANDARD.encode(request.pem().unwrap())
}

fn certificate() -> String {
    let certificate = params("developers").self_signed(&KeyPair::generate().unwrap()).unwrap();
    BASE64_STANDARD.encode(certificate.pem())
}

fn request(name: &str, signer: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": signer, "usages": ["client auth"], "request": pkcs10("developers")},
    })
}

fn condition(name: &str) -> Value {
    json!({"type": name, "status": "True", "reason": "Test", "message": "by a test"})
}

/// A server where `jane` may do everything with requests, and some verbs on some signers.
struct World {
    admin: Api,
    jane: Api,
}

impl World {
    async fn new(verbs: &[(&str, &str)]) -> World {
        let server = ApiServer::builder().env(Env::seeded(1)).build();
        let admin = Api::with(server.clone());
        let all = [
            "certificatesigningrequests",
            "certificatesigningrequests/status",
            "certificatesigningrequests/approval",
            "clustertrustbundles",
        ];
        let mut rules = vec![json!({"apiGroups": ["certificates.k8s.io"], "resources": all, "verbs": ["*"]})];
        for (verb, signer) in verbs {
            rules.push(json!({
                "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": [verb],
                "resourceNames": [signer],
            }));
        }
        admin
            .post(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": "r"}, "rules": rules}))
            .await
            .ok();
        let binding = json!({
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        });
        admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.ok();
        let mut jane = User::new("jane", ["developers"]);
        jane.uid = "u-1".to_owned();
        jane.extra.insert("team".to_owned(), vec!["blue".to_owned()]);
        World { admin, jane: Api::as_user(server, jane) }
    }
}

#[tokio::test]
async fn who_asks_for_a_certificate_is_not_the_clients_to_say() {
    let world = World::new(&[]).await;
    let mut forged = request("r", CLIENT);
    forged["spec"]["username"] = "system:node:master".into();
    forged["spec"]["groups"] = json!(["system:masters"]);
    forged["spec"]["uid"] = "forged".into();
    forged["spec"]["extra"] = json!({"forged": ["yes"]});
    forged["status"] = json!({"conditions": [condition("Approved")], "certificate": certificate()});
    let created = world.jane.post(REQUESTS, &forged).await.ok();
    let spec = &created["spec"];
    assert_eq!((&spec["username"], &spec["uid"]), (&json!("jane"), &json!("u-1")));
    assert_eq!(spec["groups"], json!(["developers", "system:authenticated"]));
    assert_eq!(spec["extra"], json!({"team": ["blue"]}));
    assert_eq!(created["status"], json!({}));
    // Nobody who lacks these gets what the client wrote.
    let mut other = forged.clone();
    other["metadata"]["name"] = "admins".into();
    let by_admin = world.admin.post(REQUESTS, &other).await.ok();
    assert_eq!(by_admin["spec"]["username"], "kubernetes-admin");
    assert_eq!((&by_admin["spec"]["uid"], &by_admin["spec"]["extra"]), (&Value::Null, &Value::Null));
    // The same for an object that an apply creates.
    let mut applied = forged.clone();
    applied["metadata"]["name"] = "applied".into();
    applied.as_object_mut().unwrap().remove("status");
    let path = format!("{REQUESTS}/applied?fieldManager=m");
    let applied =
        world.jane.call("PATCH", &path, "application/apply-patch+yaml", applied.to_string()).await.ok();
    assert_eq!(applied["spec"]["username"], "jane");
}

#[tokio::test]
async fn what_is_asked_for_stays_on_every_path() {
    let world = World::new(&[("approve", CLIENT), ("sign", CLIENT)]).await;
    let created = world.jane.post(REQUESTS, &request("r", CLIENT)).await.ok();
    for path in ["", "/status", "/approval"] {
        let mut wanted = created.clone();
        wanted["spec"]["username"] = "root".into();
        wanted["spec"]["request"] = pkcs10("others").into();
        wanted["spec"]["signerName"] = "example.com/other".into();
        wanted["spec"]["usages"] = json!(["server auth"]);
        wanted["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let path = format!("{REQUESTS}/r{path}");
        let changed = world.jane.put(&path, &wanted).await.ok();
        assert_eq!(changed["spec"], created["spec"], "{path}");
        let patch = json!({"spec": {"username": "root", "groups": ["system:masters"]}});
        let changed = world.jane.merge(&path, &patch).await.ok();
        assert_eq!(changed["spec"], created["spec"], "{path}");
    }
}

#[tokio::test]
async fn an_approval_takes_conditions_from_those_who_may_approve() {
    let world = World::new(&[("approve", "kubernetes.io/*")]).await;
    world.jane.post(REQUESTS, &request("r", CLIENT)).await.ok();
    let mut wanted = world.jane.post(REQUESTS, &request("other", "example.com/other")).await.ok();
    wanted["status"]["conditions"] = json!([condition("Approved")]);
    world.jane.put(&format!("{REQUESTS}/other/approval"), &wanted).await.refused(
        403,
        "certificatesigningrequests.certificates.k8s.io \"other\" is forbidden: user not permitted to approve \
         requests with signerName \"example.com/other\"",
    );
    let mut wanted = world.jane.get(&format!("{REQUESTS}/r")).await.ok();
    wanted["status"]["conditions"] = json!([condition("Approved")]);
    wanted["status"]["certificate"] = certificate().into();
    wanted["metadata"]["labels"] = json!({"a": "b"});
    let approved = world.jane.put(&format!("{REQUESTS}/r/approval"), &wanted).await.ok();
    let found = &approved["status"]["conditions"][0];
    assert_eq!((&found["type"], &found["status"]), (&json!("Approved"), &json!("True")));
    assert!(found["lastUpdateTime"].is_string() && found["lastTransitionTime"].is_string(), "{found}");
    assert_eq!(approved["status"]["certificate"], Value::Null, "the signer writes it");
    assert_eq!(approved["metadata"]["labels"]["a"], "b");
    let both = json!({"status": {"conditions": [condition("Approved"), condition("Denied")]}});
    let both = world.jane.merge(&format!("{REQUESTS}/r/approval"), &both).await;
    assert_eq!(both.code, 422);
    let why =
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
    assert!(both.message().contains(why), "{}", both.message());
    let none =
        world.jane.merge(&format!("{REQUESTS}/r/approval"), &json!({"status": {"conditions": []}})).await;
    assert_eq!(none.code, 422);
    let why = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    assert!(none.message().contains(why), "{}", none.message());
    let maybe = json!({"status": {"conditions": [{"type": "Approved", "status": "False"}]}});
    let maybe = world.jane.merge(&format!("{REQUESTS}/r/approval"), &maybe).await;
    assert_eq!(maybe.code, 422);
    let why = "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"";
    assert!(maybe.message().contains(why), "{}", maybe.message());
}

#[tokio::test]
async fn a_status_takes_a_certificate_from_those_who_may_sign() {
    let world = World::new(&[("approve", CLIENT), ("sign", CLIENT)]).await;
    let path = format!("{REQUESTS}/r/status");
    world.jane.post(REQUESTS, &request("r", CLIENT)).await.ok();
    world.jane.post(REQUESTS, &request("other", "example.com/other")).await.ok();
    let signed = json!({"status": {"certificate": certificate()}});
    world.jane.merge(&format!("{REQUESTS}/other/status"), &signed).await.refused(
        403,
        "certificatesigningrequests.certificates.k8s.io \"other\" is forbidden: user not permitted to sign requests \
         with signerName \"example.com/other\"",
    );
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    world.jane.merge(&format!("{REQUESTS}/other/status"), &labels).await.ok();
    let approved = world.jane.merge(&path, &json!({"status": {"conditions": [condition("Approved")]}})).await;
    assert_eq!(approved.code, 422);
    let why = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
    assert!(approved.message().contains(why), "{}", approved.message());
    let text = json!({"status": {"certificate": BASE64_STANDARD.encode("not a certificate")}});
    let text = world.jane.merge(&path, &text).await;
    assert_eq!(text.code, 422);
    let why = "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block";
    assert!(text.message().contains(why), "{}", text.message());
    let failed =
        world.jane.merge(&path, &json!({"status": {"conditions": [condition("Failed")]}})).await.ok();
    assert_eq!(failed["status"]["conditions"][0]["type"], "Failed");
    let done = world.jane.merge(&path, &signed).await.ok();
    assert_eq!(done["status"]["certificate"], signed["status"]["certificate"]);
    let other = world.jane.merge(&path, &json!({"status": {"certificate": certificate()}})).await;
    assert_eq!(other.code, 422);
    let why = "status.certificate: Forbidden: updates may not modify existing certificate content";
    assert!(other.message().contains(why), "{}", other.message());
}

#[tokio::test]
async fn nobody_asks_to_be_a_master() {
    let world = World::new(&[]).await;
    let mut masters = request("r", CLIENT);
    masters["spec"]["request"] = pkcs10("system:masters").into();
    let why = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of \
               kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    world.jane.post(REQUESTS, &masters).await.refused(403, why);
    world.admin.post(REQUESTS, &masters).await.refused(403, why);
    masters["spec"]["signerName"] = "example.com/other".into();
    world.jane.post(REQUESTS, &masters).await.ok();
}

#[tokio::test]
async fn a_request_that_is_none_is_refused() {
    let api = Api::new();
    let cases = [
        ("request", json!(BASE64_STANDARD.encode("x")), "PEM block type must be CERTIFICATE REQUEST"),
        ("usages", json!([]), "spec.usages: Required value"),
        ("usages", json!(["nonsense"]), "spec.usages[0]: Unsupported value: \"nonsense\""),
        ("usages", json!(["client auth", "client auth"]), "spec.usages[1]: Duplicate value: \"client auth\""),
        ("signerName", json!("nonsense"), "must be a fully qualified domain and path of the form"),
        (
            "signerName",
            json!("nonsense/a"),
            "should be a domain with at least two segments separated by dots",
        ),
        ("signerName", json!("kubernetes.io/legacy-unknown"), "the legacy signerName is not allowed"),
        ("expirationSeconds", json!(599), "may not specify a duration less than 600 seconds (10 minutes)"),
    ];
    for (field, value, expect) in cases {
        let mut wanted = request("r", CLIENT);
        wanted["spec"][field] = value;
        let refused = api.post(REQUESTS, &wanted).await;
        assert_eq!(refused.code, 422, "{expect}: {}", refused.body);
        assert!(refused.message().contains(expect), "{expect}: {}", refused.message());
    }
    // A request whose signature is of another key.
    let mut bytes = pem::parse(BASE64_STANDARD.decode(pkcs10("a")).unwrap()).unwrap().into_contents();
    *bytes.last_mut().unwrap() ^= 1;
    let forged = pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", bytes));
    let mut wanted = request("r", CLIENT);
    wanted["spec"]["request"] = BASE64_STANDARD.encode(forged).into();
    let refused = api.post(REQUESTS, &wanted).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(refused.message().contains("spec.request: Invalid value"), "{}", refused.message());
}

#[tokio::test]
async fn a_trust_bundle_of_a_signer_needs_the_right_to_attest() {
    let world = World::new(&[("attest", "example.com/*")]).await;
    let certificate = String::from_utf8(BASE64_STANDARD.decode(certificate()).unwrap()).unwrap();
    let bundle = |signer: &str, name: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": certificate}});
    world.jane.post(BUNDLES, &bundle("example.com/ours", "example.com:ours:a")).await.ok();
    world.jane.post(BUNDLES, &bundle("other.com/theirs", "other.com:theirs:a")).await.refused(
        403,
        "clustertrustbundles.certificates.k8s.io \"other.com:theirs:a\" is forbidden: user not permitted to attest for \
         signerName \"other.com/theirs\"",
    );
    world.admin.post(BUNDLES, &bundle("other.com/theirs", "other.com:theirs:a")).await.ok();
    let mut stolen = world.jane.get(&format!("{BUNDLES}/other.com:theirs:a")).await.ok();
    stolen["spec"]["signerName"] = "example.com/ours".into();
    let stolen = world.jane.put(&format!("{BUNDLES}/other.com:theirs:a"), &stolen).await;
    assert_eq!(stolen.code, 422, "{}", stolen.body);
    assert!(
        stolen.message().contains("spec.signerName: Invalid value: \"example.com/ours\": field is immutable")
    );
}
