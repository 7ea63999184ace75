//! Webhooks that are down, slow, rude, or somebody else.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use setpoint::Env;
use setpoint::webhook::{AdmissionRequest, Verdict};
use setpoint_env::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::{MUTATING, Pair, VALIDATING, base64};

/// A TLS server that answers everything with these bytes.
struct Rude {
    url: String,
    ca_bundle: String,
    _serving: Task<()>,
}

impl Rude {
    async fn start(answer: String) -> Rude {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()];
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/rude", listener.local_addr().unwrap());
        let serving = Env::system().spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut seen = [0; 16 * 1024];
                let _ = stream.read(&mut seen).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Rude { url, ca_bundle: made.cert.pem(), _serving: serving }
    }

    /// What a create is answered when this is the webhook.
    async fn refusal(&self, kind: &str) -> (u16, String) {
        let mut pair = Pair::start(|server| server).await;
        pair.ca_bundle.clone_from(&self.ca_bundle);
        pair.register_at(kind, "rude", json!({"url": self.url}), json!({})).await;
        pair.refusal("a", "1").await
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

async fn check(answer: String, kind: &str, expect: &str) {
    let (code, message) = Rude::start(answer).await.refusal(kind).await;
    let start = "Internal error occurred: failed calling webhook \"rude.example.com\": ";
    assert_eq!(code, 500, "{message}");
    let words = message.strip_prefix(start).unwrap_or_else(|| panic!("{message}"));
    assert!(words.contains(expect), "{words}");
}

#[tokio::test]
async fn rubbish_is_told_apart_and_stops_the_request() {
    let review = |response: &str| {
        ok(&format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{response}}}"#
        ))
    };
    check(ok("<html>"), VALIDATING, "the webhook's answer cannot be used: invalid character '<'").await;
    check(ok("{}"), VALIDATING, "expected webhook response of admission.k8s.io/v1").await;
    check(review("null"), VALIDATING, "received invalid webhook response: webhook response was absent").await;
    check(review(r#"{"uid":"other","allowed":true}"#), VALIDATING, "expected response.uid=").await;
    check("nonsense".to_owned(), VALIDATING, "failed to call webhook: Post \"https://127.0.0.1:").await;
    let error = "HTTP/1.1 503 Down\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy";
    check(error.to_owned(), MUTATING, "failed to call webhook: the webhook answered 503: busy").await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Rude::start(ok("{}")).await;
    let redirect = format!(
        "HTTP/1.1 307 Elsewhere\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        target.url
    );
    check(redirect, VALIDATING, "failed to call webhook: the webhook answered 307").await;
}

#[tokio::test]
async fn a_server_that_the_bundle_does_not_trust_is_not_asked() {
    let rude = Rude::start(ok("{}")).await;
    let other = Rude::start(ok("{}")).await;
    let rude = Rude { ca_bundle: other.ca_bundle.clone(), ..rude };
    let (code, message) = rude.refusal(VALIDATING).await;
    assert_eq!(code, 500);
    assert!(message.contains("invalid peer certificate"), "{message}");
}

#[tokio::test]
async fn a_webhook_that_is_down_stops_requests_unless_it_may_be_ignored() {
    let pair = Pair::start(|server| server).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let at = json!({"url": format!("https://{gone}/")});
    pair.register_at(VALIDATING, "ignored", at.clone(), json!({"failurePolicy": "Ignore"})).await;
    pair.create("a", "1").await.unwrap();
    pair.register_at(VALIDATING, "needed", at, json!({"failurePolicy": "Fail"})).await;
    let (code, message) = pair.refusal("b", "1").await;
    let start = format!(
        "Internal error occurred: failed calling webhook \"needed.example.com\": failed to call webhook: Post \
         \"https://{gone}/?timeout=10s\": "
    );
    assert_eq!(code, 500);
    assert!(message.starts_with(&start), "{message}");
}

#[tokio::test]
async fn a_webhook_that_never_answers_is_waited_for_no_longer_than_its_limit() {
    let never =
        |_: AdmissionRequest<k8s_openapi::api::core::v1::ConfigMap>| std::future::pending::<Verdict>();
    let pair = Pair::start(|server| server.validate("/never", never)).await;
    pair.register(VALIDATING, "never", "/never", json!({"timeoutSeconds": 3})).await;
    // From here on, waiting takes no time.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let (code, message) = pair.refusal("a", "1").await;
    assert_eq!(code, 500);
    assert!(message.ends_with("?timeout=3s\": context deadline exceeded"), "{message}");
    assert!(begun.elapsed().as_secs() < 4, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_review_that_does_not_come_is_not_waited_for() {
    let allow = |_: AdmissionRequest<k8s_openapi::api::core::v1::ConfigMap>| async { Verdict::allow() };
    let pair = Pair::start(|server| server.validate("/check", allow)).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pair.ca_bundle.as_bytes()).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(pair.address).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls));
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream.write_all(b"POST /check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    // From here on, waiting takes no time.
    tokio::time::pause();
    let mut status = [0; 12];
    let minute = std::time::Duration::from_secs(60);
    tokio::time::timeout(minute, stream.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_and_the_next_call_works() {
    let panics = |request: AdmissionRequest<k8s_openapi::api::core::v1::ConfigMap>| async move {
        assert!(request.name != "bad", "this one is bad");
        Verdict::allow()
    };
    let pair = Pair::start(|server| server.validate("/panics", panics)).await;
    pair.register(VALIDATING, "panics", "/panics", json!({})).await;
    let (code, message) = pair.refusal("bad", "1").await;
    assert_eq!(code, 500);
    assert!(message.ends_with("the webhook answered 500: the handler panicked"), "{message}");
    pair.create("good", "1").await.unwrap();
}

#[tokio::test]
async fn bad_configurations_are_refused_with_every_problem() {
    let pair = Pair::start(|server| server).await;
    let hooks: kube::Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        kube::Api::all(pair.server.client());
    let bad = serde_json::from_value(json!({"metadata": {"name": "bad"}, "webhooks": [{
        "name": "short", "sideEffects": "Some", "admissionReviewVersions": ["v9"], "timeoutSeconds": 99,
        "clientConfig": {"url": "http://x/", "caBundle": base64("no")},
        "rules": [{"apiGroups": ["*", "apps"], "apiVersions": [], "resources": ["pods"], "operations": ["EAT"]}]
    }]}))
    .unwrap();
    let outcome = hooks.create(&kube::api::PostParams::default(), &bad).await;
    let (code, message) = super::support::refusal(outcome);
    assert_eq!(code, 422);
    for part in [
        "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments",
        "webhooks[0].rules[0].operations[0]: Unsupported value: \"EAT\"",
        "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present",
        "webhooks[0].rules[0].apiVersions: Required value",
        "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        "webhooks[0].timeoutSeconds: Invalid value: 99: the timeout value must be between 1 and 30 seconds",
        "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
        "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
    ] {
        assert!(message.contains(part), "{part}\nis not in\n{message}");
    }
}
