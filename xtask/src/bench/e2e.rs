//! From a change until its reconcile is called and its child is seen: the same controller written with Setpoint,
//! kube-rs and controller-runtime, and a bare watch, each in a process of its own, on our server and on kube-apiserver.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;
use super::figures::{Better, Figures, Metric, OURS, less};
use super::programs::{bench_binary, json_of, number};
use crate::real::peers::{CONTROLLER, Peers};
use crate::real::process::{Lines, Running};
use crate::real::servers::{Reference, Server, cpu};

const KUBE_RS: &str = "kube-rs";
const CONTROLLER_RUNTIME: &str = "controller-runtime";
/// No controller at all: what the server makes everybody wait.
const BARE: &str = "a bare watch";
const REFERENCE: &str = "kube-apiserver";
const LIMIT: Duration = Duration::from_secs(300);

const METRICS: [(Metric, &str); 6] = [
    (less("change → reconcile p50", "ms"), "reconciled_p50_ms"),
    (less("change → reconcile p99", "ms"), "reconciled_p99_ms"),
    (less("change → child seen p50", "ms"), "seen_p50_ms"),
    (less("change → child seen p99", "ms"), "seen_p99_ms"),
    (Metric { name: "reconciles", unit: "/s", better: Better::More }, "reconciles_per_second"),
    (less("controller CPU a child", "µs"), "cpu_us"),
];

#[derive(clap::Args)]
#[group(id = "e2e")]
pub(super) struct Options {
    /// e2e: how many sources there are.
    #[arg(long, default_value_t = 2000)]
    sources: usize,
    /// e2e: how many changes follow.
    #[arg(long, default_value_t = 1500)]
    changes: usize,
    /// e2e: how many changes a second.
    #[arg(long, default_value_t = 100)]
    rate: usize,
}

/// A controller to measure.
struct Controller {
    side: &'static str,
    program: PathBuf,
    argument: Option<&'static str>,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let load = bench_binary("setpoint-bench", bench)?;
    let setpoint = crate::real::setpoint_release(bench.skip_build)?;
    let peers = Peers::new(!bench.skip_build)?;
    let mut controllers = controllers(bench, &load, &peers)?;
    let reference = match bench.takes(REFERENCE) {
        true => Reference::get(&peers).inspect_err(|error| println!("skipped {REFERENCE}: {error:#}")).ok(),
        false => None,
    };
    let start = || -> Result<Vec<(&str, Server)>> {
        let mut servers = vec![("e2e on setpoint", Server::durable_setpoint(&setpoint)?)];
        if let Some(reference) = &reference {
            servers.push(("e2e on kube-apiserver", Server::durable_kube_apiserver(reference)?));
        }
        Ok(servers)
    };
    // Fresh servers for each controller, unless it shall be quick.
    let kept = bench.quick.then(&start).transpose()?;
    for _ in 0..bench.rounds() {
        for controller in &controllers {
            let turn = Turn { load: &load, controller, bench };
            match &kept {
                Some(servers) => turn.measure_on(servers, figures)?,
                None => turn.measure_on(&start()?, figures)?,
            }
        }
        in_process(&load, bench, figures)?;
        // Nobody shall always be the first, or come after the same one.
        controllers.rotate_left(1);
    }
    Ok(())
}

fn controllers(bench: &Bench, ours: &Path, peers: &Peers) -> Result<Vec<Controller>> {
    let mut controllers =
        vec![Controller { side: OURS, program: ours.to_owned(), argument: Some("e2e-controller") }];
    if bench.takes(KUBE_RS) {
        let program = bench_binary("setpoint-bench-kube-rs", bench)?;
        controllers.push(Controller { side: KUBE_RS, program, argument: Some("controller") });
    }
    if bench.takes(CONTROLLER_RUNTIME) {
        match peers.get(&CONTROLLER) {
            Ok(program) => {
                controllers.push(Controller { side: CONTROLLER_RUNTIME, program, argument: None });
            }
            Err(error) => println!("skipped {CONTROLLER_RUNTIME}: {error:#}"),
        }
    }
    controllers.push(Controller { side: BARE, program: ours.to_owned(), argument: Some("e2e-bare") });
    Ok(controllers)
}

/// One controller on one server.
struct Turn<'a> {
    load: &'a Path,
    controller: &'a Controller,
    bench: &'a Bench,
}

impl Turn<'_> {
    fn measure_on(&self, servers: &[(&str, Server)], figures: &mut Figures) -> Result<()> {
        servers.iter().try_for_each(|(case, server)| self.measure(case, server, figures))
    }

    fn measure(&self, case: &str, server: &Server, figures: &mut Figures) -> Result<()> {
        let side = self.controller.side;
        let result = self.play(server).with_context(|| format!("{case}, {side}"))?;
        println!(
            "      {case}, {side}: change → reconcile p50 {:.2} ms, p99 {:.2} ms, {:.0} reconciles/s",
            number(&result, "reconciled_p50_ms"),
            number(&result, "reconciled_p99_ms"),
            number(&result, "reconciles_per_second"),
        );
        figures.add(case, side, &super::turn(&METRICS, &result));
        Ok(())
    }

    fn play(&self, server: &Server) -> Result<Value> {
        let options = &self.bench.e2e;
        let (sources, changes) =
            if self.bench.quick { (200, 100) } else { (options.sources, options.changes) };
        let mut load = Command::new(self.load);
        load.arg("e2e-load").arg(server.kubeconfig()).args([
            "--sources",
            &sources.to_string(),
            "--changes",
            &changes.to_string(),
            "--rate",
            &options.rate.to_string(),
        ]);
        let mut load = Lines::start(load)?;
        load.until("created", LIMIT)?;
        let controller = self.start(server)?;
        let result = load.until("{", LIMIT);
        let result = result.with_context(|| format!("the controller says: {}", self.log(server)))?;
        let cpu = cpu(controller.id())?;
        let mut result: Value = serde_json::from_str(&result)?;
        result["cpu_us"] = (cpu.as_secs_f64() * 1e6 / (sources + changes) as f64).into();
        Ok(result)
    }

    fn start(&self, server: &Server) -> Result<Running> {
        let log = File::create(log_path(server))?;
        let mut command = Command::new(&self.controller.program);
        command.args(self.controller.argument).arg(server.kubeconfig());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Running::start(&mut command)
    }

    fn log(&self, server: &Server) -> String {
        std::fs::read_to_string(log_path(server)).unwrap_or_default()
    }
}

fn log_path(server: &Server) -> PathBuf {
    server.kubeconfig().with_file_name("controller.log")
}

/// Server, controller and whoever makes the change in one process, one change after another.
fn in_process(program: &Path, bench: &Bench, figures: &mut Figures) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["latency", "--json", "--changes", if bench.quick { "500" } else { "5000" }]);
    let result = json_of(command, LIMIT)?;
    const TIMES: [(Metric, &str); 2] =
        [(less("change → reconcile p50", "µs"), "p50_us"), (less("change → reconcile p99", "µs"), "p99_us")];
    for (case, name) in [("in one process", "in_process"), ("in one process, over TLS", "over_tls")] {
        println!("      {case}: p50 {:.0} µs", number(&result[name], "p50_us"));
        figures.add(case, OURS, &super::turn(&TIMES, &result[name]));
    }
    Ok(())
}
