//! The world with the real server.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Error, ResourceExt};
use setpoint_sim::{BURST, Match, Refusal, World};

use crate::requests::io_kind;

pub(crate) fn map(name: &str) -> ConfigMap {
    let (name, namespace) = (Some(name.to_owned()), Some("default".to_owned()));
    ConfigMap { metadata: ObjectMeta { name, namespace, ..Default::default() }, ..Default::default() }
}

async fn version(maps: &Api<ConfigMap>) -> String {
    maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_sees_what_the_worlds_own_hand_has_made() {
    let world = World::seeded(1);
    Api::default_namespaced(world.direct()).create(&PostParams::default(), &map("a")).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    assert_eq!(maps.get("a").await.unwrap().name_any(), "a");
}

#[tokio::test(start_paused = true)]
async fn the_direct_client_meets_no_fault_and_no_stop() {
    let world = World::seeded(1);
    world.faults().on(Match::any()).drop_request().always();
    world.stop_server();
    let direct: Api<ConfigMap> = Api::default_namespaced(world.direct());
    direct.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(world.faults().fired().is_empty());
    assert_eq!(world.trace().requests(&Match::writes().client("world")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_breaks_watches_and_keeps_the_state() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    let start = version(&maps).await;
    let mut watch = maps.watch(&WatchParams::default(), &start).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let Some(WatchEvent::Added(first)) = watch.try_next().await.unwrap() else { panic!("no event") };
    world.restart_server();
    assert!(matches!(watch.try_next().await, Err(Error::ReadEvents(_))));
    assert_eq!(maps.get("a").await.unwrap(), first);
    let mut resumed = maps.watch(&WatchParams::default(), &start).await.unwrap().boxed();
    let Some(WatchEvent::Added(again)) = resumed.try_next().await.unwrap() else { panic!("no event") };
    assert_eq!(again, first);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_is_away_until_it_is_started() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    world.stop_server();
    assert_eq!(io_kind(&maps.get_opt("a").await.unwrap_err()), ErrorKind::ConnectionRefused);
    world.start_server();
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_leaves_the_object_and_a_dropped_request_does_not() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    world.faults().on(Match::create("configmaps").name("lost")).lose_response();
    world.faults().on(Match::create("configmaps").name("dropped")).drop_request();
    for name in ["lost", "dropped"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap_err();
    }
    assert!(maps.get_opt("lost").await.unwrap().is_some());
    assert!(maps.get_opt("dropped").await.unwrap().is_none());
    world.faults().assert_all_fired();
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_real_server_is_cut_after_as_many_events_as_the_script_says() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    world.faults().on(Match::watch("configmaps")).cut_after_events(3);
    let start = version(&maps).await;
    world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
    let events = maps.watch(&WatchParams::default(), &start).await.unwrap();
    let events: Vec<_> = events.collect().await;
    assert_eq!(events.len(), 4);
    assert!(matches!(events[3], Err(Error::ReadEvents(_))));
}

#[tokio::test(start_paused = true)]
async fn a_held_watch_is_a_stale_view_while_reads_are_fresh() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    let start = version(&maps).await;
    let hold = world.faults().on(Match::watch("configmaps")).hold();
    let mut watch = maps.watch(&WatchParams::default(), &start).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_some());
    assert!(tokio::time::timeout(Duration::from_secs(30), watch.next()).await.is_err());
    hold.release();
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert_eq!(world.now(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_short_history_makes_the_server_itself_answer_410() {
    let world = World::with_server(1, |server| server.history(5, 1 << 20));
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    let start = version(&maps).await;
    world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
    let gone = match maps.watch(&WatchParams::default(), &start).await {
        Err(Error::Api(status)) => status.code,
        Err(error) => panic!("{error:?}"),
        Ok(events) => match events.boxed().try_next().await.unwrap() {
            Some(WatchEvent::Error(status)) => status.code,
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(gone, 410);
    assert!(world.faults().fired().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_injected_410_reads_like_the_servers_own() {
    let world = World::seeded(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    let start = version(&maps).await;
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    world.server().compact();
    let status = async || match maps.watch(&WatchParams::default(), &start).await {
        Err(Error::Api(status)) => *status,
        Err(error) => panic!("{error:?}"),
        Ok(events) => match events.boxed().try_next().await.unwrap() {
            Some(WatchEvent::Error(status)) => *status,
            other => panic!("{other:?}"),
        },
    };
    let real = status().await;
    world.faults().on(Match::watch("configmaps")).refuse(Refusal::Expired);
    let injected = status().await;
    assert_eq!((injected.code, &injected.reason), (real.code, &real.reason));
    assert!(real.message.starts_with(&injected.message), "{:?} {:?}", real.message, injected.message);
    world.faults().assert_all_fired();
}

#[tokio::test(start_paused = true)]
async fn a_burst_makes_its_objects_at_one_moment_also_without_a_namespace() {
    let world = World::seeded(1);
    let maps = world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
    let names: BTreeMap<_, _> = maps.iter().map(|map| (map.name_any(), map.uid())).collect();
    assert_eq!(names.len(), BURST);
    let namespace = |n| Namespace {
        metadata: ObjectMeta { name: Some(format!("ns-{n}")), ..Default::default() },
        ..Default::default()
    };
    world.burst(namespace).await.unwrap();
    assert_eq!(world.now(), Duration::ZERO);
    assert_eq!(world.trace().requests(&Match::create("namespaces")).count(), BURST);
}

#[test]
fn worlds_of_one_seed_give_the_same_uids_and_other_seeds_others() {
    let uid = |seed| {
        World::run(seed, async |world| {
            let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
            maps.create(&PostParams::default(), &map("a")).await.unwrap().uid().unwrap()
        })
    };
    assert_eq!(uid(1), uid(1));
    assert_ne!(uid(1), uid(2));
}
