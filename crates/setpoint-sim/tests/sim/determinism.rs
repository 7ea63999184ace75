//! The determinism check with the real server.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use setpoint::controller::Runtime;
use setpoint::{Controller, LeaseConfig, Manager, Metrics};
use setpoint_sim::{FaultKind, Nondeterminism, Swarm, World, check_determinism};

use crate::world::map;

/// A small controller: labels every ConfigMap that it sees, through whatever happens, for a minute.
async fn label_maps(world: World) {
    world.faults().swarm(Swarm::every(0.05));
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client_named("controller"));
    let controller = world.env().spawn(async move {
        loop {
            let _broken = follow(&maps).await;
            tokio::time::sleep(Duration::from_millis(800)).await;
        }
    });
    world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.faults().heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    controller.stop().await;
    let direct: Api<ConfigMap> = Api::default_namespaced(world.direct());
    let all = direct.list(&ListParams::default()).await.unwrap();
    assert!(
        all.iter()
            .filter(|map| map.name_any() != "kube-root-ca.crt")
            .all(|map| map.labels().contains_key("seen"))
    );
}

async fn follow(maps: &Api<ConfigMap>) -> kube::Result<()> {
    let list = maps.list(&ListParams::default()).await?;
    for map in &list {
        label(maps, map).await?;
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut watch = maps.watch(&WatchParams::default().timeout(20), &version).await?.boxed();
    while let Some(event) = watch.try_next().await? {
        match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => label(maps, &map).await?,
            _ => {}
        }
    }
    Ok(())
}

