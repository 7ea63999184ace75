use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::workqueue::RateLimiter;
use setpoint::{Action, Context, Controller, ObjectKey, Predicate, ReconcileError, Watch};
use setpoint_sim::World;
use tokio::time::sleep;

use crate::support::{Counter, SECOND, count_secrets, create_map, maps, one_child, run, secrets};

#[test]
fn every_object_gets_its_child_whether_it_was_there_before_or_comes_later() {
    World::run(1, async |world| {
        create_map(&world, "before").await;
        let _running =
            run(&world, Controller::of::<ConfigMap>(.., "copy", one_child).owns::<Secret>(..).workers(4));
        sleep(SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
        for n in 0..20 {
            create_map(&world, &format!("later-{n}")).await;
        }
        sleep(SECOND).await;
        assert_eq!(count_secrets(&world).await, 21);
    });
}

#[test]
fn a_deleted_child_is_made_again() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let _running = run(&world, Controller::of::<ConfigMap>(.., "copy", one_child).owns::<Secret>(..));
        sleep(SECOND).await;
        let child = secrets(&world).list(&Default::default()).await.unwrap().items.remove(0);
        secrets(&world)
            .delete(child.metadata.name.as_deref().unwrap(), &DeleteParams::default())
            .await
            .unwrap();
        sleep(SECOND).await;
        let again = secrets(&world).list(&Default::default()).await.unwrap().items.remove(0);
        assert_ne!(again.metadata.uid, child.metadata.uid);
    });
}

#[test]
fn the_key_of_a_deleted_object_is_reconciled_too() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
        let log = seen.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            log.lock().push(cx.lister::<ConfigMap>().unwrap().get(&key).is_some());
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "watch", reconcile));
        sleep(SECOND).await;
        maps(&world).delete("a", &DeleteParams::default()).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(*seen.lock(), [true, false]);
    });
}

#[test]
fn a_mapped_kind_reconciles_the_keys_it_concerns_before_and_after() {
    World::run(1, async |world| {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
        let reconcile = move |key: ObjectKey, _: Context| {
            log.lock().push(key.to_string());
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let target = |secret: &Secret| {
            let labels = secret.metadata.labels.iter().flatten();
            labels
                .filter(|(key, _)| *key == "for")
                .map(|(_, name)| ObjectKey::namespaced("default", name))
                .collect()
        };
        let _running =
            run(&world, Controller::of::<ConfigMap>(.., "mapped", reconcile).watches::<Secret>(.., target));
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".into());
        secret.metadata.labels = Some([("for".to_owned(), "a".to_owned())].into());
        secrets(&world).create(&PostParams::default(), &secret).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(std::mem::take(&mut *seen.lock()), ["default/a"]);
        let patch = json!({"metadata": {"labels": {"for": "b"}}});
        secrets(&world).patch("s", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(std::mem::take(&mut *seen.lock()), ["default/b", "default/a"]);
    });
}

#[test]
fn failures_are_tried_again_later_and_later() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let times: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (log, start) = (times.clone(), tokio::time::Instant::now());
        let reconcile = move |_: ObjectKey, _: Context| {
            log.lock().push(start.elapsed());
            let tries = log.lock().len();
            async move { if tries < 6 { Err("not yet") } else { Ok(Action::done()) } }
        };
        let running = run(&world, Controller::of::<ConfigMap>(.., "fail", reconcile));
        sleep(SECOND).await;
        let times = times.lock();
        let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(times.len(), 6);
        assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "{gaps:?}");
        assert_eq!(running.metric("controller_runtime_reconcile_errors_total", &[("controller", "fail")]), 5);
        let result = [("controller", "fail"), ("result", "success")];
        assert_eq!(running.metric("controller_runtime_reconcile_total", &result), 1);
    });
}

#[test]
fn a_terminal_failure_waits_for_a_change() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            async { Err::<Action, _>(ReconcileError::terminal("the name is not allowed")) }
        };
        let running = run(&world, Controller::of::<ConfigMap>(.., "terminal", reconcile));
        sleep(3600 * SECOND).await;
        assert_eq!(calls.get(), 1);
        let labels = [("controller", "terminal")];
        assert_eq!(running.metric("controller_runtime_terminal_reconcile_errors_total", &labels), 1);
        let patch = json!({"data": {"k": "v"}});
        maps(&world).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(calls.get(), 2);
    });
}

