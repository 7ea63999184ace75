//! Why a key is reconciled.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
use setpoint_sim::World;
use tokio::time::sleep;

use crate::support::{SECOND, child_of, create_map, maps, run, secrets};

/// What each reconcile was for.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, key: &ObjectKey, cx: &Context) {
        self.0.lock().push(format!("{}: {}", key.name(), cx.reasons()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn noting(log: &Log) -> impl setpoint::Reconciler + use<> {
    let log = log.clone();
    move |key: ObjectKey, cx: Context| {
        log.note(&key, &cx);
        async { Ok::<_, ReconcileError>(Action::done()) }
    }
}

#[test]
fn changes_of_the_kind_itself_and_of_owned_ones_are_named() {
    World::run(1, async |world| {
        create_map(&world, "old").await;
        let log = Log::default();
        let running = run(&world, Controller::of::<ConfigMap>(.., "noting", noting(&log)).owns::<Secret>(..));
        sleep(SECOND).await;
        assert_eq!(log.take(), ["old: start"]);
        create_map(&world, "a").await;
        sleep(SECOND).await;
        assert_eq!(log.take(), ["a: configmaps default/a added"]);

        let map = maps(&world).get("a").await.unwrap();
        let mut child = child_of(&map);
        child.metadata.name = Some("child".into());
        secrets(&world).create(&PostParams::default(), &child).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(log.take(), ["a: secrets default/child added"]);

        let patch = Patch::Merge(json!({"data": {"x": "y"}}));
        maps(&world).patch("a", &PatchParams::default(), &patch).await.unwrap();
        sleep(SECOND).await;
        secrets(&world).delete("child", &Default::default()).await.unwrap();
        sleep(SECOND).await;
        maps(&world).delete("a", &Default::default()).await.unwrap();
        sleep(SECOND).await;
        let expected = [
            "a: configmaps default/a updated",
            "a: secrets default/child deleted",
            "a: configmaps default/a deleted",
        ];
        assert_eq!(log.take(), expected);
        let count = |resource, cause| {
            let labels = [("controller", "noting"), ("resource", resource), ("cause", cause)];
            running.metric("setpoint_controller_reasons_total", &labels)
        };
        assert_eq!(
            [count("configmaps", "added"), count("secrets", "deleted"), count("", "start")],
            [1, 1, 1]
        );
    });
}

#[test]
fn what_comes_while_a_key_is_in_work_is_one_reconcile_with_all_reasons() {
    World::run(1, async |world| {
        let log = Log::default();
        let inner = log.clone();
        let slow = move |key: ObjectKey, cx: Context| {
            inner.note(&key, &cx);
            async {
                sleep(10 * SECOND).await;
                Ok::<_, ReconcileError>(Action::done())
            }
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "slow", slow).owns::<Secret>(..));
        create_map(&world, "a").await;
        sleep(SECOND).await;
        let map = maps(&world).get("a").await.unwrap();
        for n in 0..10 {
            let mut child = child_of(&map);
            child.metadata.name = Some(format!("child-{n}"));
            secrets(&world).create(&PostParams::default(), &child).await.unwrap();
            let patch = Patch::Merge(json!({"data": {"x": n.to_string()}}));
            maps(&world).patch("a", &PatchParams::default(), &patch).await.unwrap();
            sleep(SECOND / 10).await;
        }
        sleep(15 * SECOND).await;
        let told = log.take();
        assert_eq!(told.len(), 2, "{told:?}");
        let children: Vec<String> = (0..7).map(|n| format!("secrets default/child-{n} added")).collect();
        for reason in
            children.iter().map(String::as_str).chain(["configmaps default/a updated", "and 3 more"])
        {
            assert!(told[1].contains(reason), "{reason}: {}", told[1]);
        }
        assert_eq!(told[1].matches("configmaps").count(), 1, "ten updates of one object are one reason");
    });
}

#[test]
fn retries_requeues_triggers_and_resyncs_are_named() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let log = Log::default();
        let inner = log.clone();
        let calls = crate::support::Counter::default();
        let reconcile = move |key: ObjectKey, cx: Context| {
            inner.note(&key, &cx);
            let call = calls.inc();
            async move {
                match call {
                    1 => Err(ReconcileError::from("not yet")),
                    2 => Ok(Action::requeue_after(10 * SECOND)),
                    _ => Ok(Action::done()),
                }
            }
        };
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let controller = Controller::of::<ConfigMap>(.., "all", reconcile).triggered_by(receiver);
        let _running = run(&world, controller.resync(60 * SECOND));
        sleep(20 * SECOND).await;
        assert_eq!(log.take(), ["a: start", "a: retry", "a: requeue"]);
        sender.unbounded_send("default/a".into()).unwrap();
        sleep(SECOND).await;
        assert_eq!(log.take(), ["a: trigger"]);
        sleep(60 * SECOND).await;
        assert_eq!(log.take(), ["a: configmaps default/a resync"]);
    });
}

