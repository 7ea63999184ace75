//! `cargo xtask load hostile`: somebody with a valid token, few rights and bad intentions, beside somebody decent.

mod http2;
#[path = "../../../crates/setpoint-cli/tests/hostile/requests.rs"]
mod requests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use super::checks::Checks;
use super::connection::Connection;
use super::latencies::Latencies;
use super::server::Server;

const TOKENS: &str = "hostile,hostile,2\n";
const PATIENCE: Duration = Duration::from_millis(300);
const AFTERWARDS: Duration = Duration::from_secs(10);
/// How many connections attack at the same time over HTTP/2, each as fast as it can.
const HTTP_2_AT_ONCE: usize = 16;

type Stream = StreamOwned<ClientConnection, TcpStream>;

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
    /// How many connections each attack on HTTP/2 gets.
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

/// What a server may take at most, in MiB: at any time, and ten seconds after the last attack.
const PEAK: f64 = 700.0;
const CALM: f64 = 150.0;
/// The p99 of others, in milliseconds.
const OTHERS: f64 = 50.0;

pub(crate) fn run(options: &Options, binary: &Path, on: &Path, mut checks: Checks) -> Result<()> {
    for (engine, in_memory) in [("memory", true), ("redb", false)] {
        println!("== {engine}");
        against(options, binary, on, in_memory, &mut checks)?;
    }
    checks.finish()
}

fn against(options: &Options, binary: &Path, on: &Path, in_memory: bool, checks: &mut Checks) -> Result<()> {
    let folder = TempDir::new_in(on)?;
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, TOKENS)?;
    let tokens = tokens.display().to_string();
    let server = Server::start_with(binary, &folder, in_memory, &["--token-file", &tokens])?;
    let attacker = Attacker::new(&server)?;
    prepare(&mut server.connect()?)?;
    println!("resident at the start            {:.1} MiB", server.resident()?);
    quiet(&server, 3_000)?.print("alone");

    let mut times: BTreeMap<usize, Duration> = BTreeMap::new();
    let (in_a_row, codes) = beside(&server, || {
        let mut codes = Answers::default();
        for n in 0..options.requests {
            let begun = Instant::now();
            codes.add(attacker.send(n), n);
            *times.entry(n % requests::KINDS).or_default() += begun.elapsed();
        }
        codes
    })?;
    report(checks, &in_a_row, "beside hostile ones in a row");
    println!("  answers: {codes}");
    print_slowest(times);

    let held: Vec<_> = (0..options.slow).filter_map(|n| attacker.hold(n).ok()).collect();
    let (at_once, codes) = beside(&server, || {
        let codes = Mutex::new(Answers::default());
        each_at_once(options.threads, options.requests, |n| {
            let code = attacker.send(n);
            codes.lock().expect("nobody panics").add(code, n);
        });
        codes.into_inner().expect("nobody panics")
    })?;
    report(checks, &at_once, "beside hostile ones at once");
    println!("  answers: {codes}; {} slow connections were held", held.len());
    drop(held);

    for attack in http2::ATTACKS {
        let (others, sent) = beside(&server, || {
            let sent = AtomicUsize::new(0);
            each_at_once(options.threads.min(HTTP_2_AT_ONCE), options.connections, |_| {
                // The server hangs up on most of them. That is what it should do.
                let bytes = attacker.http2().map_or(0, |mut stream| attack.run(&mut stream, "hostile"));
                sent.fetch_add(bytes, Ordering::Relaxed);
            });
            sent.into_inner()
        })?;
        report(checks, &others, attack.name);
        println!("  {:.1} MiB sent", sent as f64 / (1 << 20) as f64);
    }

    // Whoever is left waits for an answer, and the allocator gives memory back after a second.
    thread::sleep(AFTERWARDS);
    checks.at_most("most resident memory", server.peak()?, PEAK, "MiB");
    checks.at_most("resident ten seconds later", server.resident()?, CALM, "MiB");
    examine(&mut server.connect()?)
}

/// How often each status code was answered, and to which kinds of requests those that say that something is wrong with the server.
#[derive(Default)]
struct Answers {
    codes: BTreeMap<u16, usize>,
    failed: BTreeMap<u16, BTreeSet<usize>>,
}

