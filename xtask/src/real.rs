//! `cargo xtask real`: the suites that need real components.
//!
//! kubectl and client-go talk to our server; kube-apiserver says what the
//! right answers are. Whatever cannot be built here is skipped with a reason.

mod access;
mod aggregation;
mod client_go;
mod cluster;
mod codegen;
mod dashboard;
mod differential;
mod discovery;
mod envtest;
mod etcd;
mod guides;
mod handover;
mod helm;
mod histories;
mod http;
mod informer;
mod kubectl;
pub(crate) mod peers;
pub(crate) mod process;
mod prometheus_operator;
pub(crate) mod report;
mod samples;
pub(crate) mod servers;
mod sim_proxy;
pub(crate) mod startup;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use http::Client;
use peers::{
    CLIENT_GO, CONTROLLER_RUNTIME, HELM, KUBE_CONTROLLER_MANAGER, KUBECTL, OLD_KUBECTL, Peer, Peers,
};
use report::{Filter, Report};
use servers::{Reference, Server};

use crate::fuzz;
use crate::workspace::{Program, root, target};

/// Options of `cargo xtask real`.
#[derive(clap::Args)]
pub(crate) struct Real {
    /// Run only the suites whose names start with this (`kubectl`), and only their checks that contain the
    /// part after the slash (`kubectl-1.37/scale`).
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List suites and checks instead of running them.
    #[arg(long)]
    list: bool,
    /// Use existing binaries, and skip what needs others.
    #[arg(long)]
    skip_build: bool,
    /// Build every peer and run nothing.
    #[arg(long, conflicts_with = "skip_build")]
    build_only: bool,
    /// Test a debug build of setpoint: faster to build, slower to run.
    #[arg(long)]
    debug: bool,
    /// Take the pictures of the page in docs/img anew, too.
    #[arg(long)]
    pictures: bool,
    /// The server under test.
    #[arg(long, value_enum, default_value = "setpoint")]
    against: Against,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// `setpoint up --memory`, release build.
    Setpoint,
    /// kube-apiserver with etcd: proves that the checks expect real behaviour.
    KubeApiserver,
}

