//! Informers against a server that replays Pods from memory: ours in its forms, kube-rs, client-go.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS, less};
use super::programs::{bench_binary, json_of, number};
use crate::real::peers::{INFORMER, Peers};
use crate::real::process::Running;

const KUBE_RS: &str = "kube-rs";
const CLIENT_GO: &str = "client-go";

/// How long one client may take.
const LIMIT: Duration = Duration::from_secs(600);

/// What is measured, and under which name a client prints it.
const METRICS: [(Metric, &str); 8] = [
    (less("time to sync", "s"), "sync_seconds"),
    (less("CPU to sync", "s"), "sync_cpu_seconds"),
    (less("RSS at sync", "MB"), "sync_rss_mb"),
    (Metric { name: "events", unit: "/s", better: Better::More }, "events_per_second"),
    (less("CPU an event", "µs"), "event_cpu"),
    (less("RSS after events", "MB"), "rss_mb"),
    (less("peak RSS", "MB"), "peak_rss_mb"),
    (less("RSS an object", "bytes"), "object_bytes"),
];

/// Reads of the full cache.
const LOOKUPS: [(Metric, &str); 7] = [
    (less("first read", "µs"), "first_read_us"),
    (less("get", "µs"), "get_us"),
    (less("get and read a field", "µs"), "get_and_read_us"),
    (less("get, not decoded", "µs"), "held_us"),
    (less("by index", "µs"), "by_index_us"),
    (less("by namespace", "µs"), "namespace_us"),
    (less("update with two indices", "µs"), "update_us"),
];

/// With more Pods, only those are measured that keep them small: the others would need 20 GB and more.
const MANY: usize = 200_000;

const WARM_UP_EVENTS: u64 = 1000;

#[derive(clap::Args)]
#[group(id = "informer")]
pub(super) struct Options {
    /// informer: how many Pods the server has; with several numbers, how the figures grow is printed too.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000])]
    objects: Vec<usize>,
    /// informer: how many changes follow.
    #[arg(long, default_value_t = 500_000)]
    events: u64,
    /// informer: how many changes follow for those who take longer than a few seconds for all of them.
    #[arg(long, default_value_t = 100_000)]
    slow_events: u64,
}

/// A client to measure.
#[derive(Clone)]
struct Client {
    side: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    format: &'static str,
    /// So many events that it takes some seconds.
    is_slow: bool,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let ours = bench_binary("setpoint-bench", bench)?;
    let clients = clients(bench, &ours)?;
    let objects = if bench.quick { &vec![5_000] } else { &bench.informer.objects };
    for objects in objects {
        let mut servers = Servers { program: &ours, objects: *objects, started: Vec::new() };
        if !bench.quick {
            warm_up(&mut servers, &clients[0])?;
        }
        for _ in 0..bench.rounds() {
            for client in &clients {
                if *objects > MANY && ![OURS, COMPACT].contains(&client.side) {
                    println!("      skipped {} with {objects} Pods: it needs too much memory", client.side);
                    continue;
                }
                turn(bench, &mut servers, client, figures)?;
            }
        }
    }
    figures.add_growth("informer of", &MAIN);
    figures.add_growth("lookups in", &MAIN);
    Ok(())
}

/// Memory that a virtual machine has not used before comes slowly: let nobody's turn pay for it.
fn warm_up(servers: &mut Servers<'_>, client: &Client) -> Result<()> {
    measure(servers.port(client.format)?, client, servers.objects, WARM_UP_EVENTS).map(drop)
}

fn turn(bench: &Bench, servers: &mut Servers<'_>, client: &Client, figures: &mut Figures) -> Result<()> {
    let objects = servers.objects;
    let events = match (bench.quick, client.is_slow) {
        (true, true) => 5_000,
        (true, false) => 20_000,
        (false, true) => bench.informer.slow_events.min(bench.informer.events),
        (false, false) => bench.informer.events,
    };
    let case = format!("informer of {objects} Pods");
    let result = measure(servers.port(client.format)?, client, objects, events)?;
    println!(
        "      {case}, {}: synced in {:.2} s, {:.0} events/s",
        client.side,
        number(&result, "sync_seconds"),
        number(&result, "events_per_second")
    );
    figures.add(&case, client.side, &super::turn(&METRICS, &result));
    if !result["lookups"].is_null() {
        let case = format!("lookups in {objects} Pods");
        let side = if client.side == READ { OURS } else { client.side };
        figures.add(&case, side, &super::turn(&LOOKUPS, &result["lookups"]));
    }
    Ok(())
}

/// All objects are read at the end: with many, that needs too much memory.
const READ: &str = "setpoint, looked up";
const COMPACT: &str = "setpoint, compact";
const OURS_PROTOBUF: &str = "setpoint, protobuf";

/// client-go lists in pages unless it is told to stream, or the other way round, depending on its version.
const LIST: &[(&str, &str)] = &[("KUBE_FEATURE_WatchListClient", "false")];
const STREAM: &[(&str, &str)] = &[("KUBE_FEATURE_WatchListClient", "true")];

