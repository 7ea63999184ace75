//! A whole cluster as a process of its own, on disk: many simulated nodes, and Deployments whose pods fill them. Whoever
//! counts is outside, over TLS: what the cluster says of itself is not believed.

mod tally;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::tally::{Seen, Tally};
use super::Bench;
use super::figures::{Figures, Metric, OURS, less};
use crate::load::connection::Connection;
use crate::load::server::Server;
use crate::workspace::Program;

/// How many pods a Deployment has.
const REPLICAS: usize = 500;
/// How many pods a node gets, unless something else is said.
const PODS_PER_NODE: usize = 30;
/// Nobody waits longer without any news.
const STALLED: Duration = Duration::from_secs(60);
/// How often to look.
const LOOK: Duration = Duration::from_millis(50);
/// From the last event until the cluster is taken to be at rest, and how long its rest is measured.
const SETTLED: Duration = Duration::from_secs(15);
const REST: Duration = Duration::from_secs(30);

const METRICS: [Metric; 9] = [
    less("all exist", "s"),
    less("all bound", "s"),
    less("all available", "s"),
    less("all events", "s"),
    less("CPU a pod", "ms"),
    less("CPU until available", "s"),
    less("peak RSS", "MiB"),
    less("RSS a pod", "KiB"),
    less("cores at rest", ""),
];