/// Runs the suites; the exit code says whether all checks passed.
pub(crate) fn run(options: &Real) -> Result<ExitCode> {
    if options.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let peers = Peers::new(!options.skip_build)?;
    if options.build_only {
        return Ok(build_all(&peers));
    }
    let mut report = Report::new(Filter::new(&options.only));
    match options.against {
        Against::Setpoint => against_setpoint(&mut report, &peers, options)?,
        Against::KubeApiserver => against_kube_apiserver(&mut report, &peers, options)?,
    }
    Ok(if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn against_setpoint(report: &mut Report, peers: &Peers, options: &Real) -> Result<()> {
    guides::run(report, peers, root()?);
    if report.filter().is_only(guides::SUITE) {
        return Ok(());
    }
    let skip_build = options.skip_build;
    let profile = if options.debug { "dev" } else { "release" };
    let binary = setpoint(profile, skip_build)?;
    kubectls(report, peers, &|| Server::setpoint(&binary))?;
    let mut server = Server::setpoint(&binary)?;
    clients(report, peers, &server);
    informers(report, &mut server, skip_build);
    drop(server);
    if report.filter().takes_suite(samples::SUITE) {
        examples(report, peers, &Server::setpoint(&binary)?, &binary, skip_build);
    }
    let wants = |suite: &str| report.filter().takes_suite(suite);
    let (kinds, startup) = (wants(discovery::SUITE), wants(startup::SUITE));
    let (differential, access) = (wants(differential::SUITE), wants(access::SUITE));
    let clusters = wants(cluster::OURS) || wants(cluster::THEIRS);
    let handover = wants(handover::SUITE);
    if clusters {
        cluster::run(report, peers, &binary);
    }
    workloads::run(report, peers, &binary);
    prometheus_operator::run(report, peers, &binary);
    helm::shapes::run(report, peers, &binary);
    aggregation::run(report, peers, &binary, skip_build);
    sim_proxy::run(report, peers, &binary, skip_build);
    histories::run(report, peers, &binary, profile, skip_build);
    let root = root()?;
    codegen::run(report, peers, &binary, root, &target(root), skip_build);
    dashboard::run(report, peers, &binary, profile, (skip_build, options.pictures));
    envtest::ours(report, peers, &binary);
    etcd::run(report, peers, profile, skip_build);
    histories::run_over_etcd(report, peers, profile, skip_build);
    fuzz::run_briefly(report, skip_build);
    if handover {
        handover::ours(report, &binary, skip_build);
    }
    if !kinds && !startup && !differential && !access && !handover {
        return Ok(());
    }
    let reference = Reference::get(peers);
    if handover {
        handover::theirs(report, &reference, skip_build);
    }
    if kinds {
        compare(report, &binary, &reference, discovery::SUITE, discovery::run);
    }
    if differential {
        compare(report, &binary, &reference, differential::SUITE, differential::run);
    }
    if access {
        compare_access(report, peers, &binary, &reference);
    }
    if startup {
        startup::run(report, &binary);
        startup::run_reference(report, &reference);
    }
    Ok(())
}

/// A suite that asks our server and kube-apiserver the same. Both are fresh: what other suites leave behind is no
/// difference between servers.
fn compare(
    report: &mut Report,
    binary: &Path,
    reference: &Result<Reference>,
    suite: &str,
    run: fn(&mut Report, &Client, &Client),
) {
    let reference = match reference {
        Ok(reference) => reference,
        Err(error) => return report.skip(suite, &format!("{error:#}")),
    };
    let begun = Instant::now();
    let outcome = (|| {
        let (ours, theirs) = (Server::setpoint(binary)?, Server::kube_apiserver(reference)?);
        run(report, &ours.client()?, &theirs.client()?);
        Ok(())
    })();
    if outcome.is_err() {
        report.record(suite, "both servers start", begun.elapsed(), outcome);
    }
}

/// Who may do what, on two fresh servers.
fn compare_access(report: &mut Report, peers: &Peers, binary: &Path, reference: &Result<Reference>) {
    let (reference, manager) = match (reference, peers.get(&KUBE_CONTROLLER_MANAGER)) {
        (Ok(reference), Ok(manager)) => (reference, manager),
        (Err(error), _) => return report.skip(access::SUITE, &format!("{error:#}")),
        (_, Err(error)) => return report.skip(access::SUITE, &format!("{error:#}")),
    };
    let begun = Instant::now();
    let outcome = (|| {
        let ours = Server::setpoint(binary)?;
        let theirs = Server::kube_apiserver_with(reference, &manager, "clusterrole-aggregation-controller")?;
        access::run(report, &ours, &theirs, peers.get(&KUBECTL).ok().as_deref());
        Ok(())
    })();
    if outcome.is_err() {
        report.record(access::SUITE, "both servers start", begun.elapsed(), outcome);
    }
}

fn against_kube_apiserver(report: &mut Report, peers: &Peers, options: &Real) -> Result<()> {
    let skip_build = options.skip_build;
    let reference = Reference::get(peers).context("the server under test cannot be had")?;
    kubectls(report, peers, &|| Server::kube_apiserver(&reference))?;
    let mut server = Server::kube_apiserver(&reference)?;
    clients(report, peers, &server);
    informers(report, &mut server, skip_build);
    if report.filter().takes_suite(samples::SUITE) {
        let profile = if options.debug { "dev" } else { "release" };
        let binary = setpoint(profile, skip_build)?;
        examples(report, peers, &Server::kube_apiserver(&reference)?, &binary, skip_build);
    }
    if report.filter().takes_suite(discovery::SUITE) {
        discovery::run(report, &server.client()?, &server.client()?);
    }
    drop(server);
    envtest::theirs(report, peers);
    let reference = Ok(reference);
    if report.filter().takes_suite(handover::SUITE) {
        handover::theirs(report, &reference, skip_build);
    }
    if report.filter().takes_suite(startup::SUITE) {
        report.skip(startup::SUITE, "its checks are about setpoint");
        startup::run_reference(report, &reference);
    }
    Ok(())
}

/// The suites of kubectl, each on a server of its own: one must not find the definitions that another has left.
fn kubectls(report: &mut Report, peers: &Peers, start: &dyn Fn() -> Result<Server>) -> Result<()> {
    for peer in [&KUBECTL, &OLD_KUBECTL] {
        let suite = suite(peer);
        if let Some(binary) = wanted(report, peers, peer, &suite) {
            let version = peer.version().unwrap_or_default();
            kubectl::run(report, &suite, &binary, &version, start()?.kubeconfig());
        }
    }
    Ok(())
}

/// The suites of other clients, which are the same for every server.
fn clients(report: &mut Report, peers: &Peers, server: &Server) {
    if let Some(program) = wanted(report, peers, &HELM, helm::SUITE) {
        helm::run(report, &program, server);
    }
    for (suite, peer) in [(client_go::SUITE, &CLIENT_GO), (client_go::OPERATOR, &CONTROLLER_RUNTIME)] {
        if let Some(program) = wanted(report, peers, peer, suite) {
            client_go::run(report, suite, &program, server.kubeconfig());
        }
    }
}

/// Our informer against the server.
fn informers(report: &mut Report, server: &mut Server, skip_build: bool) {
    if !report.filter().takes_suite(informer::SUITE) {
        return;
    }
    match root().and_then(|root| informer::program(root, &target(root), skip_build)) {
        Ok(program) => informer::run(report, &program, server),
        Err(error) => report.record(informer::SUITE, "it builds", std::time::Duration::ZERO, Err(error)),
    }
}

/// Our examples against a server of their own, with the controllers and nodes of `setpoint cluster`.
fn examples(report: &mut Report, peers: &Peers, server: &Server, setpoint: &Path, skip_build: bool) {
    match root() {
        Ok(root) => samples::run(report, peers, server, setpoint, root, &target(root), skip_build),
        Err(error) => report.skip(samples::SUITE, &format!("{error:#}")),
    }
}

/// The binary of a peer if the suite is wanted and the peer can be had.
fn wanted(report: &mut Report, peers: &Peers, peer: &Peer, suite: &str) -> Option<PathBuf> {
    if !report.filter().takes_suite(suite) {
        return None;
    }
    peers.get(peer).map_err(|error| report.skip(suite, &format!("{error:#}"))).ok()
}

/// `kubectl-1.37.1`
fn suite(kubectl: &Peer) -> String {
    format!("kubectl-{}", kubectl.version().unwrap_or_default().trim_start_matches('v'))
}

/// The release build of this workspace's binary, built unless told otherwise.
pub(crate) fn setpoint_release(skip_build: bool) -> Result<PathBuf> {
    setpoint("release", skip_build)
}

/// The binary of this workspace, from a profile.
fn setpoint(profile: &str, skip_build: bool) -> Result<PathBuf> {
    Program { package: "setpoint-cli", name: "setpoint", profile, arguments: &[] }.get(skip_build)
}

fn build_all(peers: &Peers) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for peer in peers::ALL {
        match peers.get(peer) {
            Ok(path) => println!("{}: {}", peer.title(), path.display()),
            Err(error) => {
                println!("{}: {error:#}", peer.title());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn list() {
    for peer in [&KUBECTL, &OLD_KUBECTL] {
        for name in kubectl::names() {
            println!("{}: {name}", suite(peer));
        }
    }
    println!("{}: see xtask/peers/clientgo", client_go::SUITE);
    println!("{}: see xtask/peers/controllerruntime", client_go::OPERATOR);
    for name in discovery::NAMES {
        println!("{}: {name}", discovery::SUITE);
    }
    for name in differential::names() {
        println!("{}: {name}", differential::SUITE);
    }
    for name in envtest::names() {
        println!("{}: {name}", envtest::SUITE);
    }
    for name in etcd::NAMES {
        println!("{}: {name}", etcd::SUITE);
    }
    for name in guides::NAMES {
        println!("{}: {name}", guides::SUITE);
    }
    for name in handover::NAMES {
        println!("{}: {name}", handover::SUITE);
    }
    for name in helm::NAMES {
        println!("{}: {name}", helm::SUITE);
    }
    for name in histories::names() {
        println!("{}: {name}", histories::SUITE);
    }
    for name in access::NAMES {
        println!("{}: {name}", access::SUITE);
    }
    for name in aggregation::names() {
        println!("{}: {name}", aggregation::SUITE);
    }
    for name in informer::NAMES {
        println!("{}: {name}", informer::SUITE);
    }
    for name in samples::NAMES {
        println!("{}: {name}", samples::SUITE);
    }
    for name in codegen::names() {
        println!("{}: {name}", codegen::SUITE);
    }
    for name in dashboard::NAMES {
        println!("{}: {name}", dashboard::SUITE);
    }
    for name in kubectl::cluster_names() {
        println!("{}: {name}", cluster::OURS);
    }
    for name in prometheus_operator::NAMES {
        println!("{}: {name}", prometheus_operator::SUITE);
    }
    for name in helm::shapes::names() {
        println!("{}: {name}", helm::shapes::SUITE);
    }
    for name in sim_proxy::NAMES {
        println!("{}: {name}", sim_proxy::SUITE);
    }
    for name in startup::NAMES {
        println!("{}: {name}", startup::SUITE);
    }
    for name in workloads::names() {
        println!("{}: {name}", workloads::SUITE);
    }
    for name in fuzz::names() {
        println!("{}: {name}", fuzz::SUITE);
    }
}