fn clients(bench: &Bench, ours: &Path) -> Result<Vec<Client>> {
    let client = |side, program: &Path, arguments| Client {
        side,
        program: program.to_owned(),
        arguments,
        environment: &[],
        format: "json",
        is_slow: false,
    };
    let mut clients = vec![
        client(OURS, ours, &["informer-client", "--streaming"] as &[_]),
        client(READ, ours, &["informer-client", "--streaming", "--lookups"]),
        client("setpoint, list in pages", ours, &["informer-client"]),
        client("setpoint, each object read", ours, &["informer-client", "--streaming", "--read"]),
        client("setpoint, 10 handlers", ours, &["informer-client", "--streaming", "--handlers", "10"]),
        client("setpoint, eager", ours, &["informer-client", "--streaming", "--store", "eager"]),
        client(COMPACT, ours, &["informer-client", "--streaming", "--store", "compact", "--lookups"]),
    ];
    let protobuf = |side, arguments| Client { format: "protobuf", ..client(side, ours, arguments) };
    clients.extend([
        protobuf(OURS_PROTOBUF, &["informer-client", "--streaming", "--protobuf"]),
        protobuf(
            "setpoint, protobuf, each object read",
            &["informer-client", "--streaming", "--protobuf", "--read"],
        ),
        protobuf(
            "setpoint, compact, protobuf",
            &["informer-client", "--streaming", "--protobuf", "--store", "compact"],
        ),
    ]);
    for client in &mut clients {
        client.is_slow =
            ["setpoint, each object read", "setpoint, protobuf, each object read", "setpoint, eager"]
                .contains(&client.side);
    }
    if bench.takes(KUBE_RS) {
        let peer = bench_binary("setpoint-bench-kube-rs", bench)?;
        clients.extend(
            [
                client(DROPPED, &peer, &["--drop", "--streaming"] as &[_]),
                client("kube-rs, managedFields dropped, list", &peer, &["--drop"]),
                client("kube-rs, whole", &peer, &[]),
            ]
            .map(|client| Client { is_slow: true, ..client }),
        );
    }
    if bench.takes(CLIENT_GO) {
        match Peers::new(!bench.skip_build).and_then(|peers| peers.get(&INFORMER)) {
            Ok(peer) => clients.extend(client_go(&client("", &peer, &[]))),
            Err(error) => println!("skipped {CLIENT_GO}: {error:#}"),
        }
    }
    if bench.quick || bench.informer.objects.len() > 1 {
        println!(
            "      without pages, other stores and handlers, and the peers' other modes: run it whole, with one number of Pods"
        );
        clients.retain(|client| MAIN.contains(&client.side));
    }
    Ok(clients)
}

const PROTOBUF: &str = "client-go, protobuf";
const DROPPED: &str = "kube-rs, managedFields dropped";

/// Those who are measured when it shall be quick, and with several numbers of Pods.
const MAIN: [&str; 6] = [OURS, READ, COMPACT, OURS_PROTOBUF, PROTOBUF, DROPPED];

fn client_go(program: &Client) -> Vec<Client> {
    let protobuf = Client { format: "protobuf", environment: STREAM, ..program.clone() };
    let json = Client { environment: STREAM, is_slow: true, ..program.clone() };
    vec![
        Client { side: PROTOBUF, arguments: &["--content", "protobuf", "--lookups"], ..protobuf.clone() },
        Client {
            side: "client-go, protobuf, list",
            arguments: &["--content", "protobuf"],
            environment: LIST,
            ..protobuf.clone()
        },
        Client {
            side: "client-go, protobuf, 10 handlers",
            arguments: &["--content", "protobuf", "--handlers", "10"],
            ..protobuf
        },
        Client { side: "client-go, JSON", ..json.clone() },
        Client { side: "client-go, JSON, list", environment: LIST, ..json },
    ]
}

/// One run of a client.
fn measure(port: u16, client: &Client, objects: usize, events: u64) -> Result<Value> {
    let mut command = Command::new(&client.program);
    command.args(client.arguments).args([port.to_string(), events.to_string()]);
    command.envs(client.environment.iter().copied());
    let mut result = json_of(command, LIMIT)?;
    result["event_cpu"] = (number(&result, "events_cpu_seconds") * 1e6 / events as f64).into();
    result["object_bytes"] = (number(&result, "rss_mb") * 1e6 / objects as f64).into();
    Ok(result)
}

/// Replay servers of so many Pods, one a format: making the Pods takes longer than replaying them.
struct Servers<'a> {
    program: &'a Path,
    objects: usize,
    started: Vec<(&'static str, u16, Running)>,
}

impl Servers<'_> {
    fn port(&mut self, format: &'static str) -> Result<u16> {
        if let Some((_, port, _)) = self.started.iter().find(|(known, ..)| *known == format) {
            return Ok(*port);
        }
        if self.objects > MANY {
            println!("      making {} Pods", self.objects);
        }
        let mut server = Command::new(self.program)
            .args(["replay-server", &self.objects.to_string(), "--format", format])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the replay server")?;
        let output = server.stdout.take().context("its output")?;
        let server = Running::from(server);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().context("the replay server says no port")?;
        self.started.push((format, port, server));
        Ok(port)
    }
}
