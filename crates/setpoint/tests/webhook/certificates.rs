//! The certificate of a webhook server changes while it serves.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use setpoint::Env;
use setpoint::webhook::{CertificateError, Certificates, WebhookServer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Writes a new certificate; what a client must trust.
fn renew(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

async fn shakes_hands(address: std::net::SocketAddr, trusted: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn new_connections_get_the_certificate_that_the_files_have_now() {
    let folder = tempfile::tempdir().unwrap();
    let first = renew(folder.path());
    let files = Certificates::files(folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let env = Env::seeded(1);
    let serving = env.spawn(WebhookServer::new(files).env(env.clone()).serve(listener, shutdown.clone()));
    tokio::time::resume();
    assert!(shakes_hands(address, &first).await);

    std::fs::write(folder.path().join("tls.crt"), "half written").unwrap();
    look().await;
    assert!(shakes_hands(address, &first).await, "an unusable file changes nothing");

    let second = renew(folder.path());
    look().await;
    assert!(shakes_hands(address, &second).await);
    assert!(!shakes_hands(address, &first).await);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

/// Lets the server look at its files: it does so every ten seconds. Paused time does not go on while another thread reads
/// a file for the server, so a look that has begun is over afterwards.
async fn look() {
    tokio::time::pause();
    tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = WebhookServer::new(Certificates::files("/nowhere/tls.crt", "/nowhere/tls.key"));
    let error = server.serve(listener, CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, CertificateError::Read { .. }));
    assert_eq!(error.to_string(), "cannot read /nowhere/tls.crt");
}