impl Answers {
    fn add(&mut self, code: u16, n: usize) {
        *self.codes.entry(code).or_insert(0) += 1;
        if code >= 500 {
            self.failed.entry(code).or_default().insert(n % requests::KINDS);
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.codes)?;
        self.failed.iter().try_for_each(|(code, kinds)| write!(f, "; {code} to kinds {kinds:?}"))
    }
}

fn report(checks: &mut Checks, others: &Latencies, what: &str) {
    others.print(what);
    checks.at_most(&format!("  p99 of others, {what}"), others.at(0.99), OTHERS, "ms");
}

/// Runs something with each number below `count`, a few at the same time.
fn each_at_once(threads: usize, count: usize, run: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let n = next.fetch_add(1, Ordering::Relaxed)
                    && n < count
                {
                    run(n);
                }
            });
        }
    });
}

/// Whether the server works, and nobody has got what they must not have.
fn examine(admin: &mut Connection) -> Result<()> {
    let (status, _) = admin.send("GET", "/readyz", b"")?;
    ensure!(status == 200, "the server is not ready: {status}");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/mine";
    let (status, _) = admin.send("GET", bindings, b"")?;
    ensure!(status == 404, "the hostile user has made itself an administrator");
    let (_, metrics) = admin.send("GET", "/metrics", b"")?;
    let metrics = String::from_utf8_lossy(metrics);
    let panics = metrics.lines().filter(|line| line.contains("_panics_total") && !line.starts_with('#'));
    let panics: Vec<_> = panics.filter(|line| !line.ends_with(" 0")).collect();
    ensure!(panics.is_empty(), "something has panicked: {}", panics.join(", "));
    let admin = RefCell::new(admin);
    let read = |path: &str| {
        let mut admin = admin.borrow_mut();
        admin.send("GET", path, b"").map_or_else(
            |error| error.to_string(),
            |(_, answer)| String::from_utf8_lossy(answer).into_owned(),
        )
    };
    match requests::trespass(read) {
        None => Ok(()),
        Some(found) => bail!("the hostile user has changed what it must not: {found}"),
    }
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

/// What both need, and what the hostile user may do.
fn prepare(admin: &mut Connection) -> Result<()> {
    let map = json!({"metadata": {"name": "decent"}, "data": {"a": "b"}}).to_string();
    let decent = ("/api/v1/namespaces/default/configmaps".to_owned(), map);
    for (path, body) in requests::prepared("hostile").into_iter().chain([decent]) {
        let (status, answer) = admin.send("POST", &path, body.as_bytes())?;
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
fn beside<T>(server: &Server, attack: impl FnOnce() -> T) -> Result<(Latencies, T)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = scope.spawn(|| -> Result<Latencies> {
            let mut connection = server.connect()?;
            let mut times = Vec::new();
            // One at least, however short the attack is.
            while times.is_empty() || !stop.load(Ordering::Relaxed) {
                times.push(decent(&mut connection, times.len())?);
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
    /// The same for HTTP/2.
    http2: Arc<ClientConfig>,
}

impl Attacker {
    fn new(server: &Server) -> Result<Self> {
        let kubeconfig = server.kubeconfig();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&kubeconfig.ca)?)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut http2 = tls.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let address = kubeconfig.address.clone();
        Ok(Self { address, tls: Arc::new(tls), http2: Arc::new(http2) })
    }

    fn connect(&self) -> Result<Stream> {
        self.connect_with(&self.tls)
    }

    fn http2(&self) -> Result<Stream> {
        self.connect_with(&self.http2)
    }

    fn connect_with(&self, tls: &Arc<ClientConfig>) -> Result<Stream> {
        let stream = TcpStream::connect(&self.address).context("the server does not listen any more")?;
        // Otherwise the request waits, after the handshake, for an acknowledgement that Linux sends 40 ms later.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let connection = ClientConnection::new(Arc::clone(tls), ServerName::try_from("localhost")?)?;
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
    fn hold(&self, n: usize) -> Result<Stream> {
        let mut stream = self.connect()?;
        stream.write_all(format!("GET /api/v1/namespaces HTTP/1.1\r\nX-{n}: ").as_bytes())?;
        Ok(stream)
    }
}
