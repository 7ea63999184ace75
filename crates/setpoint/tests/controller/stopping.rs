use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{SECOND, create_map, run};

#[test]
fn a_shutdown_under_load_works_off_what_is_queued_and_leaves_nothing_behind() {
    World::run(3, async |world| {
        for n in 0..100 {
            create_map(&world, &format!("m{n}")).await;
        }
        let done: Arc<Mutex<Vec<ObjectKey>>> = Arc::default();
        let log = done.clone();
        let reconcile = move |key: ObjectKey, _: Context| {
            let log = log.clone();
            async move {
                sleep(SECOND / 10).await;
                log.lock().push(key);
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let running = run(&world, Controller::<ConfigMap>::new("load", reconcile).workers(4));
        sleep(SECOND).await;
        let before = done.lock().len();
        assert!(before > 0 && before < 100, "it is in the middle of its work: {before}");
        running.runtime.shutdown().cancel();
        let ended = timeout(30 * SECOND, running.task).await.expect("within the grace time").unwrap();
        ended.unwrap();
        let mut keys = done.lock().clone();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 100, "every key was reconciled");
        // Nothing runs on: no more requests of the controller, for an hour.
        running.runtime.informers().shutdown().await;
        let requests = world.trace().requests(&Match::any().client("controller")).count();
        sleep(3600 * SECOND).await;
        assert_eq!(world.trace().requests(&Match::any().client("controller")).count(), requests);
    });
}

#[test]
fn a_quiet_controller_writes_nothing_for_ten_hours() {
    World::run(3, async |world| {
        for n in 0..10 {
            create_map(&world, &format!("m{n}")).await;
        }
        let calls = crate::support::Counter::default();
        let counter = calls.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            counter.inc();
            let known = cx.lister::<ConfigMap>().get(&key).is_some();
            async move { if known { Ok(Action::done()) } else { Err("it was there") } }
        };
        let controller =
            Controller::<ConfigMap>::new("quiet", reconcile).owns::<Secret>().resync(600 * SECOND);
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
            Controller::<ConfigMap>::new("denied", reconcile).owns::<Secret>().sync_limit(60 * SECOND);
        let start = Instant::now();
        let error = run(&world, controller).task.await.unwrap().unwrap_err();
        assert!(start.elapsed() <= 61 * SECOND);
        let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(text.contains("\"denied\"") && text.contains("secrets"), "{text}");
        assert!(text.contains("cannot list resource"), "{text}");
        assert!(!text.contains("configmaps"), "only what is not there is named: {text}");
    });
}
