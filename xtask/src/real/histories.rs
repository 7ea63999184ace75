//! The suite `histories`: what clients see while the server is killed and compacted is what a correct server shows.

use std::path::Path;
use std::time::Duration;

use super::peers::Peers;
use super::report::Report;
use super::servers::Reference;
use crate::load::histories::{Against, Plan, no_etcd, program, setpoint};

pub(crate) const SUITE: &str = "histories";

/// For each server.
const LASTS: Duration = Duration::from_secs(20);

const ALL: [(Against, &str); 3] = [
    (Against::Memory, "setpoint in memory"),
    (Against::Redb, "setpoint with a disk, killed every few seconds"),
    (Against::KubeApiserver, "kube-apiserver over etcd: the checker blames nobody who is right"),
];
const OVER_ETCD: [(Against, &str); 2] = [
    (Against::Etcd, "setpoint over etcd, both killed every few seconds"),
    (Against::EtcdMembers, "setpoint over three members of etcd that are killed, stopped and compacted"),
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().chain(OVER_ETCD).map(|(_, name)| name)
}

pub(crate) fn run(report: &mut Report, peers: &Peers, setpoint: &Path, profile: &str, skip_build: bool) {
    if !report.filter().takes_suite(SUITE) {
        return;
    }
    let program = match program(profile, skip_build) {
        Ok(program) => program,
        Err(error) => return report.skip(SUITE, &format!("{error:#}")),
    };
    for (against, name) in ALL {
        if against == Against::KubeApiserver
            && let Err(error) = Reference::get(peers)
        {
            report.skip(SUITE, &format!("{name}: {error:#}"));
            continue;
        }
        check(report, peers, (against, name), setpoint, &program);
    }
}

/// The part that needs a binary of its own. It is built where the others have theirs, so it comes after them.
pub(crate) fn run_over_etcd(report: &mut Report, peers: &Peers, profile: &str, skip_build: bool) {
    if !OVER_ETCD.iter().any(|(_, name)| report.filter().takes(SUITE, name)) {
        return;
    }
    if let Some(why) = no_etcd() {
        return report.skip(SUITE, &format!("over etcd: {why}"));
    }
    let reference = Reference::get(peers);
    let built =
        reference.and_then(|_| Ok((setpoint(profile, true, skip_build)?, program(profile, skip_build)?)));
    match built {
        Ok((setpoint, program)) => {
            OVER_ETCD.into_iter().for_each(|what| check(report, peers, what, &setpoint, &program));
        }
        Err(error) => report.skip(SUITE, &format!("over etcd: {error:#}")),
    }
}

fn check(report: &mut Report, peers: &Peers, what: (Against, &str), setpoint: &Path, program: &Path) {
    let (against, name) = what;
    let mut said = None;
    report.check(SUITE, name, || {
        said = Some(Plan::new(against, LASTS).run(setpoint, program, peers)?);
        Ok(())
    });
    for line in said.iter().flat_map(|said| said.lines()) {
        report.note(SUITE, line);
    }
}
