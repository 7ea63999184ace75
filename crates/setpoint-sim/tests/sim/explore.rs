//! What the explorer says of itself: its formula, its determinism, and that nothing depends on how many threads it has.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::leader_election::LeaseConfig;
use setpoint::owner::controller_reference;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError, ensure};
use setpoint_sim::{Act, Effect, Explorer, Fault, Match, Oracle, PointKind, Scenario, Verb, World, replay};

pub(crate) fn map(value: &str) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some("a".into()), namespace: Some("default".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("key".into(), value.into())].into()), ..ConfigMap::default() }
}

/// Every ConfigMap with data has a Secret with the same.
pub(crate) async fn copy(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let Some(data) = map.data.as_ref().filter(|data| data.contains_key("key")) else {
        return Ok(Action::done());
    };
    let wanted: Secret = serde_json::from_value(json!({
        "metadata": {"name": key.name(), "namespace": key.namespace(), "ownerReferences": [controller_reference(&*map)],
            "annotations": data},
    }))?;
    let secrets: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    ensure(&secrets, cx.lister::<Secret>()?.get(&key).as_deref(), &wanted).await?;
    Ok(Action::done())
}

pub(crate) fn scenario(_: &World) -> Scenario {
    Scenario::new()
        .controller("copy", |seat| {
            let controller = Controller::of::<ConfigMap>(.., "copy", copy).owns::<Secret>(..);
            Manager::with(seat.runtime()).controller(controller).run()
        })
        .apply(&map("a"))
        .apply(&map("b"))
}

#[test]
fn the_number_of_points_is_that_of_the_formula_and_each_is_tried() {
    let exploration = Explorer::new("copy", scenario).run();
    exploration.assert_nothing_found();
    let targets = exploration.targets;
    let tried: usize = exploration.tried.values().map(|tried| tried.runs).sum();
    assert_eq!(tried, targets.points());
    assert!(exploration.unreached.is_empty(), "{exploration}");
    assert_eq!((targets.writes, targets.changes, targets.children, targets.changed_children), (2, 1, 1, 0));
    // It creates a Secret, lists and watches two kinds, and nothing else.
    assert_eq!((targets.creates, targets.watches), (1, 2));
    assert_eq!(exploration.tried[&PointKind::CreatedFirst].runs, targets.creates);
    for kind in [PointKind::WatchBusy, PointKind::WatchError] {
        assert_eq!(exploration.tried[&kind].runs, targets.watches);
    }
    for kind in [PointKind::ReadError, PointKind::ReadLost, PointKind::ReadBusy] {
        assert_eq!(exploration.tried.get(&kind).map_or(0, |tried| tried.runs), targets.reads);
    }
    for kind in [PointKind::CrashBefore, PointKind::CrashAfterCommit, PointKind::AnswerLost] {
        assert_eq!(exploration.tried[&kind].runs, targets.writes);
    }
    assert_eq!(exploration.tried[&PointKind::WatchHeld].runs, targets.places);
    assert_eq!(exploration.tried[&PointKind::WatchLags].runs, targets.lags);
    assert!(!exploration.tried.contains_key(&PointKind::LeaseLost), "it has no lease");
}

/// Two replicas of which one works.
fn replicas(_: &World) -> Scenario {
    let replica = |scenario: Scenario, name: &str| {
        scenario.controller(name, |seat| {
            let mut lease = LeaseConfig::new("default", "copy");
            lease.identity = seat.identity();
            let controller = Controller::of::<ConfigMap>(.., "copy", copy).owns::<Secret>(..);
            Manager::with(seat.runtime()).leader_election(lease).controller(controller).run()
        })
    };
    let scenario = replica(replica(Scenario::new(), "one"), "two");
    scenario.quiet(Duration::from_secs(20)).apply(&map("a")).apply(&map("b"))
}

#[test]
fn no_two_replicas_write_at_once_whoever_stops_and_however_fast_the_clocks_are() {
    let exploration = Explorer::new("replicas", replicas).run();
    exploration.assert_nothing_found();
    let targets = exploration.targets;
    assert_eq!((targets.writes, targets.leading, targets.contested), (2, 2, 2));
    let tried: usize = exploration.tried.values().map(|tried| tried.runs).sum();
    assert_eq!(tried, targets.points());
    for kind in [PointKind::LeaderPaused, PointKind::LeaseLost, PointKind::ClockSlow, PointKind::ClockFast] {
        assert_eq!(exploration.tried[&kind].runs, 2, "{kind}");
    }
}

const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/a";

fn job() -> Job {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}});
    serde_json::from_value(
        json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"template": pod}}),
    )
    .expect("a Job")
}

/// The server writes a selector into a Job, and takes none from others.
#[test]
fn an_object_that_is_made_anew_is_what_its_user_applied() {
    replay(|_| Scenario::new().apply(&job()), [Fault::AtRest(Act::Recreate, JOB.into())]);
}

