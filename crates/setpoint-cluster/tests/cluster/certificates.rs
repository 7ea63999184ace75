//! Requests for certificates.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::k8s_openapi::ByteString;
use setpoint::k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use setpoint::kube::api::{Api, Patch, PatchParams};
use setpoint_apiserver::pki::{self, CertificateAuthority};
use setpoint_cluster::Cluster;
use setpoint_env::Env;

use crate::support::{create, field, object, until};

/// Of `jane`, in the groups `dev` and `ops`.
const JANE: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIHlMIGNAgEAMCsxDDAKBgNVBAoMA2RldjEMMAoGA1UECgwDb3BzMQ0wCwYDVQQD
DARqYW5lMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEzDNn/tDLoRHz+Ya4t+em
lbA8RrrHsEMMedADodCMTcFDSYQf1cdOblu18IyiwL9/5Ow5tCM9Qx//Ifr26bTl
FaAAMAoGCCqGSM49BAMCA0cAMEQCIB7CYGzNOGIJx6AtQ7z0jwR7bhxAI5fw2Q2b
z1ie4f2pAiAV5ydwPqzjQu2W9AHwoHe6PPRm3B6SM+8XBtiP6lIx4Q==
-----END CERTIFICATE REQUEST-----
";
/// Of the node `n1`.
const NODE: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIHsMIGSAgEAMDAxFTATBgNVBAoMDHN5c3RlbTpub2RlczEXMBUGA1UEAwwOc3lz
dGVtOm5vZGU6bjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATMM2f+0MuhEfP5
hri356aVsDxGusewQwx50AOh0IxNwUNJhB/Vx05uW7XwjKLAv3/k7Dm0Iz1DH/8h
+vbptOUVoAAwCgYIKoZIzj0EAwIDSQAwRgIhALTMBgIjCUEcQjK++vJesKMLWJAd
cnf6pWW+zBqBPRtrAiEAyeIlZDYaa7X71T/6aLEwJZNoCI2zAE3xvz9iwv354AM=
-----END CERTIFICATE REQUEST-----
";

fn requests(cluster: &Cluster) -> Api<CertificateSigningRequest> {
    Api::all(cluster.client())
}

fn request(name: &str, pem: &str, signer: &str, usages: Value) -> CertificateSigningRequest {
    let spec = json!({
        "request": ByteString(pem.as_bytes().to_vec()), "signerName": signer, "usages": usages, "expirationSeconds": 3600,
    });
    object(json!({"metadata": {"name": name}, "spec": spec}))
}

/// A cluster that signs with an authority, and that authority.
async fn cluster() -> Cluster {
    let authority = CertificateAuthority::generate(&Env::seeded(1)).unwrap();
    Cluster::in_process_with(|builder| builder.signer(authority)).await.unwrap()
}

async fn approve(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "Approved", "status": "True", "reason": "Test", "message": "yes"});
    let patch = json!({"status": {"conditions": [condition]}});
    let parameters = PatchParams::default();
    requests(cluster).patch_subresource("approval", name, &parameters, &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_approved_is_signed_and_deleted_in_the_end() {
    let cluster = cluster().await;
    let client = "kubernetes.io/kube-apiserver-client";
    create(&requests(&cluster), &request("jane", JANE, client, json!(["client auth"]))).await;
    create(&requests(&cluster), &request("wrong", JANE, client, json!(["server auth"]))).await;
    create(&requests(&cluster), &request("others", JANE, "example.com/signer", json!(["client auth"]))).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(field(&requests(&cluster).get("jane").await.unwrap(), "/status/certificate").is_null());
    for name in ["jane", "wrong", "others"] {
        approve(&cluster, name).await;
    }
    let signed = until("a certificate", async || {
        let request = requests(&cluster).get("jane").await.unwrap();
        request.status.and_then(|status| status.certificate).filter(|certificate| !certificate.0.is_empty())
    })
    .await;
    let text = String::from_utf8(signed.0).unwrap();
    assert_eq!(pki::certificates(&text).unwrap().len(), 1);
    let failed = until("a refusal", async || {
        let request = requests(&cluster).get("wrong").await.unwrap();
        let conditions = request.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == "Failed")
    })
    .await;
    assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
    tokio::time::sleep(Duration::from_secs(3700)).await;
    assert!(requests(&cluster).get_opt("jane").await.unwrap().is_none());
    assert!(requests(&cluster).get_opt("others").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert!(requests(&cluster).get_opt("others").await.unwrap().is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_may_have_a_certificate_gets_one_without_being_asked() {
    let cluster = cluster().await;
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let usages = json!(["digital signature", "client auth"]);
    // The client of the test is an administrator, who may have everything.
    create(&requests(&cluster), &request("node", NODE, kubelet, usages.clone())).await;
    create(&requests(&cluster), &request("jane", JANE, kubelet, usages)).await;
    let approved = until("a certificate", async || {
        let request = requests(&cluster).get("node").await.unwrap();
        let has_certificate = !field(&request, "/status/certificate").is_null();
        has_certificate.then_some(request)
    })
    .await;
    assert_eq!(field(&approved, "/status/conditions/0/reason"), "AutoApproved");
    let jane = requests(&cluster).get("jane").await.unwrap();
    assert!(field(&jane, "/status/conditions").is_null());
    cluster.stop().await.unwrap();
}
