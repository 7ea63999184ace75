//! The suite `workloads`: kubectl alone, on clusters that live.
//!
//! The same scenarios run on three of them: `setpoint up`; kube-apiserver with kube-controller-manager, kube-scheduler
//! and our nodes; kube-apiserver with our controllers and nodes. Each scenario tells the state that it ends in, the events
//! and the order of pods, and these must be the same.

mod autoscaling;
mod batch;
mod daemons;
mod deletion;
mod deployments;
mod disruptions;
mod housekeeping;
mod nodes;
mod order;
mod quotas;
mod stateful;
mod tokens;
mod volumes;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kubectl::Kubectl;
use super::peers::{KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KUBECTL, Peers};
use super::process::poll;
use super::report::{Filter, Report};
use super::servers::{Reference, Server, free_port};

pub(crate) const SUITE: &str = "workloads";
/// How many simulated nodes each cluster has.
const NODES: usize = 2;
/// How long anything may take to come about, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// How often kubectl looks again: each look is a process.
const PAUSE: Duration = Duration::from_millis(100);
/// How long no new event comes until all have come.
const EVENTS: Duration = Duration::from_millis(1000);

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
        volumes::SCENARIOS,
        batch::SCENARIOS,
        deletion::SCENARIOS,
        quotas::SCENARIOS,
        tokens::SCENARIOS,
        autoscaling::SCENARIOS,
        housekeeping::SCENARIOS,
        daemons::SCENARIOS,
        disruptions::SCENARIOS,
        nodes::SCENARIOS,
    ]
    .into_iter()
    .flatten()
}

/// The names of all checks, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    scenarios().map(|scenario| scenario.name)
}

/// How a scenario ended on a cluster, and how long it took.
struct End {
    scenario: &'static Scenario,
    took: Duration,
    outcome: Result<String>,
}

/// Runs all scenarios on all clusters that can be had, and compares. The clusters work at the same time: most of it is
/// waiting.
pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let kubectl = match peers.get(&KUBECTL) {
        Ok(kubectl) => kubectl,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    // Built before anything is measured in time.
    if let Err(error) =
        Reference::get(peers).and(peers.get(&KUBE_CONTROLLER_MANAGER)).and(peers.get(&KUBE_SCHEDULER))
    {
        report.skip(&format!("{SUITE}: comparison with kube-controller-manager"), &format!("{error:#}"));
        let ends = on(report.filter(), &kubectl, Server::setpoint_cluster(setpoint), &[]);
        drop(told(report, "setpoint", ends));
        return;
    }
    let filter = report.filter();
    let [ours, theirs, crossed] = thread::scope(|scope| {
        let ours = scope.spawn(|| on(filter, &kubectl, Server::setpoint_cluster(setpoint), &[]));
        let theirs = scope.spawn(|| on(filter, &kubectl, reference(peers, setpoint), &[]));
        let crossed =
            scope.spawn(|| on(filter, &kubectl, self::crossed(peers, setpoint), &housekeeping::SIGNED));
        [ours, theirs, crossed].map(|run| run.join().unwrap_or_else(|_| bail!("the scenarios panicked")))
    });
    let ours = told(report, "setpoint", ours);
    let theirs = told(report, "kube-controller-manager", theirs);
    let crossed = told(report, "setpoint cluster", crossed);
    for (title, ends) in [("setpoint", &ours), ("setpoint cluster", &crossed)] {
        for End { scenario, outcome, .. } in ends {
            let is_it = |end: &&End| end.scenario.name == scenario.name;
            let theirs = theirs.iter().find(is_it).and_then(|end| end.outcome.as_ref().ok());
            if let (Ok(ours), Some(theirs)) = (outcome, theirs) {
                let name = format!("{}: {title} ends as kube-controller-manager does", scenario.name);
                report.record(SUITE, &name, Duration::ZERO, same(ours, theirs));
            }
        }
    }
}

/// The parts in which two ends differ.
fn same(ours: &str, theirs: &str) -> Result<()> {
    if ours == theirs {
        return Ok(());
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.split(" | ").collect(), theirs.split(" | ").collect());
    if a.len() != b.len() {
        bail!("ours:   {ours}\ntheirs: {theirs}");
    }
    let differing = a.iter().zip(&b).filter(|(ours, theirs)| ours != theirs);
    let differing = differing.map(|(ours, theirs)| format!("ours:   {ours}\ntheirs: {theirs}"));
    bail!("{}", differing.collect::<Vec<_>>().join("\n"))
}

/// Says how each scenario went on a cluster.
fn told(report: &mut Report, title: &str, ends: Result<Vec<End>>) -> Vec<End> {
    let ends = match ends {
        Ok(ends) => ends,
        Err(error) => {
            report.record(SUITE, &format!("{title} starts"), Duration::ZERO, Err(error));
            return Vec::new();
        }
    };
    for End { scenario, took, outcome } in &ends {
        let outcome = outcome.as_ref().map(drop).map_err(|error| anyhow::anyhow!("{error:#}"));
        report.record(SUITE, &format!("{}: on {title}", scenario.name), *took, outcome);
    }
    ends
}

