//! The suites `cluster-up` and `cluster-kube`: our controllers and nodes in `setpoint up`, and the same ones, by
//! `setpoint cluster`, against kube-apiserver.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::kubectl;
use super::peers::{KUBECTL, Peers};
use super::report::Report;
use super::servers::{Reference, Server};

pub(crate) const OURS: &str = "cluster-up";
pub(crate) const THEIRS: &str = "cluster-kube";

/// Runs the scenarios against both servers.
pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path) {
    let kubectl = match peers.get(&KUBECTL) {
        Ok(kubectl) => kubectl,
        Err(error) => return report.skip(OURS, &format!("{error:#}")),
    };
    if report.filter().takes_suite(OURS) {
        start(report, OURS, Server::setpoint_cluster(setpoint), &kubectl, true);
    }
    if report.filter().takes_suite(THEIRS) {
        match Reference::get(peers) {
            Ok(reference) => {
                let server = Server::kube_apiserver(&reference).and_then(|mut server| {
                    server.add_cluster(setpoint)?;
                    Ok(server)
                });
                // Its logs are on a kubelet, which simulated nodes do not have.
                start(report, THEIRS, server, &kubectl, false);
            }
            Err(error) => report.skip(THEIRS, &format!("{error:#}")),
        }
    }
}

fn start(report: &mut Report, suite: &str, server: Result<Server>, kubectl: &Path, has_logs: bool) {
    match server {
        Ok(server) => kubectl::run_cluster(report, suite, kubectl, server.kubeconfig(), has_logs),
        Err(error) => report.record(suite, "the server starts", Instant::now().elapsed(), Err(error)),
    }
}
