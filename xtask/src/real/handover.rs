//! The suite `handover`: two replicas of the swarm's controller, one of which is killed every ten seconds, the leader
//! mostly, while parents come, change and go. Each parent has one child or none, at every revision, and no child is left
//! behind.
//!
//! `SETPOINT_HANDOVER_MINUTES` makes it longer than a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Client;
use super::process::Running;
use super::report::Report;
use super::servers::{Reference, Server};
use crate::workspace;

pub(crate) const SUITE: &str = "handover";

pub(crate) const NAMES: [&str; 2] = [OURS, THEIRS];
const OURS: &str = "one child each on setpoint, whichever leader is killed";
const THEIRS: &str = "one child each on kube-apiserver, whichever leader is killed";

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/swarm";

const PARENTS: u64 = 20;
/// How often a parent changes.
const CHANGE: Duration = Duration::from_millis(200);
/// How often a replica is killed.
const KILL: Duration = Duration::from_secs(10);
/// How long a killed replica stays away.
const AWAY: Duration = Duration::from_secs(2);
/// How long everything may take to come to rest at the end.
const REST: Duration = Duration::from_secs(90);

/// On `setpoint up`.
pub(crate) fn ours(report: &mut Report, binary: &Path, skip_build: bool) {
    check(report, OURS, skip_build, || Server::setpoint(binary));
}

/// On kube-apiserver.
pub(crate) fn theirs(report: &mut Report, reference: &Result<Reference>, skip_build: bool) {
    match reference {
        Ok(reference) => check(report, THEIRS, skip_build, || Server::kube_apiserver(reference)),
        Err(error) => report.skip(SUITE, &format!("{error:#}")),
    }
}

fn check(report: &mut Report, name: &str, skip_build: bool, start: impl FnOnce() -> Result<Server>) {
    let mut figures = None;
    report.check(SUITE, name, || {
        let server = start()?;
        figures = Some(run(&server, &program(skip_build)?)?);
        Ok(())
    });
    if let Some(figures) = figures {
        report.note(SUITE, &figures.to_string());
    }
}

/// The program, which is an example of the test harness.
fn program(skip_build: bool) -> Result<PathBuf> {
    let root = workspace::root()?;
    if !skip_build {
        let build = ["build", "-p", "setpoint-sim", "--example", "handover"];
        ensure!(workspace::cargo(root).args(build).status()?.success(), "the program does not build");
    }
    let program = workspace::target(root).join("debug").join("examples").join("handover");
    ensure!(program.exists(), "{} is not there: run without --skip-build", program.display());
    Ok(program)
}

/// What happened.
#[derive(Default)]
struct Figures {
    time: Duration,
    changes: u64,
    kills: u64,
    leaders_killed: u64,
    transitions: u64,
    children: usize,
    rest: Duration,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figures { time, changes, kills, leaders_killed, transitions, children, rest } = self;
        write!(
            f,
            "{} s, {changes} changes of {PARENTS} parents, {kills} kills ({leaders_killed} of the leader), {transitions} \
             changes of leader, {children} children created, never two of a parent; at rest {:.1} s after the last change",
            time.as_secs(),
            rest.as_secs_f64(),
        )
    }
}

fn run(server: &Server, program: &Path) -> Result<Figures> {
    let minutes = std::env::var("SETPOINT_HANDOVER_MINUTES").ok();
    let minutes: u64 = minutes.map_or(Ok(1), |text| text.parse()).context("SETPOINT_HANDOVER_MINUTES")?;
    let folder = TempDir::new()?;
    let client = server.client()?;
    let version = version(&client)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let observer = scope.spawn(|| observe(&client, version, &over));
        let mut play = Play::new(&client, program, server.kubeconfig(), folder.path());
        let played = play.run(Duration::from_secs(60 * minutes), &observer);
        over.store(true, Ordering::Relaxed);
        let observed = observer.join().map_err(|_| anyhow::anyhow!("the observer panicked"))?;
        let said = || format!("the replicas say:\n{}", play.last_words());
        let mut figures = played.with_context(said)?;
        figures.children = observed.with_context(said)?;
        Ok(figures)
    })
}

/// Two replicas, and what is done to them and to the parents.
struct Play<'a> {
    client: &'a Client,
    program: &'a Path,
    kubeconfig: &'a Path,
    folder: &'a Path,
    replicas: [Option<Running>; 2],
    /// How many processes each has been.
    processes: [u32; 2],
    dice: u64,
    figures: Figures,
}

