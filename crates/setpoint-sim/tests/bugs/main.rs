//! Bugs that were published by those who look for them with faults, as small operators. Each is found by exploration alone, by
//! the fault that it was published with, and is not found any more when it is mended.
//!
//! Where they come from: Sieve (OSDI '22), `sieve-project/sieve`, `reproducing_bugs.md`; Acto (SOSP '23).

#![allow(clippy::print_stdout, reason = "it prints the table")]

mod catalogue;
mod operator;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use setpoint_sim::{Exploration, Explorer, Finding, PointKind, Scenario, World};

use crate::catalogue::{BUGS, Bug, janitor};
use crate::operator::{Reconcile, run};

fn cluster(data: &[(&str, &str)]) -> ConfigMap {
    let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let metadata = ObjectMeta {
        name: Some("cluster".to_owned()),
        namespace: Some("default".to_owned()),
        labels: Some(pairs(&[("role", "cluster")])),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: Some(pairs(data)), ..ConfigMap::default() }
}

fn scenario(bug: &'static Bug, reconcile: Reconcile) -> impl Fn(&World) -> Scenario + Send + Sync + 'static {
    move |_| {
        let (kinds, is_elected) = (bug.kinds, bug.is_elected);
        let mut scenario = Scenario::new();
        for name in ["operator", "standby"].into_iter().take(if is_elected { 2 } else { 1 }) {
            scenario = scenario.controller(name, move |seat| run(seat, kinds, is_elected, reconcile));
        }
        scenario =
            scenario.beside("janitor", |seat| run(seat, &[operator::PODS, operator::CLAIMS], false, janitor));
        if is_elected {
            // Leases are renewed all the time: most of a run would be that.
            scenario = scenario.rest(Duration::from_secs(30));
        }
        if bug.fault == PointKind::LeaseLost {
            // The next step comes when another has had time to take the lease.
            scenario = scenario.quiet(Duration::from_secs(20));
        }
        if bug.fault != PointKind::Rollback {
            scenario = scenario.with_history();
        }
        for step in bug.steps {
            scenario = match step {
                Some(data) => scenario.apply(&cluster(data)),
                None => scenario.delete(&cluster(&[])),
            };
        }
        scenario
    }
}

fn explore(bug: &'static Bug, reconcile: Reconcile) -> Exploration {
    Explorer::new(bug.name, scenario(bug, reconcile)).run()
}

#[test]
fn every_bug_is_found_and_is_gone_when_it_is_mended() {
    let only = std::env::var("SETPOINT_SIM_BUG").ok();
    let mut wrong = Vec::new();
    let is_chosen = |bug: &&Bug| only.as_ref().is_none_or(|only| bug.name == only);
    let names: Vec<_> = BUGS.iter().map(|bug| bug.name).collect();
    assert!(BUGS.iter().any(|bug| is_chosen(&bug)), "SETPOINT_SIM_BUG names none of {}", names.join(", "));
    // The point is the first one of that fault at which it fails; SETPOINT_SIM_POINT tries it alone.
    println!(
        "{:<22} {:<28} {:>6} {:>6} {:>8} {:>7}",
        "bug", "found by", "point", "runs", "seconds", "faults"
    );
    for bug in BUGS.iter().filter(is_chosen) {
        let broken = explore(bug, bug.broken);
        let kinds: Vec<PointKind> =
            broken.tried.iter().filter(|(_, tried)| tried.failed > 0).map(|(kind, _)| *kind).collect();
        let seconds = broken.took.as_secs_f64();
        let is_published = |finding: &&Finding| finding.kind == Some(bug.fault);
        match broken.findings.iter().find(is_published) {
            None => wrong.push(format!("{}: found by {kinds:?}, not by {}", bug.name, bug.fault)),
            Some(finding) => {
                let point = finding.point.expect("a single fault has a number");
                println!(
                    "{:<22} {:<28} {point:>6} {:>6} {seconds:>8.1} {:>7}",
                    bug.name,
                    bug.fault,
                    finding.runs,
                    finding.faults.len()
                );
            }
        }
        let mended = explore(bug, bug.mended);
        if mended.tried.get(&bug.fault).is_none_or(|tried| tried.failed > 0 || tried.runs == 0) {
            let report = mended.findings.first().map(|finding| finding.report.as_str()).unwrap_or_default();
            wrong.push(format!("{} is accused when it is mended:\n{report}", bug.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
