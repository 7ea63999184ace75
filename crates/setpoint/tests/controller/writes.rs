//! Reading your own writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError, Watch};
use setpoint_sim::{Match, World};
use tokio::time::sleep;

use crate::support::{Counter, SECOND, child_of, count_secrets, create_map, run};

/// Creates a child unless the cache shows one, with a name that the server makes up; and looks again soon.
async fn create_if_missing(
    key: ObjectKey,
    cx: Context,
    client: Client,
    again: Duration,
) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    if cx.lister::<Secret>()?.is_empty() {
        let secrets: Api<Secret> = Api::default_namespaced(client);
        secrets.create(&PostParams::default(), &child_of(&map)).await?;
    }
    Ok(Action::requeue_after(again))
}

fn children_with_a_slow_watch(tracked: bool) -> usize {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        world.faults().on(Match::watch("secrets")).delay_events(5 * SECOND).always();
        let reconcile = move |key, cx: Context| {
            let client = if tracked { cx.client() } else { cx.untracked_client() };
            create_if_missing(key, cx, client, SECOND)
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "slow", reconcile).owns::<Secret>(..));
        sleep(60 * SECOND).await;
        count_secrets(&world).await
    })
}

#[test]
fn a_slow_watch_makes_no_second_child() {
    assert_eq!(children_with_a_slow_watch(true), 1);
}

#[test]
fn without_the_notes_a_slow_watch_makes_several() {
    let children = children_with_a_slow_watch(false);
    assert!(children > 1, "the test proves nothing if the naive loop is right: {children}");
}

#[test]
fn a_child_that_the_selectors_of_a_cache_take_is_waited_for_and_another_is_not() {
    World::run(7, async |world| {
        for name in ["in", "out"] {
            create_map(&world, name).await;
        }
        world.faults().on(Match::watch("secrets")).delay_events(5 * SECOND).always();
        let waited = Counter::default();
        let counter = waited.clone();
        let reconcile = move |key: ObjectKey, cx: Context| {
            let counter = counter.clone();
            async move {
                let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
                let has_child = cx.lister::<Secret>()?.list().iter().any(|secret| {
                    secret.metadata.generate_name.as_deref() == Some(&format!("{}-", key.name()))
                });
                if key.name() == "out" && counter.inc() > 1 || has_child {
                    return Ok(Action::requeue_after(SECOND));
                }
                let mut child = child_of(&map);
                child.metadata.generate_name = Some(format!("{}-", key.name()));
                child.metadata.labels = Some([("tier".to_owned(), key.name().to_owned())].into());
                let secrets: Api<Secret> = Api::default_namespaced(cx.client());
                secrets.create(&PostParams::default(), &child).await?;
                Ok::<_, ReconcileError>(Action::requeue_after(SECOND))
            }
        };
        let secrets = Watch::<Secret>::new().labels("tier in (in, within), tier!=out, tier, !other");
        let running = run(&world, Controller::of::<ConfigMap>(.., "some", reconcile).owns(secrets));
        sleep(8 * SECOND).await;
        assert!(waited.get() > 1, "what the cache leaves out is not waited for");
        sleep(60 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 2);
        let late = running.metric("setpoint_controller_catch_up_late_total", &[("controller", "some")]);
        assert_eq!(late, 0);
    });
}

fn children_with_a_lost_response(tracked: bool) -> usize {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        world.faults().on(Match::watch("secrets")).delay_events(3 * SECOND).always();
        world.faults().on(Match::create("secrets")).lose_response();
        let reconcile = move |key, cx: Context| {
            let client = if tracked { cx.client() } else { cx.untracked_client() };
            create_if_missing(key, cx, client, SECOND)
        };
        let _running = run(&world, Controller::of::<ConfigMap>(.., "lost", reconcile).owns::<Secret>(..));
        sleep(60 * SECOND).await;
        assert!(world.faults().fired().iter().any(|fired| fired.to_string().contains("lost the response")));
        count_secrets(&world).await
    })
}

#[test]
fn a_lost_response_makes_no_second_child() {
    assert_eq!(children_with_a_lost_response(true), 1);
}

#[test]
fn without_the_notes_a_lost_response_makes_several() {
    let children = children_with_a_lost_response(false);
    assert!(children > 1, "{children}");
}

#[test]
fn a_reconcile_that_is_cut_off_in_the_middle_of_a_write_makes_no_second_child() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        world.faults().on(Match::watch("secrets")).delay_events(3 * SECOND).always();
        // The server acts at once, but the reconcile does not live to hear of it.
        world.faults().on(Match::create("secrets")).delay_response(20 * SECOND);
        let reconcile = |key, cx: Context| {
            let client = cx.client();
            create_if_missing(key, cx, client, SECOND)
        };
        let controller =
            Controller::of::<ConfigMap>(.., "cut", reconcile).owns::<Secret>(..).time_limit(2 * SECOND);
        let _running = run(&world, controller);
        sleep(60 * SECOND).await;
        assert_eq!(count_secrets(&world).await, 1);
    });
}

#[test]
fn a_deletion_is_waited_for_too() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        let child = {
            let map = crate::support::maps(&world).get("a").await.unwrap();
            let mut child = child_of(&map);
            child.metadata.name = Some("child".into());
            child
        };
        crate::support::secrets(&world).create(&PostParams::default(), &child).await.unwrap();
        world.faults().on(Match::watch("secrets")).delay_events(5 * SECOND).always();
        // Deletes the child as long as it is there. A second delete would fail with 404.
        async fn reconcile(_: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
            if !cx.lister::<Secret>()?.is_empty() {
                let secrets: Api<Secret> = Api::default_namespaced(cx.client());
                secrets.delete("child", &DeleteParams::default()).await?;
            }
            Ok(Action::requeue_after(SECOND))
        }
        let running = run(&world, Controller::of::<ConfigMap>(.., "delete", reconcile).owns::<Secret>(..));
        sleep(60 * SECOND).await;
        assert_eq!(
            running.metric("controller_runtime_reconcile_errors_total", &[("controller", "delete")]),
            0
        );
        assert_eq!(count_secrets(&world).await, 0);
    });
}

#[test]
fn the_wait_is_bounded_and_counted() {
    World::run(7, async |world| {
        create_map(&world, "a").await;
        let held = world.faults().on(Match::watch("secrets")).hold_after_events(1);
        let reconcile = |key, cx: Context| {
            let client = cx.client();
            create_if_missing(key, cx, client, SECOND)
        };
        let controller =
            Controller::of::<ConfigMap>(.., "held", reconcile).owns::<Secret>(..).catch_up_limit(10 * SECOND);
        let running = run(&world, controller);
        sleep(25 * SECOND).await;
        assert_eq!(running.metric("setpoint_controller_catch_up_late_total", &[("controller", "held")]), 2);
        held.release();
    });
}
