//! The suite `etcd`: our server over a real etcd, and kube-apiserver on the same data.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::http::Client;
use super::peers::{CLIENT_GO, KUBECTL, Peers};
use super::process::{Running, poll, run as finish};
use super::report::Report;
use super::servers::{Reference, Server, etcd_command, free_port, spawn};
use super::{client_go, differential, kubectl};
use crate::workspace::{Program, cargo, root};

pub(crate) const SUITE: &str = "etcd";
const ENGINE: &str = "the engine keeps its promises";
const OURS: &str =
    "what kube-apiserver has stored reads the same here, and an unchanged update writes nothing";
const THEIRS: &str =
    "what is stored here reads the same in kube-apiserver, and an unchanged update writes nothing";

const API: &str = "the API is the same over etcd";

pub(crate) const NAMES: [&str; 4] = [ENGINE, API, OURS, THEIRS];

const START: Duration = Duration::from_secs(30);
/// Long enough to build it, too.
const ENGINE_TIME: Duration = Duration::from_secs(1800);

/// An etcd that outlives the servers on it.
struct Etcd {
    _process: Running,
    url: String,
    _folder: TempDir,
}

impl Etcd {
    fn start(binary: &Path) -> Result<Etcd> {
        let folder = TempDir::new()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let url = format!("http://{address}");
        let command = etcd_command(binary, &["--unsafe-no-fsync"], &url)?;
        let process = spawn(command, folder.path(), "etcd.log")?;
        let client = Client::plain(&address);
        let ready = poll(START, || Ok(client.get("/health").ok().filter(|answer| answer.status == 200)))?;
        ready.context("etcd does not start")?;
        Ok(Etcd { _process: process, url, _folder: folder })
    }
}

/// Runs it. The binary has to be one that knows etcd, which takes protoc to build.
pub(crate) fn run(report: &mut Report, peers: &Peers, profile: &str, skip_build: bool) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let arguments = &["--features", "etcd"];
    let binary = Program { package: "setpoint-cli", name: "setpoint", profile, arguments }.get(skip_build);
    let (binary, reference) = match (binary, Reference::get(peers)) {
        (Ok(binary), Ok(reference)) => (binary, reference),
        (Err(error), _) | (_, Err(error)) => return report.skip(SUITE, &format!("{error:#}")),
    };
    report.check(SUITE, ENGINE, || {
        tests(&reference, &["--lib", "storage::etcd", "--", "--include-ignored", "--test-threads=1"])
    });
    report.check(SUITE, API, || tests(&reference, &["--test", "api"]));
    clients(report, peers, &binary, &reference);
    report.check(SUITE, OURS, || {
        let etcd = Etcd::start(&reference.etcd)?;
        let theirs = || Server::kube_apiserver_on(&reference, &etcd.url);
        shared(theirs, || Server::setpoint_on(&binary, &etcd.url))
    });
    report.check(SUITE, THEIRS, || {
        let etcd = Etcd::start(&reference.etcd)?;
        let ours = || Server::setpoint_on(&binary, &etcd.url);
        shared(ours, || Server::kube_apiserver_on(&reference, &etcd.url))
    });
}

/// Tests that take an etcd.
fn tests(reference: &Reference, which: &[&str]) -> Result<()> {
    let etcd = Etcd::start(&reference.etcd)?;
    let mut command = cargo(root()?);
    command
        .args(["test", "-p", "setpoint-apiserver", "--features", "etcd"])
        .args(which)
        .env("SETPOINT_ETCD", &etcd.url);
    let finished = finish(command, None, ENGINE_TIME)?;
    ensure!(finished.status.success(), "{}", finished.stdout);
    Ok(())
}

/// The suites of kubectl and client-go, over etcd.
fn clients(report: &mut Report, peers: &Peers, binary: &Path, reference: &Reference) {
    let start = || -> Result<(Etcd, Server)> {
        let etcd = Etcd::start(&reference.etcd)?;
        let server = Server::setpoint_on(binary, &etcd.url)?;
        Ok((etcd, server))
    };
    if let Ok(program) = peers.get(&KUBECTL) {
        match start() {
            Ok((_etcd, server)) => {
                let version = KUBECTL.version().unwrap_or_default();
                kubectl::run(report, SUITE, &program, &version, server.kubeconfig());
            }
            Err(error) => report.record(SUITE, "a server over etcd starts", Duration::ZERO, Err(error)),
        }
    }
    if let (Ok(program), Ok((_etcd, server))) = (peers.get(&CLIENT_GO), start()) {
        client_go::run(report, SUITE, &program, server.kubeconfig());
    }
}

/// What a server has.
#[derive(Default)]
struct Objects {
    /// By where they are and what they are called.
    all: BTreeMap<String, Value>,
    /// Kinds that clients update, by where they are.
    updatable: Vec<String>,
}