#[test]
fn a_child_that_is_made_anew_is_what_its_controller_created() {
    async fn make(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
        let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
        if map.data.as_ref().is_none_or(|data| !data.contains_key("key"))
            || cx.lister::<Job>()?.get(&key).is_some()
        {
            return Ok(Action::done());
        }
        let mut job = job();
        job.metadata.owner_references = controller_reference(&*map).map(|owner| vec![owner]);
        let jobs: Api<Job> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
        jobs.create(&Default::default(), &job).await?;
        Ok(Action::done())
    }
    let scenario = |_: &World| {
        Scenario::new()
            .controller("make", |seat| {
                let controller = Controller::of::<ConfigMap>(.., "make", make).owns::<Job>(..);
                Manager::with(seat.runtime()).controller(controller).run()
            })
            .apply(&map("a"))
    };
    replay(scenario, [Fault::AtRest(Act::Recreate, JOB.into())]);
}

/// The server makes its roles when it is asked for them first.
#[test]
fn what_the_server_makes_by_itself_is_nobodys_child() {
    let reads = |_: &World| {
        Scenario::new().controller("reads", |seat| async move {
            let roles: Api<ClusterRole> = Api::all(seat.client());
            assert!(!roles.list(&Default::default()).await?.items.is_empty());
            std::future::pending::<kube::Result<()>>().await
        })
    };
    let exploration = Explorer::new("reads", reads).run();
    assert!(exploration.findings.is_empty(), "{exploration}");
    assert_eq!((exploration.targets.reads, exploration.targets.children), (1, 0));
}

#[test]
fn what_is_found_does_not_depend_on_threads() {
    let found = |threads| {
        let exploration = Explorer::new("once", once).threads(threads).run();
        let kinds: Vec<_> = exploration.tried.iter().map(|(kind, tried)| (*kind, tried.failed)).collect();
        let first = &exploration.findings[0];
        (kinds, first.faults.clone(), first.violations.clone())
    };
    assert_eq!(found(1), found(3));
}

/// Few points, and none of them alone does any harm.
fn harmed_by_two(world: &World) -> Scenario {
    let (world, kinds) = (world.clone(), [PointKind::CrashBefore, PointKind::ServerError]);
    let left_out = PointKind::ALL.into_iter().filter(|kind| !kinds.contains(kind));
    left_out.fold(scenario(&world), Scenario::without).goal("at most one fault", move |_| {
        if world.faults().fired().len() < 2 { Ok(()) } else { Err("there were two".to_owned()) }
    })
}

#[test]
fn what_several_faults_find_depends_on_their_seed_and_not_on_threads() {
    let explore = |seed, threads| {
        let explorer = Explorer::new("two", harmed_by_two).seed(seed).threads(threads);
        let exploration = explorer.budget(Duration::from_secs(600)).run();
        let finding = exploration.findings.first().expect("two faults").clone();
        assert_eq!((exploration.seed, finding.faults.len(), finding.point), (seed, 2, None));
        let again = format!("SETPOINT_SIM_SEED={seed} SETPOINT_SIM_BUDGET=600s cargo test");
        assert!(finding.report.contains(&again), "{}", finding.report);
        (finding.faults, finding.runs)
    };
    assert_eq!(explore(7, 1), explore(7, 3));
    assert!((8..16).any(|seed| explore(seed, 2) != explore(7, 2)));
}

/// A controller that creates a Secret, and takes one that is there already for somebody else's.
async fn make_or_give_up(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let is_ours = map.data.as_ref().is_some_and(|data| data.contains_key("key"));
    if !is_ours || cx.lister::<Secret>()?.get(&key).is_some() {
        return Ok(Action::done());
    }
    let secrets: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    let owners = [controller_reference(&*map)];
    let secret = json!({"metadata": {"name": key.name(), "ownerReferences": owners}});
    if let Err(kube::Error::Api(status)) =
        secrets.create(&Default::default(), &serde_json::from_value(secret)?).await
        && status.reason == "AlreadyExists"
    {
        let maps: Api<ConfigMap> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
        let failed = json!({"metadata": {"labels": {"state": "failed"}}});
        maps.patch(key.name(), &Default::default(), &kube::api::Patch::Merge(failed)).await?;
    }
    Ok(Action::done())
}

#[test]
fn who_does_not_expect_that_another_creates_first_is_found() {
    let exploration = Explorer::new("give-up", |_: &World| {
        let kinds = PointKind::ALL.into_iter().filter(|kind| *kind != PointKind::CreatedFirst);
        let scenario = Scenario::new().controller("give-up", |seat| {
            let controller = Controller::of::<ConfigMap>(.., "give-up", make_or_give_up).owns::<Secret>(..);
            Manager::with(seat.runtime()).controller(controller).run()
        });
        kinds.fold(scenario, Scenario::without).apply(&map("a"))
    })
    .run();
    let tried = exploration.tried[&PointKind::CreatedFirst];
    assert_eq!((tried.runs, tried.failed, tried.unreached), (1, 1, 0));
    let violation = &exploration.findings[0].violations[0];
    assert_eq!(violation.oracle, Oracle::EndState);
    assert!(violation.why[0].contains("labels"), "{:?}", violation.why);
}

