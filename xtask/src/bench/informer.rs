//! Informers against a server that replays Pods from memory: ours in its forms, kube-rs, client-go.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS};
use crate::real::peers::{INFORMER, Peers};
use crate::real::process;

const KUBE_RS: &str = "kube-rs";
const CLIENT_GO: &str = "client-go";

/// How long one client may take.
const LIMIT: Duration = Duration::from_secs(600);

const fn less(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, better: Better::Less }
}

/// What is measured, and under which name a client prints it.
const METRICS: [(Metric, &str); 8] = [
    (less("time to sync", "s"), "sync_seconds"),
    (less("CPU to sync", "s"), "sync_cpu_seconds"),
    (less("RSS at sync", "MB"), "sync_rss_mb"),
    (Metric { name: "events", unit: "/s", better: Better::More }, "events_per_second"),
    (less("CPU an event", "µs"), "event_cpu"),
    (less("RSS after events", "MB"), "rss_mb"),
    (less("peak RSS", "MB"), "peak_rss_mb"),
    (Metric { name: "updates told", unit: "", better: Better::More }, "told"),
];

/// Reads of the full cache.
const LOOKUPS: [(Metric, &str); 5] = [
    (less("first read", "µs"), "first_read_us"),
    (less("get", "µs"), "get_us"),
    (less("get, not decoded", "µs"), "held_us"),
    (less("by index", "µs"), "by_index_us"),
    (less("by namespace", "µs"), "namespace_us"),
];

#[derive(clap::Args)]
#[group(id = "informer")]
pub(super) struct Options {
    /// informer: how many Pods the server has.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000])]
    objects: Vec<usize>,
    /// informer: how many changes follow.
    #[arg(long, default_value_t = 500_000)]
    events: u64,
}

/// A client to measure.
struct Client {
    side: String,
    program: PathBuf,
    arguments: &'static [&'static str],
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let ours = bench_binary("setpoint-bench", bench)?;
    let clients = clients(bench, &ours)?;
    let objects = if bench.quick { &vec![10_000] } else { &bench.informer.objects };
    let events = if bench.quick { 50_000 } else { bench.informer.events };
    for objects in objects {
        let case = format!("informer of {objects} Pods, {events} events");
        for _ in 0..bench.rounds() {
            for client in &clients {
                let result = measure(&ours, client, *objects, events)?;
                println!(
                    "      {case}, {}: {:.0} events/s",
                    client.side,
                    number(&result, "events_per_second")
                );
                figures.add(&case, &client.side, &turn(&METRICS, &result));
                if !result["lookups"].is_null() {
                    let case = format!("lookups in {objects} Pods");
                    figures.add(&case, &client.side, &turn(&LOOKUPS, &result["lookups"]));
                }
            }
        }
    }
    Ok(())
}

fn clients(bench: &Bench, ours: &Path) -> Result<Vec<Client>> {
    let client = |side: &str, program: &Path, arguments| Client {
        side: side.to_owned(),
        program: program.to_owned(),
        arguments,
    };
    let mut clients = vec![
        client(OURS, ours, &["informer-client", "--streaming", "--lookups"] as &[_]),
        client("setpoint, list in pages", ours, &["informer-client"]),
        client("setpoint, each object read", ours, &["informer-client", "--streaming", "--read"]),
        client("setpoint, 10 handlers", ours, &["informer-client", "--streaming", "--handlers", "10"]),
        client("setpoint, eager", ours, &["informer-client", "--streaming", "--store", "eager"]),
        client(
            "setpoint, compact",
            ours,
            &["informer-client", "--streaming", "--store", "compact", "--lookups"],
        ),
    ];
    if bench.quick {
        clients.retain(|client| [OURS, "setpoint, compact"].contains(&client.side.as_str()));
    }
    if bench.takes(KUBE_RS) {
        let peer = bench_binary("setpoint-bench-kube-rs", bench)?;
        clients.push(client("kube-rs, managedFields dropped", &peer, &["--drop", "--streaming"]));
        if !bench.quick {
            clients.push(client("kube-rs, managedFields dropped, list", &peer, &["--drop"]));
            clients.push(client("kube-rs, whole", &peer, &[]));
        }
    }
    if bench.takes(CLIENT_GO) {
        match Peers::new(!bench.skip_build).and_then(|peers| peers.get(&INFORMER)) {
            Ok(peer) => clients.push(client("client-go, JSON", &peer, &["--lookups"])),
            Err(error) => println!("skipped {CLIENT_GO}: {error:#}"),
        }
    }
    Ok(clients)
}

/// A release build of one of the programs in `bench/`.
pub(super) fn bench_binary(package: &str, bench: &Bench) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    if !bench.skip_build {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status =
            Command::new(cargo).args(["build", "--release", "-p", package]).current_dir(root).status()?;
        ensure!(status.success(), "{package} does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let binary = target.join("release").join(package);
    ensure!(binary.exists(), "{} is not there: run without --skip-build", binary.display());
    Ok(binary)
}

fn number(result: &Value, name: &str) -> f64 {
    result[name].as_f64().unwrap_or_default()
}

fn turn(metrics: &[(Metric, &str)], result: &Value) -> Vec<(Metric, f64)> {
    metrics.iter().filter_map(|(metric, name)| Some((*metric, result[*name].as_f64()?))).collect()
}

/// One run: a fresh server, one client.
fn measure(ours: &Path, client: &Client, objects: usize, events: u64) -> Result<Value> {
    let server = Command::new(ours)
        .args(["replay-server", &objects.to_string(), &events.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the replay server")?;
    let mut server = Server(server);
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().context("its output")?).read_line(&mut port)?;
    let mut command = Command::new(&client.program);
    command.args(client.arguments).args([port.trim(), &events.to_string()]);
    let finished = process::run(command, None, LIMIT)?;
    ensure!(finished.status.success(), "{} failed: {}", client.side, finished.stderr.trim());
    let mut result: Value = serde_json::from_str(&finished.stdout).context("reading the client's result")?;
    result["event_cpu"] = (number(&result, "events_cpu_seconds") * 1e6 / events as f64).into();
    Ok(result)
}

/// The replay server, which ends with the run.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