#[derive(clap::Args)]
#[group(id = "scale")]
pub(super) struct Options {
    /// scale: how many simulated nodes [default: one for every 30 pods]
    #[arg(long)]
    nodes: Option<usize>,
    /// scale: how many pods; several numbers show how cost grows.
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 15_000, 50_000])]
    pods: Vec<usize>,
    /// scale: how many Services select pods, each those of one Deployment.
    #[arg(long, default_value_t = 0)]
    services: usize,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let binary = Program { package: "setpoint-cli", name: "setpoint", profile: "release", arguments: &[] }
        .get(bench.skip_build)?;
    let sizes = if bench.quick { &[1_000][..] } else { &bench.scale.pods };
    for &pods in sizes {
        let nodes = bench.scale.nodes.unwrap_or(pods.div_ceil(PODS_PER_NODE));
        for _ in 0..bench.rounds() {
            let run = Run { pods, nodes, services: bench.scale.services };
            let case = run.case();
            let values = run.measure(&binary).with_context(|| case.clone())?;
            figures.add(&case, OURS, &METRICS.into_iter().zip(values).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// One cluster.
struct Run {
    pods: usize,
    nodes: usize,
    services: usize,
}

impl Run {
    fn case(&self) -> String {
        let services =
            if self.services == 0 { String::new() } else { format!(", {} Services", self.services) };
        format!("scale: {} nodes, {} pods{services}", self.nodes, self.pods)
    }

    fn measure(&self, binary: &std::path::Path) -> Result<[f64; METRICS.len()]> {
        let folder = TempDir::new()?;
        let server = Server::start_cluster(binary, &folder, self.nodes)?;
        let mut connection = server.connect()?;
        wait_for_nodes(&mut connection, self.nodes)?;
        let (tally, empty) = (Tally::start(&server)?, server.resident()?);
        for number in 0..self.services {
            create(&mut connection, "/api/v1/namespaces/default/services", &service(number))?;
        }
        let (begun, cpu) = (Instant::now(), server.cpu()?);
        self.create_deployments(&mut connection)?;
        let [exist, bound, available, told] = self.follow(&tally, &server, begun)?;
        let total = told.cpu - cpu;
        let (resident, peak) = (server.resident()?, server.peak()?);
        let rest = at_rest(&server)?;
        let pods = self.pods as f64;
        println!(
            "      {}: {:.1} s, {:.2} ms of CPU a pod",
            self.case(),
            available.after,
            total / pods * 1e3
        );
        println!("      seen: {}", tally.seen());
        tally.end();
        server.stop()?;
        Ok([
            exist.after,
            bound.after,
            available.after,
            told.after,
            total / pods * 1e3,
            available.cpu - cpu,
            peak,
            (resident - empty) * 1024.0 / pods,
            rest,
        ])
    }

    fn create_deployments(&self, connection: &mut Connection) -> Result<()> {
        let (mut left, mut number) = (self.pods, 0);
        while left > 0 {
            let replicas = left.min(REPLICAS);
            create(
                connection,
                "/apis/apps/v1/namespaces/default/deployments",
                &deployment(number, replicas),
            )?;
            left -= replicas;
            number += 1;
        }
        Ok(())
    }

    /// Waits until every pod exists, is bound and is ready and its Deployment says so, and until all its events are there.
    fn follow(&self, tally: &Tally, server: &Server, begun: Instant) -> Result<[Reached; 4]> {
        let mut reached: [Option<Reached>; 4] = [None; 4];
        let (mut last, mut news) = (Seen::default(), Instant::now());
        loop {
            let seen = tally.seen();
            if seen != last {
                (last, news) = (seen.clone(), Instant::now());
            }
            let has_ready = reached[2].is_some() || seen.ready >= self.pods;
            let is_there = [
                seen.created >= self.pods,
                seen.bound >= self.pods,
                has_ready && (reached[2].is_some() || are_available(server, self.pods)?),
                seen.scheduled >= self.pods && seen.started >= self.pods,
            ];
            for (reached, is_there) in reached.iter_mut().zip(is_there) {
                if is_there && reached.is_none() {
                    *reached = Some(Reached { after: begun.elapsed().as_secs_f64(), cpu: server.cpu()? });
                }
            }
            if let [Some(exist), Some(bound), Some(available), Some(told)] = reached {
                return Ok([exist, bound, available, told]);
            }
            if let Some(why) = tally.failure() {
                bail!("the watch from outside has ended: {why}; seen: {seen}");
            }
            ensure!(news.elapsed() < STALLED, "nothing happened for {STALLED:?}; seen: {seen}");
            std::thread::sleep(LOOK);
        }
    }
}

/// When something was reached, and how much processor time had been used by then, both in seconds.
#[derive(Clone, Copy)]
struct Reached {
    after: f64,
    cpu: f64,
}

/// How many cores a cluster uses that has nothing to do.
fn at_rest(server: &Server) -> Result<f64> {
    std::thread::sleep(SETTLED);
    let (begun, cpu) = (Instant::now(), server.cpu()?);
    std::thread::sleep(REST);
    Ok((server.cpu()? - cpu) / begun.elapsed().as_secs_f64())
}

fn wait_for_nodes(connection: &mut Connection, nodes: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        // All leases are there: every node has registered and reported before.
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=1";
        let (status, answer) = connection.send("GET", path, b"")?;
        ensure!(status == 200, "leases: {status}");
        let list: Value = serde_json::from_slice(answer)?;
        let first = list["items"].as_array().map_or(0, Vec::len);
        let others = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        if first + usize::try_from(others)? >= nodes {
            return Ok(());
        }
        ensure!(begun.elapsed() < Duration::from_secs(300), "only {others} of {nodes} nodes have registered");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether the Deployments say that all their pods are available. The server closes connections that are idle for long.
fn are_available(server: &Server, pods: usize) -> Result<bool> {
    let mut connection = server.connect()?;
    let (status, answer) = connection.send("GET", "/apis/apps/v1/namespaces/default/deployments", b"")?;
    ensure!(status == 200, "Deployments: {status}");
    let list: Value = serde_json::from_slice(answer)?;
    let available = |deployment: &Value| deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
    let all: u64 = list["items"].as_array().into_iter().flatten().map(available).sum();
    Ok(usize::try_from(all)? >= pods)
}

fn create(connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
    let (status, answer) = connection.send("POST", path, object.to_string().as_bytes())?;
    ensure!(status == 201, "{path}: {status} {}", String::from_utf8_lossy(answer));
    Ok(())
}

fn deployment(number: usize, replicas: usize) -> Value {
    let (name, labels) = (format!("web-{number}"), labels(number));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{
                "name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }]},
        }},
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{number}")},
        "spec": {"selector": labels(number), "ports": [{"port": 80}]},
    })
}

fn labels(number: usize) -> Value {
    json!({"app": format!("web-{number}")})
}