/// A controller that makes two Secrets, and looks for the first one alone.
async fn make_two(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    if map.data.as_ref().is_none_or(|data| !data.contains_key("key"))
        || cx.lister::<Secret>()?.get(&key).is_some()
    {
        return Ok(Action::done());
    }
    let secrets: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    for name in [key.name().to_owned(), format!("{}-2", key.name())] {
        let owners = [controller_reference(&*map)];
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}}))?;
        secrets.create(&Default::default(), &secret).await?;
    }
    Ok(Action::done())
}

pub(crate) fn once(_: &World) -> Scenario {
    Scenario::new()
        .controller("once", |seat| {
            let controller = Controller::of::<ConfigMap>(.., "once", make_two).owns::<Secret>(..);
            Manager::with(seat.runtime()).controller(controller).run()
        })
        .apply(&map("a"))
}

#[test]
fn a_finding_is_told_with_its_faults_both_timelines_and_a_test_to_paste() {
    let exploration = Explorer::new("once", once).run();
    let crash = Fault::On(
        Match::any()
            .verb(Verb::Create)
            .resource("secrets")
            .client("once")
            .namespace("default")
            .name("a-2")
            .nth(1),
        Effect::CrashBefore,
    );
    let finding = exploration.findings.iter().find(|finding| finding.faults == [crash.clone()]);
    let finding = finding.expect("a crash between the two creates");
    assert_eq!(finding.violations[0].oracle, Oracle::EndState);
    assert_eq!(finding.violations[0].why, ["secrets/default/a-2: one missing"]);
    let wanted = [
        "crash before create secrets of client once in namespace default, name a-2, number 1",
        "once: creates secrets/default/a-2",
        "✗ crashed the client before it sent POST secrets/default/a-2",
        "Effect::CrashBefore",
        "use setpoint_sim::{Effect, Fault, Match, Verb, replay};",
        "replay(once, [",
    ];
    for text in wanted {
        assert!(finding.report.contains(text), "{text:?} is not in\n{}", finding.report);
    }
}

#[test]
#[should_panic(expected = "secrets/default/a-2: one missing")]
fn a_pasted_test_fails_in_the_same_way() {
    replay(
        once,
        [Fault::On(
            Match::any()
                .verb(Verb::Create)
                .resource("secrets")
                .client("once")
                .namespace("default")
                .name("a-2")
                .nth(1),
            Effect::CrashBefore,
        )],
    );
}

#[test]
fn a_replay_without_harm_is_quiet() {
    replay(scenario, [Fault::AtRest(Act::Delete, "/api/v1/namespaces/default/secrets/a".into())]);
}

#[test]
fn a_panic_is_found_also_where_it_is_caught() {
    async fn panics(key: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
        assert_ne!(key.name(), "a", "a bug");
        Ok(Action::done())
    }
    let exploration = Explorer::new("panics", |_: &World| {
        Scenario::new()
            .controller("panics", |seat| {
                Manager::with(seat.runtime())
                    .controller(Controller::of::<ConfigMap>(.., "panics", panics))
                    .run()
            })
            .apply(&map("a"))
    })
    .run();
    let finding = &exploration.findings[0];
    assert_eq!((finding.faults.len(), finding.violations[0].oracle), (0, Oracle::Troubles));
    assert!(finding.violations[0].why[0].contains("a bug"), "{:?}", finding.violations);
}

/// It knows only by itself that it has made a Secret, whose name the server generates.
async fn remember(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let uid = map.metadata.uid.clone().unwrap_or_default();
    if map.data.is_none() || cx.state::<Mutex<BTreeSet<String>>>()?.lock().contains(&uid) {
        return Ok(Action::done());
    }
    let mut secret = Secret::default();
    secret.metadata.generate_name = Some("a-".into());
    secret.metadata.owner_references = controller_reference(&*map).map(|owner| vec![owner]);
    let secrets: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    secrets.create(&Default::default(), &secret).await?;
    cx.state::<Mutex<BTreeSet<String>>>()?.lock().insert(uid);
    Ok(Action::done())
}

#[test]
fn a_second_child_is_found_although_it_goes_with_its_owner() {
    let exploration = Explorer::new("remember", |_| {
        let made = Mutex::<BTreeSet<String>>::default;
        Scenario::new()
            .controller("remember", move |seat| {
                let controller = Controller::of::<ConfigMap>(.., "remember", remember).owns::<Secret>(..);
                Manager::with(seat.runtime()).controller(controller.state(made())).run()
            })
            .apply(&map("a"))
            .delete(&map("a"))
    })
    .run();
    assert_eq!(exploration.tried[&PointKind::CrashAfterAnswer].failed, 1, "{exploration}");
    let oracles =
        |finding: &setpoint_sim::Finding| finding.violations.iter().any(|v| v.oracle == Oracle::Counts);
    assert!(exploration.findings.iter().all(oracles), "{exploration}");
}
