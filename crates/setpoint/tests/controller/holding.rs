//! Keys that are held until caches show what they wrote, beside reconciles that take long.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use parking_lot::Mutex;
use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};
use setpoint_sim::{Match, Refusal, Rule, World};
use tokio::time::{Instant, sleep};

use crate::support::{SECOND, child_of, count_secrets, create_map, one_child, run, secrets};

/// When each key was reconciled.
type Log = Arc<Mutex<Vec<(ObjectKey, Instant)>>>;

/// The key `slow` takes a minute. Every other one creates a child the first time, and looks again after a second.
async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let log = cx.state::<Log>()?;
    log.lock().push((key.clone(), Instant::now()));
    if key.name() == "slow" {
        sleep(60 * SECOND).await;
        return Ok(Action::done());
    }
    if log.lock().iter().filter(|(logged, _)| *logged == key).count() > 1 {
        return Ok(Action::done());
    }
    let secrets: Api<Secret> = Api::default_namespaced(cx.client());
    secrets.create(&PostParams::default(), &child_of(&map)).await?;
    Ok(Action::requeue_after(SECOND))
}

fn times(log: &Log, name: &str) -> Vec<Instant> {
    let log = log.lock();
    log.iter().filter(|(key, _)| key.name() == name).map(|(_, at)| *at).collect()
}

#[test]
fn a_slow_reconcile_delays_no_key_that_is_held() {
    World::run(7, async |world| {
        world.faults().on(Match::watch("secrets")).delay_events(3 * SECOND).always();
        // Each of the two workers has written something when one of them begins what takes long.
        create_map(&world, "a").await;
        create_map(&world, "b").await;
        let log = Log::default();
        let controller = Controller::of::<ConfigMap>(.., "slow", reconcile)
            .owns::<Secret>(..)
            .workers(2)
            .state(log.clone());
        let _running = run(&world, controller);
        sleep(4 * SECOND).await;
        create_map(&world, "slow").await;
        sleep(10 * SECOND).await;
        for name in ["a", "b"] {
            let times = times(&log, name);
            assert!(times.len() > 1, "{name} was reconciled {} times", times.len());
            assert!(times[1] - times[0] < 5 * SECOND, "{name} waited {:?}", times[1] - times[0]);
        }
        assert_eq!(times(&log, "slow").len(), 1);
    });
}

#[test]
fn the_limit_fires_while_another_reconcile_takes_long() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        create_map(&world, "b").await;
        let log = Log::default();
        let controller = Controller::of::<ConfigMap>(.., "slow", reconcile)
            .owns::<Secret>(..)
            .workers(2)
            .catch_up_limit(10 * SECOND)
            .state(log.clone());
        let running = run(&world, controller);
        sleep(2 * SECOND).await;
        create_map(&world, "slow").await;
        sleep(11 * SECOND).await;
        assert_eq!(running.metric("setpoint_controller_catch_up_late_total", &[("controller", "slow")]), 2);
        assert_eq!((times(&log, "a").len(), times(&log, "b").len()), (2, 2));
        held.release();
    });
}

#[test]
fn an_event_of_a_held_key_does_not_release_it() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        let log = Log::default();
        let controller = Controller::of::<ConfigMap>(.., "held", reconcile)
            .owns::<Secret>(..)
            .catch_up_limit(600 * SECOND)
            .state(log.clone());
        let _running = run(&world, controller);
        for n in 0..5 {
            sleep(SECOND).await;
            let patch = serde_json::json!({"data": {"n": n.to_string()}});
            let patch = kube::api::Patch::Merge(&patch);
            crate::support::maps(&world).patch("a", &Default::default(), &patch).await.unwrap();
        }
        assert_eq!(times(&log, "a").len(), 1, "the cache does not show the child yet");
        held.release();
        sleep(SECOND).await;
        assert_eq!(times(&log, "a").len(), 2, "what happened meanwhile is one more reconcile");
    });
}

/// The first time, makes a Secret and deletes it. Later, only looks whether the cache has one.
async fn make_and_delete(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let looks = cx.state::<Arc<Mutex<Vec<bool>>>>()?;
    looks.lock().push(cx.lister::<Secret>()?.is_empty());
    if looks.lock().len() == 1 {
        let secrets: Api<Secret> = Api::default_namespaced(cx.client());
        let secret = secrets.create(&PostParams::default(), &child_of(&map)).await?;
        secrets.delete(&secret.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    }
    Ok(Action::requeue_after(SECOND))
}

#[test]
fn what_was_made_and_deleted_by_one_reconcile_is_not_seen_by_the_next() {
    World::run(7, async |world| {
        // The end of the first list, and the Secret: its deletion does not come.
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(2);
        create_map(&world, "a").await;
        let looks: Arc<Mutex<Vec<bool>>> = Arc::default();
        let controller = Controller::of::<ConfigMap>(.., "brief", make_and_delete)
            .owns::<Secret>(..)
            .catch_up_limit(600 * SECOND)
            .state(looks.clone());
        let running = run(&world, controller);
        sleep(20 * SECOND).await;
        assert_eq!(running.runtime.informers().informer::<Secret>().lister().len(), 1, "the cache has it");
        assert_eq!(*looks.lock(), [true]);
        held.release();
        sleep(2 * SECOND).await;
        assert!(looks.lock().len() > 1 && looks.lock().iter().all(|empty| *empty), "{looks:?}");
    });
}

#[test]
fn a_deletion_that_only_a_new_list_shows_releases_the_key() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        let looks: Arc<Mutex<Vec<bool>>> = Arc::default();
        let controller = Controller::of::<ConfigMap>(.., "brief", make_and_delete)
            .owns::<Secret>(..)
            .catch_up_limit(6000 * SECOND)
            .state(looks.clone());
        let _running = run(&world, controller);
        sleep(5 * SECOND).await;
        assert_eq!(*looks.lock(), [true], "the cache shows nothing of it yet");
        // The watch breaks, and what it missed is forgotten: the next list has neither the add nor the deletion.
        world.server().compact();
        held.release();
        world.restart_server();
        sleep(60 * SECOND).await;
        assert!(looks.lock().len() > 1, "{looks:?}");
    });
}