impl Objects {
    fn can_be_updated(&self, name: &str) -> bool {
        let kind = name.rsplit_once('/').map_or(name, |(kind, _)| kind);
        let Some((version, plural)) = kind.rsplit_once('/') else { return false };
        let version = version.split("/namespaces/").next().unwrap_or(version);
        self.updatable.contains(&format!("{version}/{plural}"))
    }
}

/// One server writes, it is stopped, and another one reads, and writes what it has read.
fn shared(first: impl FnOnce() -> Result<Server>, second: impl FnOnce() -> Result<Server>) -> Result<()> {
    let writer = first()?;
    let created = differential::furnish(&writer.client()?)?;
    ensure!(created > 50, "only {created} objects were created");
    let written = everything(&writer.client()?)?;
    drop(writer);
    let reader = second()?;
    let client = reader.client()?;
    let read = everything(&client)?;
    let mut wrong = Vec::new();
    let (mut compared, mut updated) = (0, 0);
    for (name, before) in &written.all {
        let Some(after) = read.all.get(name) else {
            wrong.push(format!("{name} is not there"));
            continue;
        };
        // Servers keep some objects up to date themselves.
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if version(before) != version(after) && !name.contains(differential::NAMESPACE) {
            continue;
        }
        compared += 1;
        if before != after {
            wrong.push(format!("{name} was\n{before}\nand is\n{after}"));
            continue;
        }
        if !read.can_be_updated(name) {
            continue;
        }
        updated += 1;
        let answer = client.send("PUT", name, "application/json", Some(after))?;
        let status = answer.status;
        let answer: Value = serde_json::from_str(&answer.text()?)?;
        if status != 200 {
            wrong
                .push(format!("an unchanged update of {name} is answered with {status}:\n{after}\n{answer}"));
        } else if version(&answer) != version(after) {
            wrong.push(format!("an unchanged update of {name} was written:\n{after}\n{answer}"));
        }
    }
    services(&client)?;
    println!("    {compared} objects compared, {updated} updated, of {created} that were created");
    if !wrong.is_empty() {
        bail!("{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}

/// New services get addresses and ports that no other has.
fn services(client: &Client) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/services", differential::NAMESPACE);
    for number in 0..20 {
        let service = serde_json::json!({"metadata": {"name": format!("after-{number}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let answer = client.post(&path, &service)?;
        ensure!(answer.status == 201, "a service is refused: {}", answer.text()?);
    }
    let list = client.get_json("/api/v1/services", "application/json")?;
    let (mut addresses, mut ports) = (Vec::new(), Vec::new());
    for service in list["items"].as_array().into_iter().flatten() {
        let given = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
        addresses.extend(given.filter(|ip| *ip != "None").map(Value::to_string));
        let given = service["spec"]["ports"].as_array().into_iter().flatten();
        ports.extend(given.filter_map(|port| port["nodePort"].as_u64()));
    }
    for count in [unique(&mut addresses), unique(&mut ports)] {
        ensure!(count == 0, "{count} addresses or ports are used twice: {addresses:?} {ports:?}");
    }
    Ok(())
}

/// How many are there twice.
fn unique<T: Ord>(items: &mut Vec<T>) -> usize {
    let before = items.len();
    items.sort_unstable();
    items.dedup();
    before - items.len()
}

/// Every object that the server has.
fn everything(client: &Client) -> Result<Objects> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in client.get_json("/apis", "application/json")?["groups"].as_array().into_iter().flatten() {
        let preferred = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
        versions.push(format!("/apis/{preferred}"));
    }
    let mut objects = Objects::default();
    for version in versions {
        let resources = client.get_json(&version, "application/json")?;
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let plural = resource["name"].as_str().unwrap_or_default();
            let has = |wanted: &str| {
                resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == wanted))
            };
            if !has("list") || plural == "componentstatuses" || plural.contains('/') {
                continue;
            }
            if has("update") {
                objects.updatable.push(format!("{version}/{plural}"));
            }
            let list = client.get_json(&format!("{version}/{plural}"), "application/json")?;
            let kind = resource["kind"].clone();
            for mut object in list["items"].as_array().cloned().into_iter().flatten() {
                object["kind"] = kind.clone();
                object["apiVersion"] =
                    version.trim_start_matches("/apis/").trim_start_matches("/api/").into();
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default();
                let place = match metadata["namespace"].as_str() {
                    Some(namespace) => format!("{version}/namespaces/{namespace}/{plural}/{name}"),
                    None => format!("{version}/{plural}/{name}"),
                };
                objects.all.insert(place, object);
            }
        }
    }
    Ok(objects)
}
