//! From one leader to the next, and what a standby keeps.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use parking_lot::Mutex;
use setpoint::controller::Runtime;
use setpoint::manager::ManagerError;
use setpoint::{Action, Context, Controller, LeaseConfig, Manager, Metrics, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::time::{Instant, sleep};

use crate::support::{SECOND, count_secrets, create_map, maps, one_child};

/// A manager that stands for election as `name`, with metrics to look at.
fn replica(world: &World, name: &str, controller: Controller) -> (Manager, Metrics) {
    let metrics = Metrics::default();
    let runtime = Runtime::with(world.client_named(name), world.env().clone(), metrics.clone());
    let config = LeaseConfig { identity: name.into(), ..LeaseConfig::new("default", "maps") };
    (Manager::with(runtime).leader_election(config).controller(controller), metrics)
}

fn children() -> Controller {
    Controller::of::<ConfigMap>(.., "maps", one_child).owns::<Secret>(..).catch_up_limit(600 * SECOND)
}

async fn holder(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::default_namespaced(world.direct());
    let spec = leases.get("maps").await.unwrap().spec.unwrap();
    spec.holder_identity.filter(|holder| !holder.is_empty())
}

/// The value of a series, as `/metrics` shows it.
fn shown(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
}

#[test]
fn a_replica_that_leads_again_begins_with_what_it_wrote_in_its_last_term() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let (manager, _) = replica(&world, "only", children());
        let _running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
        let away = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
        sleep(20 * SECOND).await;
        away.release();
        sleep(20 * SECOND).await;
        assert_eq!(holder(&world).await.as_deref(), Some("only"), "it leads again");
        assert_eq!(count_secrets(&world).await, 1, "its cache does not show the child yet");
        held.release();
        create_map(&world, "b").await;
        sleep(5 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 2, "now it works");
    });
}

#[test]
fn a_new_leader_with_an_old_cache_waits_for_what_the_last_one_wrote() {
    World::run(9, async |world| {
        let (first, _) = replica(&world, "first", children());
        let shutdown = first.shutdown().clone();
        let leading = world.env().spawn(first.run());
        sleep(5 * SECOND).await;
        let watch = Match::watch("secrets").client("second");
        let held = world.faults().on(watch).hold_after_events(1);
        let (second, _) = replica(&world, "second", children());
        let _waiting = world.env().spawn(second.run());
        sleep(5 * SECOND).await;
        create_map(&world, "a").await;
        sleep(5 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        sleep(20 * SECOND).await;
        assert_eq!(holder(&world).await.as_deref(), Some("second"));
        assert_eq!(count_secrets(&world).await, 1, "its cache does not show the child yet");
        held.release();
        create_map(&world, "b").await;
        sleep(5 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 2, "now it works");
    });
}

#[test]
fn a_new_leader_does_not_wait_for_the_bookmark_of_a_quiet_kind() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        // No bookmark and no event comes: the kind is quiet, while the world's revision goes on.
        world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let (manager, _) = replica(&world, "only", children());
        for n in 0..20 {
            create_map(&world, &format!("other-{n}")).await;
        }
        let running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        assert!(count_secrets(&world).await > 0, "it began");
        drop(running);
    });
}

/// More Secrets than one page of a list has.
async fn create_pages(world: &World) {
    let api: Api<Secret> = Api::default_namespaced(world.direct());
    for n in 0..600 {
        let secret = serde_json::json!({"metadata": {"name": format!("s{n:03}")}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        api.create(&PostParams::default(), &secret).await.unwrap();
    }
}

/// Reconciles only if the cache has `count` Secrets.
fn wants_secrets(count: usize) -> Controller {
    let reconcile = move |_: ObjectKey, cx: Context| {
        assert_eq!(cx.lister::<Secret>().unwrap().len(), count, "it began with an old cache");
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        async move {
            let mark = kube::api::Patch::Merge(serde_json::json!({"data": {"seen": "yes"}}));
            maps.patch("a", &Default::default(), &mark).await?;
            Ok::<_, ReconcileError>(Action::done())
        }
    };
    Controller::of::<ConfigMap>(.., "maps", reconcile).owns::<Secret>(..)
}

async fn is_marked(world: &World) -> bool {
    maps(world).get("a").await.unwrap().data.is_some()
}

#[test]
fn a_new_leader_lists_a_quiet_kind_of_many_objects_again() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        create_pages(&world).await;
        // The end of the first list comes, and nothing after it.
        world.faults().on(Match::watch("secrets")).hold_after_events(601);
        let blocked = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
        let (manager, metrics) = replica(&world, "only", wants_secrets(599));
        let _running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        let api: Api<Secret> = Api::default_namespaced(world.direct());
        api.delete("s599", &DeleteParams::default()).await.unwrap();
        blocked.release();
        sleep(20 * SECOND).await;
        assert_eq!(holder(&world).await.as_deref(), Some("only"));
        assert!(is_marked(&world).await, "its cache has no Secret that is gone");
        assert_eq!(shown(&metrics, "controller_runtime_reconcile_panics_total{controller=\"maps\"}"), 0.0);
    });
}

#[test]
fn a_new_leader_of_a_quiet_kind_of_many_objects_begins_soon() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        create_pages(&world).await;
        world.faults().on(Match::watch("secrets")).hold_after_events(601);
        let blocked = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
        let (manager, _) = replica(&world, "only", wants_secrets(600));
        let _running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        create_map(&world, "b").await;
        blocked.release();
        sleep(10 * SECOND).await;
        assert!(is_marked(&world).await, "nothing has happened to the Secrets");
    });
}