impl<'a> Play<'a> {
    fn new(client: &'a Client, program: &'a Path, kubeconfig: &'a Path, folder: &'a Path) -> Play<'a> {
        let (replicas, processes, figures) = ([None, None], [0, 0], Figures::default());
        Play { client, program, kubeconfig, folder, replicas, processes, dice: 1, figures }
    }

    fn below(&mut self, n: u64) -> u64 {
        // Numerical Recipes' generator; its high bits are good enough for this.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % n
    }

    fn log(&self) -> PathBuf {
        self.folder.join("replicas.log")
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn start(&mut self, n: usize) -> Result<()> {
        self.processes[n] += 1;
        let log: File = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(self.program);
        command
            .arg(identity(n, self.processes[n]))
            .env("KUBECONFIG", self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.replicas[n] = Some(Running::start(&mut command)?);
        Ok(())
    }

    fn run(
        &mut self,
        time: Duration,
        observer: &thread::ScopedJoinHandle<'_, Result<usize>>,
    ) -> Result<Figures> {
        self.start(0)?;
        self.start(1)?;
        let begun = Instant::now();
        let (mut kill, mut back) = (begun + KILL, None);
        while begun.elapsed() < time {
            ensure!(!observer.is_finished(), "the observer has seen enough");
            self.change()?;
            let now = Instant::now();
            if let Some((n, _)) = back.take_if(|(_, at)| *at <= now) {
                self.start(n)?;
            }
            if now >= kill {
                kill = now + KILL;
                let n = self.kill()?;
                back = Some((n, now + AWAY));
            }
            for replica in self.replicas.iter_mut().flatten() {
                if let Some(status) = replica.exited()? {
                    bail!("a replica ended with {status}");
                }
            }
            thread::sleep(CHANGE.saturating_sub(now.elapsed()));
        }
        if let Some((n, _)) = back {
            self.start(n)?;
        }
        self.figures.time = begun.elapsed();
        let last = Instant::now();
        self.rest()?;
        self.figures.rest = last.elapsed();
        let lease = self.client.get_json(LEASE, "application/json")?;
        self.figures.transitions = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0);
        ensure!(self.figures.transitions > 0, "nobody took over from anybody");
        Ok(std::mem::take(&mut self.figures))
    }

    /// Changes one parent: it is created, resized, or deleted.
    fn change(&mut self) -> Result<()> {
        let name = format!("p{}", self.below(PARENTS));
        let size = self.below(4);
        let size = if size == 0 { Value::Null } else { json!(size.to_string()) };
        let path = format!("{MAPS}/{name}");
        let deletes = self.below(8) == 0;
        let response = if deletes {
            self.client.send("DELETE", &path, "application/json", None)?
        } else {
            let patch = json!({"data": {"size": size}});
            self.client.exchange("PATCH", &path, "application/merge-patch+json", Some(&patch))?
        };
        let status = match response.status {
            404 if !deletes => {
                let data = if size.is_null() { json!({}) } else { json!({"size": size}) };
                let metadata = json!({"name": name, "labels": {"parent": name}});
                let parent =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
                self.client.post(MAPS, &parent)?.status
            }
            status => status,
        };
        ensure!(status < 300 || status == 404, "{path} is answered with {status}");
        self.figures.changes += 1;
        Ok(())
    }

    /// Kills a replica with SIGKILL: the leader three times in four.
    fn kill(&mut self) -> Result<usize> {
        let lease = self.client.get_json(LEASE, "application/json")?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let leader = (0..2).find(|n| identity(*n, self.processes[*n]) == holder);
        let is_leader = leader.is_some() && self.below(4) != 0;
        let n = leader.filter(|_| is_leader).unwrap_or_else(|| self.below(2) as usize);
        self.figures.kills += 1;
        self.figures.leaders_killed += u64::from(Some(n) == leader);
        // Dropping it is SIGKILL.
        self.replicas[n] = None;
        Ok(n)
    }

    /// Waits until each parent has its child, and no child is without a parent.
    fn rest(&self) -> Result<()> {
        let end = Instant::now() + REST;
        loop {
            let wrong = wrong(self.client)?;
            if wrong.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{REST:?} after the last change:\n{}", wrong.join("\n"));
            thread::sleep(CHANGE);
        }
    }
}

fn identity(replica: usize, process: u32) -> String {
    format!("{}-{process}", ["a", "b"][replica])
}

fn version(client: &Client) -> Result<String> {
    let list = client.get_json(SECRETS, "application/json")?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned())
}

fn owner(child: &Value) -> String {
    child["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Follows the children from a version on, and counts them. An error if a parent has two at any revision.
fn observe(client: &Client, mut version: String, over: &AtomicBool) -> Result<usize> {
    let mut children: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut created = 0;
    while !over.load(Ordering::Relaxed) {
        let path =
            format!("{SECRETS}?watch=true&timeoutSeconds=5&labelSelector=parent&resourceVersion={version}");
        let mut watch = client.get(&path)?;
        ensure!(watch.status == 200, "the watch is answered with {}", watch.status);
        // It ends when its time is over.
        while let Ok(event) = watch.event() {
            let object = &event["object"];
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let siblings = children.entry(owner(object)).or_default();
            match event["type"].as_str() {
                Some("ADDED") => {
                    created += 1;
                    siblings.insert(uid);
                }
                Some("MODIFIED") => {}
                Some("DELETED") => drop(siblings.remove(&uid)),
                _ => bail!("an event {event}"),
            }
            ensure!(siblings.len() <= 1, "a parent has {} children: {object}", siblings.len());
            version = object["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned();
        }
    }
    Ok(created)
}

/// What is not as it should be.
fn wrong(client: &Client) -> Result<Vec<String>> {
    let list = |path: &str| -> Result<Vec<Value>> {
        let list = client.get_json(&format!("{path}?labelSelector=parent"), "application/json")?;
        list["items"].as_array().cloned().context("no list")
    };
    let (parents, children) = (list(MAPS)?, list(SECRETS)?);
    let mut wrong = Vec::new();
    for parent in &parents {
        let (name, uid) = (&parent["metadata"]["name"], &parent["metadata"]["uid"]);
        if !parent["metadata"]["deletionTimestamp"].is_null() {
            wrong.push(format!("{name} is still being deleted"));
            continue;
        }
        let own = children.iter().filter(|child| Some(owner(child).as_str()) == uid.as_str());
        let has: Vec<&Value> = own.map(|child| &child["metadata"]["annotations"]["size"]).collect();
        let wanted: Vec<&Value> = parent["data"].get("size").into_iter().collect();
        if has != wanted {
            wrong.push(format!("{name} wants {wanted:?} and has {has:?}"));
        }
    }
    for child in &children {
        if !parents.iter().any(|parent| parent["metadata"]["uid"].as_str() == Some(&owner(child))) {
            wrong.push(format!("{} is an orphan", child["metadata"]["name"]));
        }
    }
    Ok(wrong)
}
