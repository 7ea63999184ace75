//! `cargo xtask load hostile`: somebody with a valid token, few rights and bad intentions, beside somebody decent.

#[path = "../../../crates/setpoint-cli/tests/hostile/requests.rs"]
mod requests;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use super::connection::Connection;
use super::latencies::Latencies;
use super::server::Server;

const TOKENS: &str = "hostile,hostile,2\n";
const PATIENCE: Duration = Duration::from_millis(300);
const CALM: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many hostile requests are sent in a row, and again at once.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// How many of them at once.
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// Connections that begin a request and never end it.
    #[arg(long, default_value_t = 500)]
    slow: usize,
}

pub(crate) fn run(options: &Options, binary: &Path, on: &Path) -> Result<()> {
    let folder = TempDir::new_in(on)?;
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, TOKENS)?;
    let server = Server::start_with(binary, &folder, true, &["--token-file", &tokens.display().to_string()])?;
    let attacker = Attacker::new(&server)?;
    let mut admin = server.connect()?;
    prepare(&mut admin)?;
    println!("resident at the start            {:.1} MiB", server.resident()?);

    let stop = Arc::new(AtomicBool::new(false));
    quiet(&server, 3_000)?.print("alone");

    let most = AtomicUsize::new(0);
    let mut times: BTreeMap<usize, Duration> = BTreeMap::new();
    let (in_a_row, codes) = beside(&server, &stop, &most, || {
        let mut codes = BTreeMap::new();
        for n in 0..options.requests {
            let begun = Instant::now();
            *codes.entry(attacker.send(n)).or_insert(0) += 1;
            *times.entry(n % requests::KINDS).or_default() += begun.elapsed();
        }
        codes
    })?;
    in_a_row.print("beside hostile ones in a row");
    println!("  answers: {codes:?}");
    print_slowest(times);

    stop.store(false, Ordering::Relaxed);
    let held: Vec<_> = (0..options.slow).filter_map(|n| attacker.hold(n).ok()).collect();
    let (at_once, codes) = beside(&server, &stop, &most, || {
        let codes = Mutex::new(BTreeMap::new());
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..options.threads {
                scope.spawn(|| {
                    while let n = next.fetch_add(1, Ordering::Relaxed)
                        && n < options.requests
                    {
                        let code = attacker.send(n);
                        *codes.lock().expect("nobody panics").entry(code).or_insert(0) += 1;
                    }
                });
            }
        });
        codes.into_inner().expect("nobody panics")
    })?;
    at_once.print("beside hostile ones at once");
    println!("  answers: {codes:?}; {} slow connections were held", held.len());
    println!("most resident memory             {} MiB", most.load(Ordering::Relaxed));
    drop(held);

    let (status, _) = server.connect()?.send("GET", "/readyz", b"")?;
    ensure!(status == 200, "the server is not ready: {status}");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/mine";
    let (status, _) = server.connect()?.send("GET", bindings, b"")?;
    ensure!(status == 404, "the hostile user has made itself an administrator");
    println!("resident at the end              {:.1} MiB", server.resident()?);
    // What has no client any more is still answered, and the allocator gives memory back after a second.
    thread::sleep(CALM);
    println!("resident ten seconds later       {:.1} MiB", server.resident()?);
    Ok(())
}

/// Which attacks took most of the time, by their numbers in `requests.rs`.
fn print_slowest(times: BTreeMap<usize, Duration>) {
    let all: Duration = times.values().sum();
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let slowest: Vec<_> =
        times.iter().take(5).map(|(kind, time)| format!("{kind}: {:.1} s", time.as_secs_f64())).collect();
    println!("  {:.1} s in all; the slowest attacks: {}", all.as_secs_f64(), slowest.join(", "));
}

/// The namespaces of both, and what the hostile user may do in its own.
fn prepare(admin: &mut Connection) -> Result<()> {
    let namespace = requests::NAMESPACE;
    let binding = json!({
        "metadata": {"name": "own"}, "subjects": [{"kind": "User", "name": "hostile"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    });
    let map = json!({"metadata": {"name": "decent"}, "data": {"a": "b"}});
    for (path, body) in [
        ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": namespace}})),
        (format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"), binding),
        ("/api/v1/namespaces/default/configmaps".to_owned(), map),
    ] {
        let (status, answer) = admin.send("POST", &path, body.to_string().as_bytes())?;
        ensure!(status == 201, "POST {path} answered {status}: {}", String::from_utf8_lossy(answer));
    }
    Ok(())
}

/// One decent request after the other: three reads and a write.
fn decent(connection: &mut Connection, n: usize) -> Result<Duration> {
    let path = "/api/v1/namespaces/default/configmaps/decent";
    let begun = Instant::now();
    let (status, _) = if n % 4 == 3 {
        let body = json!({"metadata": {"name": "decent"}, "data": {"a": n.to_string()}});
        connection.send("PUT", path, body.to_string().as_bytes())?
    } else {
        connection.send("GET", path, b"")?
    };
    ensure!(status == 200, "a decent request was answered {status}");
    Ok(begun.elapsed())
}

fn quiet(server: &Server, count: usize) -> Result<Latencies> {
    let mut connection = server.connect()?;
    let times = (0..count).map(|n| decent(&mut connection, n)).collect::<Result<Vec<_>>>()?;
    Ok(Latencies::new(times))
}

/// Sends decent requests, a thousand a second at most, while `attack` runs.
fn beside<T>(
    server: &Server,
    stop: &AtomicBool,
    most: &AtomicUsize,
    attack: impl FnOnce() -> T,
) -> Result<(Latencies, T)> {
    thread::scope(|scope| {
        let client = scope.spawn(|| -> Result<Latencies> {
            let mut connection = server.connect()?;
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                times.push(decent(&mut connection, times.len())?);
                if times.len() % 100 == 0 {
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    most.fetch_max(server.resident()? as usize, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok(Latencies::new(times))
        });
        let outcome = attack();
        stop.store(true, Ordering::Relaxed);
        let latencies = client.join().map_err(|_| anyhow::anyhow!("the decent client panicked"))??;
        Ok((latencies, outcome))
    })
}

struct Attacker {
    address: String,
    tls: Arc<ClientConfig>,
}

impl Attacker {
    fn new(server: &Server) -> Result<Self> {
        let kubeconfig = server.kubeconfig();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&kubeconfig.ca)?)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address: kubeconfig.address.clone(), tls: Arc::new(tls) })
    }

    fn connect(&self) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let stream = TcpStream::connect(&self.address).context("the server does not listen any more")?;
        // Otherwise the request waits, after the handshake, for an acknowledgement that Linux sends 40 ms later.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let connection = ClientConnection::new(Arc::clone(&self.tls), ServerName::try_from("localhost")?)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The code of the answer; 0 if there is none.
    fn send(&self, n: usize) -> u16 {
        let Ok(mut stream) = self.connect() else { return 0 };
        let _heard = stream.write_all(&requests::request(n, "hostile"));
        let mut start = [0; 12];
        if stream.read_exact(&mut start).is_err() {
            return 0;
        }
        let code = std::str::from_utf8(&start).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
        code.unwrap_or_default()
    }

    /// A request that is begun and never ended.
    fn hold(&self, n: usize) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut stream = self.connect()?;
        stream.write_all(format!("GET /api/v1/namespaces HTTP/1.1\r\nX-{n}: ").as_bytes())?;
        Ok(stream)
    }
}
