use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use setpoint::controller::Runtime;
use setpoint::{Action, Context, Controller, Manager, Metrics, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::time::{Instant, sleep};

use crate::support::{Counter, SECOND, count_secrets, create_map, maps, one_child, run};

#[test]
fn a_shutdown_under_load_finishes_what_is_in_work_and_leaves_the_rest() {
    World::run(3, async |world| {
        for n in 0..100 {
            create_map(&world, &format!("m{n}")).await;
        }
        let (begun, done) = (Counter::default(), Counter::default());
        let (begins, ends) = (begun.clone(), done.clone());
        let reconcile = move |_: ObjectKey, _: Context| {
            let (begins, ends) = (begins.clone(), ends.clone());
            async move {
                begins.inc();
                sleep(SECOND * 3 / 10).await;
                ends.inc();
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let running = run(&world, Controller::of::<ConfigMap>(.., "load", reconcile).workers(4));
        sleep(SECOND).await;
        let before = begun.get();
        assert!(before > done.get() && before < 100, "it is in the middle of its work: {before}");
        let start = Instant::now();
        running.runtime.shutdown().cancel();
        running.task.await.unwrap().unwrap();
        assert!(start.elapsed() < SECOND, "it took {:?}", start.elapsed());
        assert_eq!((begun.get(), done.get()), (before, before), "nothing new began, and nothing was cut");
        // Nothing runs on: no more requests of the controller, for an hour.
        running.runtime.informers().shutdown().await;
        let requests = world.trace().requests(&Match::any().client("controller")).count();
        sleep(3600 * SECOND).await;
        assert_eq!(world.trace().requests(&Match::any().client("controller")).count(), requests);
    });
}

#[test]
fn a_shutdown_before_the_caches_have_synced_reconciles_nothing() {
    World::run(3, async |world| {
        create_map(&world, "a").await;
        world.faults().on(Match::any().resource("secrets")).delay_response(60 * SECOND).always();
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let running = run(&world, Controller::of::<ConfigMap>(.., "early", reconcile).owns::<Secret>(..));
        sleep(SECOND).await;
        running.runtime.shutdown().cancel();
        running.task.await.unwrap().unwrap();
        assert_eq!(calls.get(), 0, "the Secrets were not listed");
    });
}

#[test]
fn a_manager_that_is_stopped_before_its_caches_have_synced_starts_nothing() {
    World::run(3, async |world| {
        world.faults().on(Match::any().resource("configmaps")).delay_response(60 * SECOND).always();
        let started = Counter::default();
        let counter = started.clone();
        let reconcile = |_: ObjectKey, _: Context| async { Ok::<_, ReconcileError>(Action::done()) };
        let runtime = Runtime::with(world.client_named("manager"), world.env().clone(), Metrics::default());
        let manager = Manager::with(runtime)
            .controller(Controller::of::<ConfigMap>(.., "early", reconcile))
            .runnable("job", move |_| async move {
                counter.inc();
                Ok(())
            });
        let shutdown = manager.shutdown().clone();
        let running = world.env().spawn(manager.run());
        sleep(SECOND).await;
        shutdown.cancel();
        running.await.unwrap().unwrap();
        assert_eq!(started.get(), 0, "runnables start once the caches have synced");
    });
}

#[test]
fn a_held_key_is_not_reconciled_on_an_old_cache_at_shutdown() {
    World::run(3, async |world| {
        create_map(&world, "a").await;
        world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let running = run(&world, Controller::of::<ConfigMap>(.., "held", one_child).owns::<Secret>(..));
        sleep(SECOND).await;
        let patch = kube::api::Patch::Merge(serde_json::json!({"data": {"k": "v"}}));
        maps(&world).patch("a", &Default::default(), &patch).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
        running.runtime.shutdown().cancel();
        running.task.await.unwrap().unwrap();
        assert_eq!(count_secrets(&world).await, 1, "the cache did not show the first one");
    });
}

#[test]
fn a_quiet_controller_writes_nothing_for_ten_hours() {
    World::run(3, async |world| {
        for n in 0..10 {
            create_map(&world, &format!("m{n}")).await;
        }
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            counter.inc();
            let known = cx.lister::<ConfigMap>().unwrap().get(&key).is_some();
            async move { if known { Ok(Action::done()) } else { Err("it was there") } }
        };
        let controller =
            Controller::of::<ConfigMap>(.., "quiet", reconcile).owns::<Secret>(..).resync(600 * SECOND);
        let _running = run(&world, controller);
        sleep(36_000 * SECOND).await;
        assert!((590..=620).contains(&calls.get()), "ten objects, sixty resyncs: {}", calls.get());
        let writes = world.trace().requests(&Match::writes().client("controller")).count();
        assert_eq!(writes, 0);
    });
}

#[test]
fn a_controller_that_cannot_list_says_which_kind_and_why() {
    World::run(3, async |world| {
        let denied = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
            "message":"secrets is forbidden: User \\"c\\" cannot list resource \\"secrets\\""}"#;
        world.faults().on(Match::any().resource("secrets")).answer(403, "application/json", denied).always();
        let reconcile = |_: ObjectKey, _: Context| async { Ok::<_, ReconcileError>(Action::done()) };
        let controller =
            Controller::of::<ConfigMap>(.., "denied", reconcile).owns::<Secret>(..).sync_limit(60 * SECOND);
        let start = Instant::now();
        let error = run(&world, controller).task.await.unwrap().unwrap_err();
        assert!(start.elapsed() <= 61 * SECOND);
        let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(text.contains("\"denied\"") && text.contains("secrets"), "{text}");
        assert!(text.contains("cannot list resource"), "{text}");
        assert!(!text.contains("configmaps"), "only what is not there is named: {text}");
    });
}