#[test]
fn a_standby_keeps_nothing_that_grows_with_churn() {
    World::run(9, async |world| {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
        let reconcile = move |key: ObjectKey, _: Context| {
            log.lock().push(key.name().to_owned());
            std::future::ready(Ok::<_, ReconcileError>(Action::done()))
        };
        let (first, _) = replica(
            &world,
            "first",
            Controller::of::<ConfigMap>(.., "maps", |_, _: Context| async {
                Ok::<_, ReconcileError>(Action::done())
            }),
        );
        let shutdown = first.shutdown().clone();
        let leading = world.env().spawn(first.run());
        sleep(5 * SECOND).await;
        let (second, metrics) = replica(&world, "second", Controller::of::<ConfigMap>(.., "maps", reconcile));
        let _waiting = world.env().spawn(second.run());
        sleep(5 * SECOND).await;
        for n in 0..200 {
            create_map(&world, &format!("m{n}")).await;
        }
        sleep(SECOND).await;
        for n in 3..200 {
            maps(&world).delete(&format!("m{n}"), &DeleteParams::default()).await.unwrap();
        }
        sleep(SECOND).await;
        assert_eq!(shown(&metrics, "workqueue_depth{name=\"maps\"}"), 0.0, "a standby's queue is empty");
        assert!(seen.lock().is_empty());
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        sleep(10 * SECOND).await;
        let mut seen = seen.lock().clone();
        seen.sort();
        let mut all: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
        all.sort();
        assert_eq!(seen, all, "what is there, and what was deleted meanwhile, each once");
    });
}

/// A controller that takes `time` for each key.
fn slow(time: std::time::Duration) -> Controller {
    Controller::of::<ConfigMap>(.., "maps", move |_: ObjectKey, _: Context| async move {
        sleep(time).await;
        Ok::<_, ReconcileError>(Action::done())
    })
}

#[test]
fn a_long_backlog_is_left_at_shutdown_and_the_lease_is_released() {
    World::run(9, async |world| {
        for n in 0..100 {
            create_map(&world, &format!("m{n}")).await;
        }
        let (manager, _) = replica(&world, "only", slow(10 * SECOND));
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(15 * SECOND).await;
        let start = Instant::now();
        shutdown.cancel();
        running.await.unwrap().unwrap();
        assert!(start.elapsed() < 11 * SECOND, "only what is in work is finished: {:?}", start.elapsed());
        assert_eq!(holder(&world).await, None);
    });
}

#[test]
fn a_reconcile_that_outlasts_the_grace_is_cut_off_and_the_lease_is_released() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let (manager, _) = replica(&world, "only", slow(1000 * SECOND));
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.grace(20 * SECOND).run());
        sleep(15 * SECOND).await;
        let start = Instant::now();
        shutdown.cancel();
        let error = running.await.unwrap().unwrap_err();
        assert!(matches!(error, ManagerError::Grace { .. }), "{error}");
        assert!(start.elapsed() <= 20 * SECOND, "{:?}", start.elapsed());
        assert_eq!(holder(&world).await, None);
    });
}

#[test]
fn a_process_that_slept_past_its_lease_begins_no_reconcile() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let every_second =
            Controller::of::<ConfigMap>(.., "every-second", async |_key: ObjectKey, cx: Context| {
                cx.state::<Arc<Mutex<Vec<Instant>>>>()?.lock().push(Instant::now());
                Ok::<_, ReconcileError>(Action::requeue_after(SECOND))
            });
        let (env, process) = world.env().process();
        let runtime = Runtime::with(world.client_named("a"), env.clone(), Metrics::default());
        let lease = LeaseConfig { identity: "a".to_owned(), ..LeaseConfig::new("default", "test") };
        let manager =
            Manager::with(runtime).leader_election(lease).controller(every_second.state(begun.clone()));
        let _running = env.spawn(manager.run());
        sleep(5 * SECOND).await;
        assert!(!begun.lock().is_empty());
        process.pause();
        sleep(60 * SECOND).await;
        let resumed = Instant::now();
        // It asks for its lease again, and does not get an answer.
        let cut = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
        process.resume();
        sleep(60 * SECOND).await;
        assert_eq!(begun.lock().iter().filter(|begun| **begun >= resumed).count(), 0);
        // What was queued then is not lost.
        cut.release();
        sleep(60 * SECOND).await;
        assert!(begun.lock().last().is_some_and(|last| *last > resumed + 60 * SECOND));
    });
}

#[test]
fn a_term_sees_nothing_that_came_and_went_before_it() {
    World::run(9, async |world| {
        create_map(&world, "a").await;
        let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
        let look = Controller::of::<ConfigMap>(.., "maps", async |_key: ObjectKey, cx: Context| {
            cx.state::<Arc<Mutex<Vec<usize>>>>()?.lock().push(cx.lister::<Secret>()?.len());
            Ok::<_, ReconcileError>(Action::requeue_after(SECOND))
        });
        let away = world.faults().on(Match::any().resource("leases")).refuse_connection().always();
        let all = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let deletion = world.faults().on(Match::watch("secrets")).hold_after_events(2);
        let (manager, _) = replica(&world, "only", look.owns::<Secret>(..).state(seen.clone()));
        let _running = world.env().spawn(manager.run());
        sleep(5 * SECOND).await;
        // What is there is the same as before, but the watch has both events still to come.
        let secrets: Api<Secret> = Api::default_namespaced(world.direct());
        let secret = serde_json::from_value(serde_json::json!({"metadata": {"name": "brief"}})).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        secrets.delete("brief", &DeleteParams::default()).await.unwrap();
        away.release();
        sleep(20 * SECOND).await;
        all.release();
        sleep(20 * SECOND).await;
        deletion.release();
        sleep(5 * SECOND).await;
        assert!(seen.lock().len() > 20, "it works");
        assert!(seen.lock().iter().all(|seen| *seen == 0), "{seen:?}");
    });
}
