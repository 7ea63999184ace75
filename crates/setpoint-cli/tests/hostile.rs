//! A client with a valid token, few rights and bad intentions: the small version of `cargo xtask load hostile`.

#[path = "hostile/requests.rs"]
mod requests;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::config::Kubeconfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const TOKENS: &str = "root,root,1,system:masters\nhostile,hostile,2\nvictim,victim,3\n";
/// An answer to bad intentions is not worth waiting for.
const IMPATIENCE: Duration = Duration::from_millis(300);
/// How many each of those sends that attack at once.
const AT_ONCE: usize = 64;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);

struct Server {
    child: Child,
    address: String,
    tls: Arc<ClientConfig>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then the test has failed already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path) -> Server {
        std::fs::write(folder.join("tokens"), TOKENS).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args([
                "up",
                "--listen",
                ":0",
                "--memory",
                "--token-file",
                "tokens",
                "--kubeconfig",
                "kubeconfig",
            ])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("ready in")));
        let kubeconfig = Kubeconfig::read_from(folder.join("kubeconfig")).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
        let ca = BASE64_STANDARD.decode(cluster.certificate_authority_data.unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = cluster.server.unwrap().trim_start_matches("https://").to_owned();
        Server { child, address, tls: Arc::new(tls) }
    }

    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(&self.tls), name).unwrap(), stream)
    }

    /// The code of the answer, if there is one.
    fn attack(&self, n: usize) -> Option<u16> {
        let mut stream = self.connect();
        stream.sock.set_read_timeout(Some(IMPATIENCE)).unwrap();
        // The server may have heard enough before everything is said.
        let _heard = stream.write_all(&requests::request(n, "hostile"));
        let mut start = [0; 12];
        stream.read_exact(&mut start).ok()?;
        std::str::from_utf8(&start).ok()?.split(' ').nth(1)?.parse().ok()
    }

    /// A decent request; its code and what follows.
    fn ask(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: \
             close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A server that ends without a goodbye of TLS has said everything, too.
        let _end = stream.read_to_string(&mut answer);
        let code = answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default();
        (code, answer)
    }

    /// Gives a user the right to edit a namespace of theirs.
    fn settle(&self, user: &str) {
        let namespace = format!("{{\"metadata\":{{\"name\":{user:?}}}}}");
        assert_eq!(self.ask("root", "POST", "/api/v1/namespaces", &namespace).0, 201);
        let binding = format!(
            "{{\"metadata\":{{\"name\":\"own\"}},\"roleRef\":{{\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\
             \"ClusterRole\",\"name\":\"edit\"}},\"subjects\":[{{\"kind\":\"User\",\"name\":{user:?}}}]}}"
        );
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{user}/rolebindings");
        assert_eq!(self.ask("root", "POST", &path, &binding).0, 201);
    }

    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

#[test]
fn a_hostile_client_neither_stops_the_server_nor_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.settle("victim");
    for (path, body) in requests::prepared("hostile") {
        let (code, answer) = server.ask("root", "POST", &path, &body);
        assert_eq!(code, 201, "{answer}");
    }

    // In a row.
    for n in 0..requests::KINDS {
        let code = server.attack(n);
        let is_fine = |code| code < 500 || code == 501 || (code == 500 && requests::is_mistyped(n));
        assert!(code.is_none_or(is_fine), "request {n} was answered {code:?}");
    }
    // At once, beside somebody decent, and with connections that say nothing or never end what they say.
    let held: Vec<_> = (0..50)
        .map(|n| {
            let mut stream = server.connect();
            let half = format!("GET /api/v1/namespaces/hostile/configmaps HTTP/1.1\r\nX-{n}: ");
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..AT_ONCE {
                    server.attack(n * 7 + thread);
                }
            });
        }
        for n in 0..20 {
            let map = format!("{{\"metadata\":{{\"name\":\"map-{n}\"}}}}");
            let (code, answer) = server.ask("victim", "POST", "/api/v1/namespaces/victim/configmaps", &map);
            assert_eq!(code, 201, "{answer}");
        }
    });
    drop(held);

    assert_eq!(server.ask("victim", "GET", "/readyz", "").0, 200);
    let (code, maps) = server.ask("root", "GET", "/api/v1/configmaps", "");
    assert!(code == 200 && (0..20).all(|n| maps.contains(&format!("\"map-{n}\""))));
    let bindings = server.ask("root", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "").1;
    assert!(!bindings.contains("\"mine\""), "the hostile user has made itself an administrator");
    let roles =
        server.ask("root", "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/rolebindings", "").1;
    assert!(!roles.contains("\"mine\""));
    let read = |path: &str| server.ask("root", "GET", path, "").1;
    assert_eq!(requests::trespass(read), None);
    let resident = server.resident_mib();
    assert!(resident < 512, "{resident} MiB");
}

/// The allocator has a thread for it: nobody has to send another request.
#[test]
#[allow(clippy::disallowed_methods, reason = "this measures a real process")]
fn what_large_requests_have_freed_goes_back_to_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let before = server.resident_mib();
    let containers = "{},".repeat(200_000);
    let pod = format!("{{\"metadata\":{{\"name\":\"m\"}},\"spec\":{{\"containers\":[{containers}{{}}]}}}}");
    for _ in 0..3 {
        assert_eq!(server.ask("root", "POST", "/api/v1/namespaces/default/pods", &pod).0, 413);
    }
    let begun = Instant::now();
    // A debug build keeps some for its code. Without the thread it would be twice as much.
    while server.resident_mib() > before + 64 {
        let waited = begun.elapsed();
        assert!(waited < PATIENCE, "{before} MiB before, {} MiB after {waited:?}", server.resident_mib());
        std::thread::sleep(Duration::from_millis(50));
    }
}
