//! The suite `workloads`: kubectl alone, on clusters that live.
//!
//! The same scenarios run on three of them: `setpoint up`; kube-apiserver with kube-controller-manager and our
//! nodes; kube-apiserver with our controllers and nodes. Each scenario tells the state that it ends in, and these
//! must be the same.

mod autoscaling;
mod batch;
mod deletion;
mod deployments;
mod nodes;
mod quotas;
mod stateful;
mod tokens;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kubectl::Kubectl;
use super::peers::{KUBE_CONTROLLER_MANAGER, KUBECTL, Peers};
use super::process::poll;
use super::report::Report;
use super::servers::{Reference, Server, free_port};

pub(crate) const SUITE: &str = "workloads";
/// How many simulated nodes each cluster has.
const NODES: usize = 2;
/// How long anything may take to come about, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// Some commands in a namespace of their own, and what they lead to.
struct Scenario {
    name: &'static str,
    run: fn(&Kubectl) -> Result<String>,
}

fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    // Those that change nodes come last.
    [
        deployments::SCENARIOS,
        stateful::SCENARIOS,
        batch::SCENARIOS,
        deletion::SCENARIOS,
        quotas::SCENARIOS,
        tokens::SCENARIOS,
        autoscaling::SCENARIOS,
        nodes::SCENARIOS,
    ]
    .into_iter()
    .flatten()
}

/// The names of all checks, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    scenarios().map(|scenario| scenario.name)
}

/// How each scenario ended, if it did.
type Ends = Vec<Option<String>>;

/// Runs all scenarios on all clusters that can be had, and compares.
pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let kubectl = match peers.get(&KUBECTL) {
        Ok(kubectl) => kubectl,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let ours = on(report, "setpoint", &kubectl, Server::setpoint_cluster(setpoint));
    let reference = match reference(peers, setpoint) {
        Ok(server) => on(report, "kube-controller-manager", &kubectl, Ok(server)),
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let crossed = on(report, "setpoint cluster", &kubectl, crossed(peers, setpoint));
    for (number, scenario) in scenarios().enumerate() {
        for (title, ends) in [("setpoint", &ours), ("setpoint cluster", &crossed)] {
            if let (Some(Some(ours)), Some(Some(theirs))) = (ends.get(number), reference.get(number)) {
                let name = format!("{}: {title} ends as kube-controller-manager does", scenario.name);
                report.check(SUITE, &name, || same(ours, theirs));
            }
        }
    }
}

fn same(ours: &str, theirs: &str) -> Result<()> {
    if ours != theirs {
        bail!("ours:   {ours}\ntheirs: {theirs}");
    }
    Ok(())
}

/// Runs the scenarios on one cluster.
fn on(report: &mut Report, title: &str, kubectl: &Path, server: Result<Server>) -> Ends {
    let begun = Instant::now();
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            report.record(SUITE, &format!("{title} starts"), begun.elapsed(), Err(error));
            return Ends::new();
        }
    };
    let one = |(number, scenario): (usize, &Scenario)| {
        let mut end = None;
        report.check(SUITE, &format!("{}: on {title}", scenario.name), || {
            let kubectl = Kubectl::new(kubectl, "", server.kubeconfig(), format!("workloads-{number}"))?;
            kubectl.ok("create namespace {ns}")?;
            end = Some((scenario.run)(&kubectl)?);
            Ok(())
        });
        end
    };
    scenarios().enumerate().map(one).collect()
}

/// kube-apiserver with kube-controller-manager, our scheduler and our nodes.
fn reference(peers: &Peers, setpoint: &Path) -> Result<Server> {
    let manager = peers.get(&KUBE_CONTROLLER_MANAGER)?;
    let mut server = Server::kube_apiserver(&Reference::get(peers)?)?;
    let mut command = Command::new(manager);
    command
        .args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"])
        .args(["--authentication-skip-lookup=true", "--cert-dir=manager"])
        .args(["--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt"])
        .arg(format!("--secure-port={}", free_port()?));
    server.run_beside(command, "kube-controller-manager.log")?;
    let mut command = Command::new(setpoint);
    command.args(["cluster", "--kubeconfig", "kubeconfig", "--controllers", "scheduler"]);
    command.args(["--nodes", &NODES.to_string()]);
    server.run_beside(command, "cluster.log")?;
    Ok(server)
}

/// kube-apiserver with our controllers and nodes.
fn crossed(peers: &Peers, setpoint: &Path) -> Result<Server> {
    let mut server = Server::kube_apiserver(&Reference::get(peers)?)?;
    server.add_cluster(setpoint)?;
    Ok(server)
}

/// Waits until a command prints this.
fn wait(kubectl: &Kubectl, line: &str, expected: &str) -> Result<()> {
    let mut last = String::new();
    let found = poll(LIMIT, || {
        last = kubectl.ok(line)?;
        Ok((last.trim() == expected).then_some(()))
    })?;
    found.with_context(|| format!("kubectl {line}\nexpected: {expected}\nprinted:  {}", last.trim()))
}

/// Waits until a command prints as many words.
fn wait_for_words(kubectl: &Kubectl, line: &str, number: usize) -> Result<Vec<String>> {
    let mut last = Vec::new();
    poll(LIMIT, || {
        last = kubectl.ok(line)?.split_whitespace().map(str::to_owned).collect();
        Ok((last.len() == number).then_some(()))
    })?
    .with_context(|| format!("kubectl {line}\nexpected: {number} words\nprinted:  {last:?}"))?;
    Ok(last)
}

/// Reads a field, and sorts its words.
fn sorted(kubectl: &Kubectl, object: &str, path: &str) -> Result<String> {
    let text = kubectl.ok(&format!("get {object} -o jsonpath='{path}'"))?;
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words.dedup();
    Ok(words.join(" "))
}