#[test]
fn panics_and_reconciles_that_hang_are_failures() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            let call = counter.inc();
            async move {
                match call {
                    1 => panic!("a bug"),
                    2 => std::future::pending().await,
                    _ => Ok::<_, ReconcileError>(Action::done()),
                }
            }
        };
        let controller = Controller::of::<ConfigMap>(.., "bad", reconcile).time_limit(10 * SECOND);
        let running = run(&world, controller);
        sleep(60 * SECOND).await;
        assert_eq!(calls.get(), 3);
        let labels = [("controller", "bad")];
        assert_eq!(running.metric("controller_runtime_reconcile_panics_total", &labels), 1);
        assert_eq!(running.metric("controller_runtime_reconcile_errors_total", &labels), 2);
        assert_eq!(running.metric("controller_runtime_active_workers", &labels), 0);
    });
}

struct Careless;

impl RateLimiter<ObjectKey> for Careless {
    fn when(&self, _: &ObjectKey) -> Duration {
        panic!("on purpose")
    }

    fn forget(&self, _: &ObjectKey) {}

    fn num_requeues(&self, _: &ObjectKey) -> u32 {
        0
    }
}

#[test]
fn a_rate_limiter_that_panics_loses_no_key_and_no_worker() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            let call = counter.inc();
            async move {
                match call {
                    1 => Err(ReconcileError::from("not yet")),
                    _ => Ok(Action::done()),
                }
            }
        };
        let controller = Controller::of::<ConfigMap>(.., "bad", reconcile).rate_limiter(Careless);
        let _running = run(&world, controller);
        sleep(10 * SECOND).await;
        assert_eq!(calls.get(), 2);
        create_map(&world, "b").await;
        sleep(SECOND).await;
        assert_eq!(calls.get(), 3);
    });
}

#[test]
fn a_key_can_ask_to_be_reconciled_again() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            async { Ok::<_, ReconcileError>(Action::requeue_after(10 * SECOND)) }
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "again", reconcile));
        sleep(65 * SECOND).await;
        assert_eq!(calls.get(), 7);
    });
}

#[test]
fn one_key_is_never_reconciled_twice_at_a_time() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let active: Arc<Mutex<(u32, u32, u32)>> = Arc::default();
        let log = active.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            let log = log.clone();
            async move {
                {
                    let mut log = log.lock();
                    log.0 += 1;
                    log.1 = log.1.max(log.0);
                    log.2 += 1;
                }
                sleep(SECOND).await;
                log.lock().0 -= 1;
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "slow", reconcile).workers(8));
        for n in 0..20 {
            let patch = json!({"data": {"k": n.to_string()}});
            maps(&world).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            sleep(SECOND / 4).await;
        }
        sleep(5 * SECOND).await;
        let (_, most, calls) = *active.lock();
        assert_eq!(most, 1);
        assert!((5..=8).contains(&calls), "changes fold while a reconcile runs: {calls}");
    });
}

#[test]
fn a_filter_keeps_out_what_does_not_matter() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let controller = Controller::of(
            Watch::<ConfigMap>::new().filter(Predicate::labels_changed()),
            "labels",
            reconcile,
        );
        let _running = run(&world, controller);
        sleep(SECOND).await;
        for patch in [json!({"data": {"k": "v"}}), json!({"metadata": {"labels": {"a": "b"}}})] {
            maps(&world).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            sleep(SECOND).await;
        }
        assert_eq!(calls.get(), 2, "the first list, and the change of labels");
    });
}

#[test]
fn keys_come_from_a_stream_too() {
    World::run(1, async |world| {
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            assert_eq!(key.to_string(), "outside/thing");
            assert_eq!(*cx.state::<&str>().unwrap(), "state");
            counter.inc();
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let (sender, receiver) = tokio::sync::mpsc::channel::<ObjectKey>(8);
        let keys =
            futures::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let controller =
            Controller::of::<ConfigMap>(.., "outside", reconcile).triggered_by(keys).state("state");
        let _running = run(&world, controller);
        sender.send(ObjectKey::namespaced("outside", "thing")).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(calls.get(), 1);
    });
}

#[test]
fn a_stream_of_keys_goes_on_after_a_panic() {
    World::run(1, async |world| {
        let calls = Counter::default();
        let counter = calls.clone();
        let reconcile = move |_: ObjectKey, _: Context| {
            counter.inc();
            async { Ok::<_, ReconcileError>(Action::done()) }
        };
        let (sender, receiver) = tokio::sync::mpsc::channel::<ObjectKey>(8);
        let keys =
            futures::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let keys = keys.inspect(|key| assert_ne!(key.name(), "bad", "as the test wants it"));
        let controller = Controller::of::<ConfigMap>(.., "outside", reconcile).triggered_by(keys);
        let _running = run(&world, controller);
        for name in ["good", "bad", "better"] {
            sender.send(ObjectKey::namespaced("outside", name)).await.unwrap();
        }
        sleep(10 * SECOND).await;
        assert_eq!(calls.get(), 2);
    });
}
