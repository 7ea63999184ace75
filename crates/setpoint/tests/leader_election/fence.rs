//! Writes that end before the lease can be another's.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Error};
use parking_lot::Mutex;
use setpoint::leader_election::{LeaderElection, NotLeader, Term};
use setpoint_sim::{Match, World};
use tokio::time::Instant;

use crate::replica::{Network, Replica, SECOND, config, detached, election};

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    ConfigMap { metadata, data: Some(BTreeMap::new()), ..Default::default() }
}

/// Leads, and hands the term out to the test, as work does that spawned tasks of its own.
async fn lead(world: &World) -> (Replica, Term) {
    let given = Arc::new(Mutex::new(None));
    let give = given.clone();
    let replica = Replica::start(world, election(world, "a"), move |term| {
        *give.lock() = Some(term);
        std::future::pending()
    });
    tokio::time::sleep(SECOND).await;
    let term = given.lock().take().expect("elected");
    (replica, term)
}

fn maps(term: &Term) -> Api<ConfigMap> {
    Api::default_namespaced(term.client())
}

fn refusal(error: &Error) -> String {
    NotLeader::find(error).unwrap_or_else(|| panic!("{error:?}")).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_leader_reads_and_writes_through_its_fence() {
    let world = World::seeded(1);
    let (_a, term) = lead(&world).await;
    maps(&term).create(&PostParams::default(), &map("m")).await.unwrap();
    maps(&term).get("m").await.unwrap();
    let remaining = term.fence().remaining();
    assert!(8 * SECOND < remaining && remaining <= 10 * SECOND, "{remaining:?}");
    term.fence().check("an e-mail").unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_writes_are_refused_and_reads_pass() {
    let world = World::seeded(1);
    let (a, term) = lead(&world).await;
    a.pause();
    tokio::time::sleep(10 * SECOND).await;
    let error = maps(&term).create(&PostParams::default(), &map("m")).await.unwrap_err();
    assert_eq!(
        refusal(&error),
        "refused POST /api/v1/namespaces/default/configmaps: \
         the lease default/foo is no longer certainly held by this replica"
    );
    assert_eq!(maps(&term).get_opt("m").await.unwrap(), None);
    assert!(term.fence().check("an e-mail").is_err());
    assert_eq!(world.trace().requests(&Match::create("configmaps")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_is_cut_at_the_deadline() {
    let world = World::seeded(1);
    let (a, term) = lead(&world).await;
    world.faults().on(Match::create("configmaps")).delay_request(60 * SECOND);
    a.pause();
    let (start, left) = (Instant::now(), term.fence().remaining());
    let error = maps(&term).create(&PostParams::default(), &map("m")).await.unwrap_err();
    assert!(refusal(&error).starts_with("cut POST /api/v1/namespaces/default/configmaps"));
    assert!(start.elapsed() - left < SECOND / 100);
    tokio::time::sleep(100 * SECOND).await;
    let direct: Api<ConfigMap> = Api::default_namespaced(world.direct());
    assert_eq!(direct.get_opt("m").await.unwrap(), None, "it never reached the server");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_takes_long_lives_on_while_the_lease_is_renewed() {
    let world = World::seeded(1);
    let (_a, term) = lead(&world).await;
    world.faults().on(Match::create("configmaps")).delay_request(60 * SECOND);
    maps(&term).create(&PostParams::default(), &map("m")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_killed_can_write_no_more() {
    let world = World::seeded(1);
    let (a, term) = lead(&world).await;
    a.task.stop().await;
    assert!(term.ending().is_cancelled());
    let error = maps(&term).create(&PostParams::default(), &map("m")).await.unwrap_err();
    assert!(refusal(&error).starts_with("refused"));
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_over_stays_over_when_the_replica_leads_again() {
    let world = World::seeded(1);
    let (a, term) = lead(&world).await;
    a.pause();
    tokio::time::sleep(20 * SECOND).await;
    a.resume();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(crate::replica::holder(&world).await, "a");
    assert!(!term.fence().is_open());
    term.fence().closed().await;
}

/// What each term finds when it begins; the first one writes shortly before its lease is lost.
async fn found_by_terms(world: &World, landing: std::time::Duration) -> Vec<usize> {
    let network = Network::default();
    let client = detached(world, &network, world.client_named("a"));
    let election = LeaderElection::new(client, config("a")).unwrap().env(world.env().clone());
    let found: Arc<Mutex<Vec<usize>>> = Arc::default();
    let log = found.clone();
    let _a = Replica::start(world, election, move |term| {
        let log = log.clone();
        async move {
            let found = maps(&term).list(&Default::default()).await.unwrap().items.len();
            log.lock().push(found);
            if log.lock().len() == 1 {
                tokio::time::sleep(19 * SECOND / 2).await;
                let _cut = maps(&term).create(&PostParams::default(), &map("m")).await;
            }
            std::future::pending::<()>().await;
        }
    });
    world.faults().on(Match::create("configmaps")).delay_request(landing);
    tokio::time::sleep(SECOND).await;
    let away = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
    tokio::time::sleep(89 * SECOND / 10).await;
    away.release();
    tokio::time::sleep(20 * SECOND).await;
    found.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leads_again_finds_what_its_last_term_had_on_its_way() {
    let world = World::seeded(1);
    let before =
        Api::<ConfigMap>::default_namespaced(world.direct()).list(&Default::default()).await.unwrap();
    let found = found_by_terms(&world, 4 * SECOND).await;
    assert_eq!(found, [before.items.len(), before.items.len() + 1]);
    world.faults().assert_all_fired();
}