/// Runs the scenarios on one cluster, but for some.
fn on(filter: &Filter, kubectl: &Path, server: Result<Server>, without: &[&str]) -> Result<Vec<End>> {
    let server = server?;
    let is_wanted = |name: &str| filter.takes(SUITE, name) && !without.contains(&name);
    let wanted = scenarios().enumerate().filter(|(_, scenario)| is_wanted(scenario.name));
    let run = |(number, scenario): (usize, &'static Scenario)| {
        let begun = Instant::now();
        let outcome = Kubectl::new(kubectl, "", server.kubeconfig(), format!("workloads-{number}"))
            .and_then(|kubectl| kubectl.ok("create namespace {ns}").map(|_| kubectl))
            .and_then(|kubectl| (scenario.run)(&kubectl));
        End { scenario, took: begun.elapsed(), outcome }
    };
    Ok(wanted.map(run).collect())
}

/// kube-apiserver with kube-controller-manager, kube-scheduler and our nodes.
fn reference(peers: &Peers, setpoint: &Path) -> Result<Server> {
    let manager = peers.get(&KUBE_CONTROLLER_MANAGER)?;
    let mut server = Server::kube_apiserver(&Reference::get(peers)?)?;
    let mut command = Command::new(manager);
    command
        .args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"])
        .args(["--authentication-skip-lookup=true", "--cert-dir=manager"])
        .args(["--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt"])
        .args(["--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key"])
        .arg(format!("--secure-port={}", free_port()?));
    server.run_beside(command, "kube-controller-manager.log")?;
    let mut command = Command::new(peers.get(&KUBE_SCHEDULER)?);
    command
        .args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"])
        .args(["--authentication-skip-lookup=true", "--cert-dir=scheduler"])
        .arg(format!("--secure-port={}", free_port()?));
    server.run_beside(command, "kube-scheduler.log")?;
    let mut command = Command::new(setpoint);
    command.args(["cluster", "--kubeconfig", "kubeconfig", "--controllers", ""]);
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

/// Creates the objects of a manifest.
fn create(kubectl: &Kubectl, manifest: &str) -> Result<()> {
    kubectl.file("objects.yaml", manifest)?;
    kubectl.ok("create -f objects.yaml").map(drop)
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let found = poll(LIMIT, || {
        let found = is_so()?;
        if !found {
            thread::sleep(PAUSE);
        }
        Ok(found.then_some(()))
    })?;
    found.with_context(|| format!("it did not come about in {LIMIT:?}"))
}

/// Waits until a command prints this.
fn wait(kubectl: &Kubectl, line: &str, expected: &str) -> Result<()> {
    let mut last = String::new();
    until(|| {
        last = kubectl.ok(line)?;
        Ok(last.trim() == expected)
    })
    .with_context(|| format!("kubectl {line}\nexpected: {expected}\nprinted:  {}", last.trim()))
}

/// Waits until a command prints as many words.
fn wait_for_words(kubectl: &Kubectl, line: &str, number: usize) -> Result<Vec<String>> {
    let mut last: Vec<String> = Vec::new();
    until(|| {
        last = kubectl.ok(line)?.split_whitespace().map(str::to_owned).collect();
        Ok(last.len() == number)
    })
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

/// The events about objects of a kind, without repetitions: type, reason and message, with generated names masked.
/// Events are told some moments after what they tell of, so they are read until no more come.
fn events(kubectl: &Kubectl, kind: &str) -> Result<String> {
    let path = format!(
        "{{range .items[?(@.involvedObject.kind==\"{kind}\")]}}{{.type}}:{{.reason}}:{{.message}}{{\"\\n\"}}{{end}}"
    );
    let read = || kubectl.ok(&format!("get events -o jsonpath='{path}'"));
    let mut last = read()?;
    until(|| {
        thread::sleep(EVENTS);
        let now = read()?;
        Ok(std::mem::replace(&mut last, now.clone()) == now)
    })?;
    let mut lines: Vec<String> = last.lines().map(masked).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.join(" ; "))
}

/// A text in which names that the server made up are the same in every run: `web-7d9fx` is `web-?`.
fn masked(text: &str) -> String {
    /// What the server makes such names of.
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    let is_made_up = |end: &str| end.len() == 5 && end.chars().all(|letter| LETTERS.contains(letter));
    let word = |word: &str| match word.rsplit_once('-') {
        Some((start, end)) if is_made_up(end) => format!("{start}-?"),
        _ => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_server_makes_up_are_masked() {
        assert_eq!(masked("Created pod: agent-x7k2p"), "Created pod: agent-?");
        assert_eq!(masked("Create Pod db-0 in StatefulSet db"), "Create Pod db-0 in StatefulSet db");
    }

    #[test]
    fn of_two_ends_the_parts_that_differ_are_told() {
        let error = same("a | b | c", "a | x | c").unwrap_err().to_string();
        assert_eq!(error, "ours:   b\ntheirs: x");
    }
}
