//! The suite `samples`: the examples as programs of their own, with kubectl, and with what they stand for: a real
//! Neutron, the sample-controller that is written in Go.

mod docs;
pub(super) mod foo;
mod go;
mod in_cluster;
mod ingress;
mod labs;
mod network;
mod neutron;
pub(super) mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::neutron::Neutron;
use self::stage::Stage;
use super::peers::{KUBECTL, Peers, SAMPLE_CONTROLLER};
use super::report::Report;
use super::servers::Server;
use crate::workspace;

pub(crate) const SUITE: &str = "samples";

pub(crate) const NAMES: [&str; 8] = [
    foo::NAME,
    ingress::NAME,
    labs::NAME,
    docs::NAME,
    in_cluster::NAME,
    go::NAME,
    network::NAME,
    network::KILLED,
];

/// The programs of `examples/`, built.
pub(super) struct Programs(PathBuf);

impl Programs {
    fn build(root: &Path, target: &Path, skip_build: bool) -> Result<Programs> {
        if !skip_build {
            let packages = ["foo", "network", "ingress-manager", "labs", "first-controller"];
            let flags = packages.iter().flat_map(|name| ["-p".to_owned(), format!("example-{name}")]);
            let status = workspace::cargo(root).arg("build").args(flags).status()?;
            ensure!(status.success(), "the examples do not build");
        }
        Ok(Programs(target.join("debug")))
    }

    fn command(&self, name: &str) -> Command {
        Command::new(self.0.join(name))
    }
}

/// Runs every check. `setpoint` is the binary whose cluster brings Deployments to life beside any server.
pub(crate) fn run(
    report: &mut Report,
    peers: &Peers,
    server: &Server,
    setpoint: &Path,
    root: &Path,
    target: &Path,
    skip_build: bool,
) {
    let prepared = peers.get(&KUBECTL).and_then(|kubectl| {
        let programs = Programs::build(root, target, skip_build)?;
        Ok((Stage::new(kubectl, server.kubeconfig(), setpoint)?, programs))
    });
    let (stage, programs) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let _cluster = match stage.cluster() {
        Ok(cluster) => cluster,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    report.check(SUITE, foo::NAME, || foo::run(&stage, &programs));
    report.check(SUITE, ingress::NAME, || ingress::run(&stage, &programs));
    report.check(SUITE, labs::NAME, || labs::run(&stage, &programs));
    report.check(SUITE, docs::NAME, || docs::run(&stage, &programs, root));
    report.check(SUITE, in_cluster::NAME, || in_cluster::run(&stage, &programs));
    match peers.get(&SAMPLE_CONTROLLER) {
        Ok(theirs) => report.check(SUITE, go::NAME, || go::run(&stage, &programs, &theirs)),
        Err(error) => report.skip(go::NAME, &format!("{error:#}")),
    }
    for (name, run) in [
        (network::NAME, network::run as fn(&Stage, &Programs, &mut Neutron) -> Result<()>),
        (network::KILLED, network::killed),
    ] {
        if !report.filter().takes(SUITE, name) {
            continue;
        }
        let neutron = Neutron::start(peers.cache(), !skip_build).context("there is no Neutron here");
        match neutron {
            Ok(mut neutron) => report.check(SUITE, name, || run(&stage, &programs, &mut neutron)),
            Err(error) => report.skip(name, &format!("{error:#}")),
        }
    }
}
