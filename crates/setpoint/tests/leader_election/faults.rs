//! Servers that are away, answers that get lost, leases that others touch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint_sim::{Match, Refusal, World};
use tokio::time::Instant;

use crate::replica::{Replica, SECOND, election, holder, lease};

/// A replica that counts its terms, and whether it works now.
fn counting(world: &World, name: &str) -> (Replica, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    struct Working(Arc<AtomicUsize>);
    impl Drop for Working {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (terms, working) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (terms.clone(), working.clone());
    let replica = Replica::start(world, election(world, name), move |_| {
        counters.0.fetch_add(1, Ordering::Relaxed);
        counters.1.fetch_add(1, Ordering::Relaxed);
        let working = Working(counters.1.clone());
        async move {
            let _working = working;
            std::future::pending::<()>().await;
        }
    });
    (replica, terms, working)
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_process_is_taken_whatever_its_times_say() {
    for renewed in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let world = World::seeded(1);
        let dead: Lease = serde_json::from_value(json!({
            "metadata": {"name": "foo"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 6,
                     "acquireTime": renewed, "renewTime": renewed},
        }))
        .unwrap();
        let leases: Api<Lease> = Api::default_namespaced(world.direct());
        leases.create(&PostParams::default(), &dead).await.unwrap();
        let _a = Replica::idle(&world, "a");
        tokio::time::sleep(15 * SECOND - SECOND / 100).await;
        assert_eq!(holder(&world).await, "dead");
        tokio::time::sleep(5 * SECOND).await;
        let spec = lease(&world).await.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("a"), Some(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_minutes_ends_the_term_and_not_the_process() {
    let world = World::seeded(1);
    let (_a, terms, working) = counting(&world, "a");
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((count(&terms), count(&working)), (1, 1));
    world.stop_server();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(count(&working), 0, "stopped before the lease expired");
    tokio::time::sleep(300 * SECOND).await;
    world.start_server();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((count(&terms), count(&working)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_seconds_ends_nothing() {
    let world = World::seeded(1);
    let (_a, terms, working) = counting(&world, "a");
    for _ in 0..20 {
        tokio::time::sleep(5 * SECOND).await;
        world.stop_server();
        tokio::time::sleep(5 * SECOND).await;
        world.start_server();
    }
    assert_eq!((count(&terms), count(&working)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn renewals_whose_answers_get_lost_end_nothing() {
    let world = World::seeded(1);
    let (_a, terms, working) = counting(&world, "a");
    let renewal = || Match::update("leases");
    for _ in 0..10 {
        world.faults().on(renewal()).lose_response();
        tokio::time::sleep(7 * SECOND).await;
        world.faults().on(renewal()).silence();
        tokio::time::sleep(11 * SECOND).await;
        world.faults().on(renewal()).time_out(2 * SECOND);
        tokio::time::sleep(9 * SECOND).await;
    }
    world.faults().assert_all_fired();
    assert_eq!((count(&terms), count(&working)), (1, 1));
    assert_eq!(lease(&world).await.unwrap().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_whose_answer_gets_lost_is_ours() {
    let world = World::seeded(1);
    world.faults().on(Match::create("leases")).lose_response();
    let (_a, terms, _) = counting(&world, "a");
    tokio::time::sleep(5 * SECOND).await;
    world.faults().assert_all_fired();
    assert_eq!((count(&terms), holder(&world).await.as_str()), (1, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_conflicts_ends_nothing() {
    let world = World::seeded(1);
    let (_a, terms, working) = counting(&world, "a");
    tokio::time::sleep(SECOND).await;
    world.faults().on(Match::update("leases")).refuse(Refusal::Conflict).times(10);
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    for n in 0..2000 {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"n": n.to_string()}}}));
        leases.patch("foo", &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(SECOND / 20).await;
    }
    world.faults().assert_all_fired();
    assert_eq!((count(&terms), count(&working)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn many_candidates_on_one_moment_give_one_leader() {
    let world = World::seeded(1);
    let replicas: Vec<_> = (0..20).map(|n| counting(&world, &format!("replica-{n}"))).collect();
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(replicas.iter().map(|(_, terms, _)| count(terms)).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_by_force_stops_the_work_at_the_next_renewal() {
    let world = World::seeded(1);
    let (_a, _, working) = counting(&world, "a");
    tokio::time::sleep(SECOND).await;
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "admin"}}));
    leases.patch("foo", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((count(&working), holder(&world).await.as_str()), (0, "admin"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_is_made_again_within_the_term() {
    let world = World::seeded(1);
    let (_a, terms, working) = counting(&world, "a");
    tokio::time::sleep(SECOND).await;
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    leases.delete("foo", &Default::default()).await.unwrap();
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!((count(&terms), count(&working), holder(&world).await.as_str()), (1, 1, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_tried_again_and_not_hammered() {
    use setpoint::leader_election::{LeaderElection, LeaseConfig};

    let world = World::seeded(1);
    let config = LeaseConfig { namespace: "nowhere".to_owned(), ..crate::replica::config("a") };
    let election = LeaderElection::new(world.client_named("a"), config).unwrap().env(world.env().clone());
    let _a = Replica::start(&world, election, |_| async { panic!("nobody can be elected") });
    let start = Instant::now();
    tokio::time::sleep(60 * SECOND).await;
    let tries = world.trace().requests(&Match::create("leases")).count();
    assert!((13..=30).contains(&tries), "{tries} in {:?}", start.elapsed());
}
