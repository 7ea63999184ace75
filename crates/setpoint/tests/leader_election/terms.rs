//! How terms begin and end when nothing goes wrong.

use std::sync::Arc;

use kube::Api;
use setpoint::Metrics;
use setpoint::leader_election::{LeaderElection, LeaseConfig, LeaseConfigError};
use setpoint_sim::World;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::replica::{Replica, SECOND, config, election, holder, lease};

#[tokio::test(start_paused = true)]
async fn the_first_replica_leads_and_the_second_waits() {
    let world = World::seeded(1);
    let _a = Replica::idle(&world, "a");
    tokio::time::sleep(SECOND).await;
    let _b = Replica::idle(&world, "b");
    tokio::time::sleep(600 * SECOND).await;
    let spec = lease(&world).await.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("a"), Some(0)));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    let renewed = spec.renew_time.unwrap().0;
    assert!(world.env().now().duration_since(renewed).as_secs() <= 2, "renewed every two seconds");
}

#[tokio::test(start_paused = true)]
async fn a_release_empties_the_holder_keeps_the_transitions_and_hands_over_at_once() {
    let world = World::seeded(1);
    let a = Replica::idle(&world, "a");
    tokio::time::sleep(3 * SECOND).await;
    a.shutdown.cancel();
    a.task.await.unwrap();
    let spec = lease(&world).await.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(""), Some(0)));
    let _b = Replica::idle(&world, "b");
    tokio::time::sleep(SECOND / 100).await;
    let spec = lease(&world).await.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn without_release_the_others_wait_until_the_lease_expires() {
    let world = World::seeded(1);
    let config = LeaseConfig { release_on_cancel: false, ..config("a") };
    let election = LeaderElection::new(world.client_named("a"), config).unwrap().env(world.env().clone());
    let a = Replica::start(&world, election, |term| async move { term.ending().cancelled().await });
    tokio::time::sleep(SECOND).await;
    a.shutdown.cancel();
    a.task.await.unwrap();
    let _b = Replica::idle(&world, "b");
    tokio::time::sleep(14 * SECOND).await;
    assert_eq!(holder(&world).await, "a");
    tokio::time::sleep(6 * SECOND).await;
    assert_eq!(holder(&world).await, "b");
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_the_lease_is_kept_until_the_work_has_ended() {
    let world = World::seeded(1);
    let a = Replica::start(&world, election(&world, "a"), |term| async move {
        term.ending().cancelled().await;
        tokio::time::sleep(60 * SECOND).await;
        assert!(term.fence().is_open(), "the last writes are still the leader's");
    });
    let _b = Replica::idle(&world, "b");
    tokio::time::sleep(SECOND).await;
    a.shutdown.cancel();
    tokio::time::sleep(59 * SECOND).await;
    assert_eq!(holder(&world).await, "a");
    assert_eq!(a.task.await.unwrap(), Some(()));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(holder(&world).await, "b");
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_gives_its_result_and_the_lease_back() {
    let world = World::seeded(1);
    let election = election(&world, "a");
    let result = election.run(CancellationToken::new(), |term| async move { term.transitions() }).await;
    assert_eq!((result, holder(&world).await.as_str()), (Some(0), ""));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_shuts_down_has_done_nothing() {
    let world = World::seeded(1);
    let _a = Replica::idle(&world, "a");
    tokio::time::sleep(SECOND).await;
    let b = Replica::idle(&world, "b");
    tokio::time::sleep(SECOND).await;
    b.shutdown.cancel();
    assert_eq!(b.task.await.unwrap(), None);
    assert_eq!(holder(&world).await, "a");
}

#[tokio::test(start_paused = true)]
async fn everybody_can_follow_who_leads() {
    let world = World::seeded(1);
    let (first, second) = (election(&world, "a"), Arc::new(election(&world, "b")));
    let mut told = second.subscribe();
    let a = Replica::start(&world, first, |term| async move { term.ending().cancelled().await });
    tokio::time::sleep(SECOND).await;
    let (running, shutdown) = (second.clone(), CancellationToken::new());
    let _b = world.env().spawn(async move {
        running.run(shutdown, |term| async move { term.ending().cancelled().await }).await
    });
    let status = told.wait_for(|status| status.leader.is_some()).await.unwrap().clone();
    assert_eq!((status.leader.as_deref(), status.is_leader), (Some("a"), false));
    drop(a);
    let start = Instant::now();
    let status = told.wait_for(|status| status.is_leader).await.unwrap().clone();
    assert_eq!(status.leader.as_deref(), Some("b"));
    assert!(start.elapsed() <= 24 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn metrics_and_health_say_whether_a_leader_leads() {
    let world = World::seeded(1);
    let metrics = Metrics::default();
    let election = Arc::new(election(&world, "a").metrics(&metrics));
    let master = || metrics.value("leader_election_master_status", &[("name", "foo")]);
    assert_eq!(master(), Some(0));
    let (running, shutdown) = (election.clone(), CancellationToken::new());
    let task =
        world.env().spawn(async move { running.run(shutdown, |_| std::future::pending::<()>()).await });
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(master(), Some(1));
    election.check_health(SECOND).unwrap();
    task.stop().await;
    assert_eq!(master(), Some(0), "a leader that is dropped leads no more");
    assert!(!election.subscribe().borrow().is_leader);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_task_is_stuck_is_unhealthy() {
    let world = World::seeded(1);
    let election = Arc::new(election(&world, "a"));
    let running = election.clone();
    let mut run =
        Box::pin(
            async move { running.run(CancellationToken::new(), |_| std::future::pending::<()>()).await },
        );
    assert!(tokio::time::timeout(SECOND, &mut run).await.is_err());
    tokio::time::sleep(30 * SECOND).await; // nobody polls it
    election.check_health(20 * SECOND).unwrap();
    let error = election.check_health(10 * SECOND).unwrap_err().to_string();
    assert!(error.starts_with("the lease default/foo expired 1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused() {
    let world = World::seeded(1);
    let config = LeaseConfig { lease: 5 * SECOND, ..config("a") };
    let error = LeaderElection::new(world.client(), config).unwrap_err();
    assert_eq!(error, LeaseConfigError::LeaseTooShort { lease: 5 * SECOND, renew_deadline: 10 * SECOND });
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_the_lease_stay() {
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::api::PostParams;

    let world = World::seeded(1);
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    let mut made = Lease::default();
    made.metadata.name = Some("foo".to_owned());
    made.metadata.labels = Some([("team".to_owned(), "blue".to_owned())].into());
    leases.create(&PostParams::default(), &made).await.unwrap();
    let a = Replica::idle(&world, "a");
    tokio::time::sleep(10 * SECOND).await;
    a.shutdown.cancel();
    a.task.await.unwrap();
    assert_eq!(leases.get("foo").await.unwrap().metadata.labels, made.metadata.labels);
}