async fn label(maps: &Api<ConfigMap>, map: &ConfigMap) -> kube::Result<()> {
    if !map.labels().contains_key("seen") {
        let patch = serde_json::json!({ "metadata": { "labels": { "seen": "yes" } } });
        maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

#[test]
fn a_controller_under_a_swarm_of_faults_runs_the_same_way_twice() {
    check_determinism(0..10, label_maps).unwrap_or_else(|error| panic!("{error}"));
}

/// Caches, queue, workers and retries of the runtime: a Secret for each ConfigMap, through whatever happens, for a minute.
async fn copy_maps(world: World) {
    world.faults().swarm(Swarm::every(0.05));
    let runtime = Runtime::with(world.client_named("copy"), world.env().clone(), Metrics::default());
    let copy = Controller::of::<ConfigMap>(.., "copy", crate::explore::copy).owns::<Secret>(..).workers(4);
    let running = world.env().spawn(Manager::with(runtime).controller(copy).run());
    let with_data = |n: usize| {
        let mut map = map(&format!("map-{n}"));
        map.data = Some([("key".to_owned(), n.to_string())].into());
        map
    };
    world.burst(with_data).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.faults().heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop().await;
    let direct: Api<Secret> = Api::default_namespaced(world.direct());
    assert_eq!(direct.list(&ListParams::default()).await.unwrap().items.len(), setpoint_sim::BURST);
}

#[test]
fn a_controller_of_the_runtime_under_a_swarm_of_faults_runs_the_same_way_twice() {
    check_determinism(0..10, copy_maps).unwrap_or_else(|error| panic!("{error}"));
}

/// Two replicas of the same controller, of which one works, while requests fail and the server restarts: renewals, fences, and
/// watches that break all at once.
async fn two_replicas(world: World) {
    world.faults().swarm(Swarm::every(0.05));
    let mut running = Vec::new();
    for name in ["one", "two"] {
        let (env, process) = world.env().process();
        let runtime = Runtime::with(world.client_named(name), env.clone(), Metrics::default());
        let lease = LeaseConfig { identity: name.into(), ..LeaseConfig::new("default", "copy") };
        let copy =
            Controller::of::<ConfigMap>(.., "copy", crate::explore::copy).owns::<Secret>(..).workers(8);
        let manager = Manager::with(runtime).leader_election(lease).controller(copy);
        running.push((process, env.spawn(manager.run())));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let with_data = |n: usize| {
        let mut map = map(&format!("map-{n}"));
        map.data = Some([("key".to_owned(), n.to_string())].into());
        map
    };
    world.burst(with_data).await.unwrap();
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.restart_server();
        let (process, _) = &running[round % 2];
        process.pause();
        tokio::time::sleep(Duration::from_secs(20)).await;
        process.resume();
    }
    world.faults().heal();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let direct: Api<Secret> = Api::default_namespaced(world.direct());
    assert_eq!(direct.list(&ListParams::default()).await.unwrap().items.len(), setpoint_sim::BURST);
}

#[test]
fn two_replicas_under_a_swarm_of_faults_run_the_same_way_twice() {
    check_determinism(0..10, two_replicas).unwrap_or_else(|error| panic!("{error}"));
}

/// Touches the objects of a burst in the order in which `order` gives their names.
async fn touch(world: World, order: fn(Vec<String>) -> Vec<String>) {
    let made = world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
    for name in order(made.iter().map(ResourceExt::name_any).collect()) {
        maps.get(&name).await.unwrap();
    }
}

fn hashed(names: Vec<String>) -> Vec<String> {
    names.into_iter().collect::<HashSet<_>>().into_iter().collect()
}

fn ordered(names: Vec<String>) -> Vec<String> {
    names.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn the_order_of_a_hash_set_is_reported_with_both_runs() {
    let error = check_determinism(7..8, |world| touch(world, hashed)).unwrap_err();
    let Nondeterminism::Differs { seed: 7, first: Some(first), second: Some(second), .. } = &error else {
        panic!("{error}")
    };
    assert_ne!(first.request.name, second.request.name);
    let text = error.to_string();
    assert!(text.contains(&first.to_string()) && text.contains(&second.to_string()), "{text}");
    check_determinism(7..8, |world| touch(world, ordered)).unwrap();
}

#[test]
fn real_time_is_reported() {
    let scenario = async |world: World| {
        world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
        let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
        maps.get_opt(&format!("at-{nanos}")).await.unwrap();
    };
    assert!(matches!(check_determinism([1], scenario), Err(Nondeterminism::Differs { .. })));
}

#[test]
fn a_run_that_is_shorter_is_reported() {
    let runs = std::cell::Cell::new(0);
    let scenario = async |world: World| {
        world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
        runs.set(runs.get() + 1);
        if runs.get() == 1 {
            let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
            maps.get_opt("a").await.unwrap();
        }
    };
    let error = check_determinism([1], scenario).unwrap_err();
    assert!(matches!(&error, Nondeterminism::Differs { second: None, .. }), "{error}");
}

#[test]
fn a_scenario_without_a_burst_is_turned_away() {
    let error = check_determinism([1], async |_world| {}).unwrap_err();
    assert!(matches!(error, Nondeterminism::NoBurst), "{error}");
}

#[test]
fn swarms_of_watch_faults_fire_on_the_real_server() {
    let prose = World::run(3, async |world| {
        let swarm = Swarm::quiet().chance(FaultKind::CutWatch, 0.5).chance(FaultKind::EndWatch, 0.5);
        let swarm = swarm.chance(FaultKind::ExpireWatch, 0.5).chance(FaultKind::DelayEvents, 0.5);
        world.faults().swarm(swarm);
        world.burst(|n| map(&format!("map-{n}"))).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
        for _ in 0..40 {
            let watch = maps.watch(&WatchParams::default().timeout(20), "0").await.unwrap();
            let _events: Vec<_> = watch.collect().await;
        }
        world.faults().fired().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    });
    for word in ["cut WATCH", "half a line", "ended WATCH", "ERROR event 410", "delayed the events"] {
        assert!(prose.contains(word), "no {word:?} in\n{prose}");
    }
}

/// Of several futures that are ready, tokio's `select!` takes a random one, unless it is `biased`.
#[test]
fn every_select_that_may_run_in_a_world_is_biased() {
    let crates =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is one of several crates");
    let mut folders: Vec<_> = ["", "-apiserver", "-cluster", "-env", "-history", "-sim"]
        .map(|name| crates.join(format!("setpoint{name}/src")))
        .into();
    let (mut seen, mut unbiased) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Backends are reached through sockets, which no world has.
            if path.is_dir() && !path.ends_with("aggregation") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                for (at, _) in text.match_indices("select! {") {
                    seen += 1;
                    if !text[at..].trim_start_matches("select! {").trim_start().starts_with("biased;") {
                        unbiased.push(format!("{}:{}", path.display(), text[..at].lines().count()));
                    }
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} were found");
    assert!(unbiased.is_empty(), "{unbiased:#?}");
}