#[test]
fn a_time_that_has_not_come_is_no_reason() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let log = Log::default();
        let inner = log.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            inner.note(&key, &cx);
            async { Ok::<_, ReconcileError>(Action::requeue_after(3600 * SECOND)) }
        };
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let controller = Controller::of::<ConfigMap>(.., "hourly", reconcile).triggered_by(receiver);
        let _running = run(&world, controller.debounce(SECOND));
        sleep(10 * SECOND).await;
        assert_eq!(log.take(), ["a: start"]);
        let patch = Patch::Merge(json!({"data": {"x": "y"}}));
        maps(&world).patch("a", &PatchParams::default(), &patch).await.unwrap();
        sleep(10 * SECOND).await;
        assert_eq!(log.take(), ["a: configmaps default/a updated"], "the hour is not over");
        sender.unbounded_send("default/a".into()).unwrap();
        sleep(10 * SECOND).await;
        assert_eq!(log.take(), ["a: trigger"], "that has happened, though it waited");
        sleep(3600 * SECOND).await;
        assert_eq!(log.take(), ["a: requeue"]);
    });
}

#[test]
fn a_loop_is_found_though_its_events_wait_and_it_comes_again_by_itself() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let looping = |key: ObjectKey, cx: Context| async move {
            let patch = Patch::Merge(json!({"data": {"last": cx.reconcile_id().to_string()}}));
            let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
            maps.patch(key.name(), &PatchParams::default(), &patch).await?;
            Ok::<_, ReconcileError>(Action::requeue_after(3600 * SECOND))
        };
        let controller = Controller::of::<ConfigMap>(.., "looping", looping).debounce(SECOND / 10);
        let running = run(&world, controller);
        sleep(10 * SECOND).await;
        let found = running.metric("setpoint_controller_self_triggered_total", &[("controller", "looping")]);
        assert!(found > 50, "{found}");
    });
}

#[test]
fn the_field_manager_is_named_where_the_cache_keeps_it() {
    World::run(1, async |world| {
        let log = Log::default();
        let runtime = setpoint::controller::Runtime::with(
            world.client_named("controller"),
            world.env().clone(),
            setpoint::Metrics::default(),
        );
        let runtime = runtime.factory(|factory| factory.keep_managed_fields());
        let (inner, controller) = (runtime.clone(), Controller::of::<ConfigMap>(.., "noting", noting(&log)));
        let _running = world.env().spawn(async move { controller.run(&inner).await });
        create_map(&world, "a").await;
        sleep(SECOND).await;
        let api: Api<ConfigMap> = maps(&world);
        let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}});
        api.patch("a", &PatchParams::apply("somebody"), &Patch::Apply(patch)).await.unwrap();
        sleep(SECOND).await;
        let told = log.take();
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[1], "a: configmaps default/a updated by somebody");
    });
}