#[test]
fn a_child_that_somebody_deletes_before_the_cache_has_seen_it_is_made_again() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        let controller = Controller::of::<ConfigMap>(.., "one-child", one_child)
            .owns::<Secret>(..)
            .catch_up_limit(6000 * SECOND);
        let _running = run(&world, controller);
        sleep(5 * SECOND).await;
        let made = secrets(&world).list(&ListParams::default()).await.unwrap().items;
        assert_eq!(made.len(), 1);
        let name = made[0].metadata.name.clone().unwrap();
        secrets(&world).delete(&name, &DeleteParams::default()).await.unwrap();
        // The next list has neither the add nor the deletion, so there is no event.
        world.server().compact();
        held.release();
        world.restart_server();
        sleep(60 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
    });
}

/// Like `one_child`, but it writes to its own object, too; or stays a while before it ends.
async fn one_child_and_a_note(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let is_first = !map.metadata.annotations.iter().flatten().any(|(name, _)| name == "seen");
    let _done = one_child(key.clone(), cx.clone()).await?;
    if is_first {
        let patch = serde_json::json!({"metadata": {"annotations": {"seen": "yes"}}});
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        maps.patch(key.name(), &Default::default(), &kube::api::Patch::Merge(&patch)).await?;
    }
    sleep(*cx.state::<Duration>()?).await;
    Ok(Action::done())
}

/// Deletes the child while the cache does not see it, and lets only a list tell of that.
async fn delete_unseen(world: &World, held: Rule) {
    let made = secrets(world).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(made.len(), 1);
    let name = made[0].metadata.name.clone().unwrap();
    secrets(world).delete(&name, &DeleteParams::default()).await.unwrap();
    world.faults().on(Match::watch("secrets")).refuse(Refusal::Expired);
    held.release();
    world.restart_server();
}

#[test]
fn a_list_is_noticed_though_the_key_waits_longer_for_another_cache() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        let controller = Controller::of(
            Watch::<ConfigMap>::new().filter(Predicate::generation_changed()),
            "two-caches",
            one_child_and_a_note,
        )
        .owns::<Secret>(..)
        .catch_up_limit(6000 * SECOND)
        .state(Duration::ZERO);
        // What the key writes to itself comes late, by a watch.
        world.faults().on(Match::watch("configmaps")).delay_events(120 * SECOND).always();
        let _running = run(&world, controller);
        sleep(125 * SECOND).await;
        delete_unseen(&world, held).await;
        sleep(300 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
    });
}

#[test]
fn a_list_during_the_reconcile_itself_is_noticed() {
    World::run(7, async |world| {
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        create_map(&world, "a").await;
        let controller = Controller::of(
            Watch::<ConfigMap>::new().filter(Predicate::generation_changed()),
            "long",
            one_child_and_a_note,
        )
        .owns::<Secret>(..)
        .catch_up_limit(6000 * SECOND)
        .state(60 * SECOND);
        let _running = run(&world, controller);
        sleep(5 * SECOND).await;
        delete_unseen(&world, held).await;
        sleep(300 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
    });
}

#[test]
fn a_write_that_changes_nothing_is_no_reason_to_look_again_after_a_list() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        let controller = Controller::of::<ConfigMap>(.., "again", async |key: ObjectKey, cx: Context| {
            *cx.state::<Arc<Mutex<u32>>>()?.lock() += 1;
            let patch = serde_json::json!({"data": {"a": "1"}});
            let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
            maps.patch(key.name(), &Default::default(), &kube::api::Patch::Merge(&patch)).await?;
            Ok::<_, ReconcileError>(Action::done())
        });
        let count: Arc<Mutex<u32>> = Arc::default();
        let _running = run(&world, controller.state(count.clone()));
        sleep(5 * SECOND).await;
        world.server().compact();
        world.restart_server();
        sleep(5 * SECOND).await;
        let before = *count.lock();
        sleep(60 * SECOND).await;
        assert!(*count.lock() <= before + 1, "{before} reconciles became {}", count.lock());
    });
}
