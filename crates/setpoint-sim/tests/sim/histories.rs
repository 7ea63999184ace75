//! What clients see through faults, restarts and compactions is what a correct server shows.

use std::time::Duration;

use futures::future::{Either, select};
use setpoint_history::{History, Load, Resource, Until, Verdict, check};
use setpoint_sim::{FaultKind, Swarm, World};

/// How many changes the server remembers: few, so that watches and continued lists fall behind.
const HISTORY: usize = 60;

/// Everything that a network can do, and what a server may answer when it is busy. A conflict without another writer is
/// not among it: no server that keeps its promises says so.
fn swarm() -> Swarm {
    let longest = Duration::from_millis(200);
    Swarm::every(0.02).chance(FaultKind::Conflict, 0.0).chance(FaultKind::DelayRequest, 0.2).longest(longest)
}

fn run(seed: u64, swarm: Option<Swarm>) -> (History, u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::with_server(seed, |server| server.history(HISTORY, 1 << 20));
        if let Some(swarm) = swarm {
            world.faults().swarm(swarm);
        }
        let resource = if seed.is_multiple_of(2) { Resource::ConfigMaps } else { Resource::Pods };
        let load = Load { seed, resource, until: Until::Operations(80), ..Load::default() };
        let troubled = world.clone();
        let trouble = async move {
            for round in 1_u64.. {
                tokio::time::sleep(Duration::from_millis(300)).await;
                match round % 3 {
                    0 => troubled.server().compact(),
                    1 => troubled.restart_server(),
                    _ => troubled.server().end_watches(),
                }
            }
        };
        let history = load.run(|name| world.client_named(name));
        let Either::Left((history, _)) = select(Box::pin(history), Box::pin(trouble)).await else {
            unreachable!("trouble never ends");
        };
        (history.unwrap(), world.trace_hash())
    })
}

fn checked(history: &History, seed: u64) -> Verdict {
    let verdict = check(history);
    assert_eq!(verdict.total, 0, "seed {seed}: {verdict}");
    verdict
}

#[test]
fn clients_without_faults_see_a_correct_server() {
    for seed in 0..2 {
        let verdict = checked(&run(seed, None).0, seed);
        assert!(verdict.operations > 400 && verdict.events > 400, "{verdict}");
        assert_eq!(verdict.never_done(), Vec::<&str>::new(), "{verdict}");
    }
}

#[test]
fn clients_see_a_correct_server_through_faults_restarts_and_compactions() {
    let (mut unknown, mut done_after_all, mut expired) = (0, 0, 0);
    for seed in 0..8 {
        let (history, _) = run(seed, Some(swarm()));
        let verdict = checked(&history, seed);
        unknown += verdict.unknown;
        done_after_all += verdict.done_after_all;
        let is_expired = |ended: &setpoint_history::Ended| *ended == setpoint_history::Ended::Expired;
        expired += history.watches.iter().filter(|watch| is_expired(&watch.ended)).count();
    }
    // A test that met no trouble says nothing.
    assert!(unknown > 25 && done_after_all > 5 && expired > 5, "{unknown} {done_after_all} {expired}");
}

#[test]
fn a_seed_repeats_its_history() {
    let (first, again) = (run(3, Some(swarm())), run(3, Some(swarm())));
    assert_eq!(first.1, again.1);
    assert_eq!(first.0, again.0);
}
