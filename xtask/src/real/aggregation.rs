//! The suite `aggregation`: Go's sample-apiserver, with an etcd of its own, behind `setpoint up` and behind kube-apiserver.
//! The same script on both, with kubectl of both versions; what it prints must be the same.

mod attacks;
mod sample;
mod script;
mod stranger;
mod tides;
mod transcript;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use self::sample::Sample;
use self::transcript::Transcript;
use super::peers::{CLIENT_GO, KUBE_CONTROLLER_MANAGER, KUBECTL, OLD_KUBECTL, Peers, SAMPLE_APISERVER};
use super::report::Report;
use super::servers::{Reference, Server};
use crate::workspace::Program;

pub(crate) const SUITE: &str = "aggregation";

/// The parts of the script, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    script::NAMES.into_iter().chain(attacks::NAMES).chain([tides::NAME])
}

/// The programs that the suite is about.
struct Programs {
    reference: Reference,
    manager: PathBuf,
    sample: PathBuf,
    /// Our own extension server, and client-go's informers on its kinds.
    example: PathBuf,
    /// One that is as short as can be.
    tides: PathBuf,
    client_go: PathBuf,
    /// The newest first.
    kubectls: Vec<(String, PathBuf)>,
}

impl Programs {
    fn get(peers: &Peers, skip_build: bool) -> Result<Programs> {
        let kubectl = |peer| Ok((super::suite(peer), peers.get(peer)?));
        let example = |name, arguments| {
            Program { package: "example-extension-server", name, profile: "dev", arguments }.get(skip_build)
        };
        Ok(Programs {
            reference: Reference::get(peers)?,
            manager: peers.get(&KUBE_CONTROLLER_MANAGER)?,
            sample: peers.get(&SAMPLE_APISERVER)?,
            client_go: peers.get(&CLIENT_GO)?,
            example: example("example-extension-server", &[])?,
            tides: example("examples/tides", &["--example", "tides"])?,
            kubectls: [&KUBECTL, &OLD_KUBECTL].into_iter().map(kubectl).collect::<Result<_>>()?,
        })
    }
}

/// Runs the script on both, and compares.
pub(crate) fn run(report: &mut Report, peers: &Peers, binary: &Path, skip_build: bool) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let programs = match Programs::get(peers, skip_build) {
        Ok(programs) => programs,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    let both = (|| {
        let theirs = {
            let controllers = "namespace-controller,garbage-collector-controller,deployment-controller,\
                replicaset-controller,node-lifecycle-controller,horizontal-pod-autoscaler-controller";
            let mut server =
                Server::kube_apiserver_with(&programs.reference, &programs.manager, controllers)?;
            // Pods run on our nodes.
            let mut nodes = Command::new(binary);
            nodes.args([
                "cluster",
                "--kubeconfig",
                "kubeconfig",
                "--controllers",
                "scheduler",
                "--nodes",
                "2",
            ]);
            server.run_beside(nodes, "cluster.log")?;
            play(&programs, &server)?
        };
        let ours = play(&programs, &Server::setpoint_cluster(binary)?)?;
        Ok((ours, theirs))
    })();
    let (ours, theirs) = match both {
        Ok(both) => both,
        Err(error) => return report.record(SUITE, "both scripts run", Duration::ZERO, Err(error)),
    };
    for (one, other) in ours.parts().iter().zip(theirs.parts()) {
        report.check(SUITE, &one.name, || {
            let differs = one.steps.iter().zip(&other.steps).filter(|(mine, yours)| mine != yours);
            let differences: Vec<String> = differs
                .map(|(mine, yours)| {
                    format!("{}\nkube-apiserver: {}\nsetpoint:       {}", mine.0, yours.1, mine.1)
                })
                .collect();
            ensure!(differences.is_empty(), "{}", differences.join("\n"));
            ensure!(one.steps.len() == other.steps.len(), "one of them has more steps");
            Ok(())
        });
    }
    report.note(
        SUITE,
        &format!(
            "from the APIService to its first answer: setpoint {:?}, kube-apiserver {:?}",
            ours.first_answer, theirs.first_answer
        ),
    );
}

fn play(programs: &Programs, server: &Server) -> Result<Transcript> {
    let mut sample = Sample::new(&programs.sample, &programs.reference.etcd, server.kubeconfig())?;
    let mut transcript = Transcript::default();
    let own =
        script::Own { example: &programs.example, tides: &programs.tides, client_go: &programs.client_go };
    script::play(&mut transcript, &programs.kubectls, server, &mut sample, &own)?;
    Ok(transcript)
}
