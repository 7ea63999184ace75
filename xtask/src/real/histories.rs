//! The suite `histories`: what clients see while the server is killed and compacted is what a correct server shows.

use std::path::Path;
use std::time::Duration;

use super::peers::Peers;
use super::report::Report;
use super::servers::Reference;
use crate::load::histories::{Against, Plan, program};

pub(crate) const SUITE: &str = "histories";

/// Three of them are the minute that this suite has.
const LASTS: Duration = Duration::from_secs(20);

const ALL: [(Against, &str); 3] = [
    (Against::Memory, "setpoint in memory"),
    (Against::Redb, "setpoint with a disk, killed every few seconds"),
    (Against::KubeApiserver, "kube-apiserver over etcd: the checker blames nobody who is right"),
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(_, name)| name)
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
        let mut said = None;
        report.check(SUITE, name, || {
            said = Some(Plan::new(against, LASTS).run(setpoint, &program, peers)?);
            Ok(())
        });
        for line in said.iter().flat_map(|said| said.lines()) {
            report.note(SUITE, line);
        }
    }
}
