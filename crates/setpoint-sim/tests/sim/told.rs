//! What an exploration says when something is wrong: with the controller, with the scenario, or with what it was asked.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint::owner::controller_reference;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError};
use setpoint_sim::{
    Effect, Exploration, Explorer, Fault, Match, Oracle, PointKind, Scenario, Seat, Verb, World, explore,
    replay,
};

use crate::explore::{map, once, scenario as copy};

const SECOND: Duration = Duration::from_secs(1);

async fn nothing(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
    Ok(Action::done())
}

fn maps(cx: &Context, key: &ObjectKey) -> Api<ConfigMap> {
    Api::namespaced(cx.client(), key.namespace().unwrap_or_default())
}

/// A scenario of one controller of ConfigMaps; the one that everybody gets from the server is not theirs.
macro_rules! scenario_of {
    ($reconcile:expr) => {
        Scenario::new().controller("one", |seat: Seat| {
            let reconcile = |key: ObjectKey, cx: Context| async move {
                if key.name() == "a" { $reconcile(key, cx).await } else { Ok(Action::done()) }
            };
            Manager::with(seat.runtime()).controller(Controller::of::<ConfigMap>(.., "one", reconcile)).run()
        })
    };
}

/// The only finding of an exploration that needs no fault.
fn found_without_faults(exploration: &Exploration, oracle: Oracle, why: &str) {
    let finding = exploration.findings.first().expect("a finding");
    assert!(finding.faults.is_empty(), "{:?}", finding.faults);
    let violation = finding.violations.iter().find(|violation| violation.oracle == oracle);
    let violation = violation.unwrap_or_else(|| panic!("{}", finding.report));
    assert!(violation.why.iter().any(|line| line.contains(why)), "{:?}", violation.why);
}

#[test]
#[should_panic(expected = "there is no such file")]
fn a_panic_in_a_scenario_is_told() {
    explore(|_| -> Scenario { panic!("there is no such file") });
}

#[test]
#[should_panic(expected = "no controller of the scenario wrote anything in the run without faults")]
fn a_controller_that_is_never_heard_of_is_not_green() {
    // It writes, but with a client of its own.
    explore(|world: &World| {
        let client = world.direct();
        Scenario::new().controller("aside", move |_| {
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            async move {
                maps.create(&Default::default(), &map("a")).await?;
                std::future::pending::<kube::Result<()>>().await
            }
        })
    });
}

#[test]
#[should_panic(expected = "no point was tried")]
fn an_exploration_that_tries_nothing_is_not_green() {
    explore(|world: &World| PointKind::ALL.into_iter().fold(copy(world), Scenario::without));
}

#[test]
fn a_panic_in_a_step_is_a_finding_and_tells_why() {
    let exploration = Explorer::new("step", |_: &World| {
        scenario_of!(nothing).step("look at it", |world| async move {
            let maps: Api<ConfigMap> = Api::default_namespaced(world.direct());
            maps.get("it").await.unwrap();
            Ok::<_, String>(())
        })
    })
    .run();
    found_without_faults(&exploration, Oracle::Troubles, "step \"look at it\" panicked");
    found_without_faults(&exploration, Oracle::Troubles, "configmaps \\\"it\\\" not found");
}

#[test]
fn a_panic_in_a_goal_is_a_finding_and_tells_why() {
    let goal = |_: &World| scenario_of!(nothing).goal("all is well", |_| panic!("three are missing"));
    let exploration = Explorer::new("goal", goal).run();
    found_without_faults(&exploration, Oracle::Troubles, "all is well: it panicked");
    found_without_faults(&exploration, Oracle::Troubles, "three are missing");
}

/// Adds what is wanted, and removes nothing.
async fn label(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let (wanted, has) = (map.data.as_ref().and_then(|data| data.get("key")), &map.metadata.labels);
    let is_there = |label: &String| has.as_ref().is_some_and(|labels| labels.contains_key(label));
    if let Some(label) = wanted.filter(|label| !is_there(label)) {
        let patch = json!({"metadata": {"labels": {label: "yes"}}});
        maps(&cx, &key).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(Action::done())
}

fn labels(_: &World) -> Scenario {
    scenario_of!(label).apply(&map("x")).apply(&map("y"))
}

#[test]
fn a_change_that_is_not_taken_back_is_told_with_the_steps_that_show_it() {
    let exploration = Explorer::new("labels", labels).run();
    for (kind, oracle, steps) in [
        (PointKind::Rollback, Oracle::Rollback, vec![0, 1, 0]),
        (PointKind::TwoWays, Oracle::TwoWays, vec![1]),
    ] {
        assert_eq!(exploration.tried[&kind].failed, 1, "{kind}");
        let faults = [Fault::Steps(steps)];
        let finding =
            exploration.findings.iter().find(|finding| finding.faults == faults).expect("a finding");
        assert_eq!(finding.violations[0].oracle, oracle);
        let again = Explorer::new("labels", labels).replay(&faults);
        assert_eq!(again.findings[0].violations, finding.violations);
    }
    let report = &Explorer::new("labels", labels).replay(&[Fault::Steps(vec![0, 1, 0])]).findings[0].report;
    for text in [
        "the steps of the user in another way: 1, 2, 1",
        "a change and its opposite do not lead back",
        "as the scenario says",
        "> ",
        "Fault::Steps(vec![0, 1, 0])",
        "replay(labels, [",
    ] {
        assert!(report.contains(text), "{text:?} is not in\n{report}");
    }
}

#[test]
fn a_replay_fails_whose_fault_never_takes_place() {
    let update = Match::any().verb(Verb::Update).resource("secrets").client("once");
    let there = Match::any().verb(Verb::Create).resource("secrets").client("once").name("a").nth(1);
    let faults = [
        Fault::On(update.clone(), Effect::CrashBefore),
        Fault::On(there, Effect::CrashBefore),
        Fault::Steps(vec![7]),
    ];
    let found = |faults: &[Fault]| {
        let exploration = Explorer::new("once", once).replay(faults);
        let violations = exploration.findings.into_iter().flat_map(|finding| finding.violations);
        violations
            .filter(|violation| violation.oracle == Oracle::Missed)
            .flat_map(|missed| missed.why)
            .count()
    };
    assert_eq!(found(&faults[..1]), 1);
    assert_eq!(found(&faults[1..2]), 0);
    assert_eq!(found(&faults[2..]), 1);
}

#[test]
#[should_panic(expected = "a fault never took place")]
fn a_pasted_test_does_not_pass_when_its_names_are_of_the_past() {
    let gone = Match::any().verb(Verb::Create).resource("secrets").client("once").name("of-the-past").nth(1);
    replay(|_| scenario_of!(nothing).apply(&map("a")), [Fault::On(gone, Effect::CrashBefore)]);
}

/// Wants to clean up before its object goes, and never does.
async fn finalize(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    if map.metadata.finalizers.is_none() && map.metadata.deletion_timestamp.is_none() {
        let patch = json!({"metadata": {"finalizers": ["example.com/clean"]}});
        maps(&cx, &key).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(Action::done())
}

#[test]
fn a_finalizer_that_nobody_removes_is_found() {
    let exploration =
        Explorer::new("finalize", |_: &World| scenario_of!(finalize).apply(&map("a")).delete(&map("a")))
            .run();
    found_without_faults(&exploration, Oracle::Deletions, "configmaps/default/a was deleted");
    found_without_faults(&exploration, Oracle::Deletions, "example.com/clean");
}

/// Writes down when it was here, every second.
async fn heartbeat(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let patch = json!({"data": {"at": cx.env().now().to_string()}});
    maps(&cx, &key).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Action::requeue_after(SECOND))
}

/// Asks every second.
async fn ask(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    maps(&cx, &key).get_opt(key.name()).await?;
    Ok(Action::requeue_after(SECOND))
}

/// Asks every five seconds, as one may.
async fn ask_now_and_then(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    maps(&cx, &key).get_opt(key.name()).await?;
    Ok(Action::requeue_after(5 * SECOND))
}

#[test]
fn a_request_again_and_again_is_no_rest_whatever_comes_of_it() {
    let path = "/api/v1/namespaces/default/configmaps/a";
    let explored = Explorer::new("heartbeat", |_: &World| scenario_of!(heartbeat).apply(&map("a"))).run();
    found_without_faults(&explored, Oracle::Rest, &format!("one sends PATCH {path} "));
    let explored = Explorer::new("ask", |_: &World| scenario_of!(ask).apply(&map("a"))).run();
    found_without_faults(&explored, Oracle::Rest, &format!("one sends GET {path} "));
    replay(|_| scenario_of!(ask_now_and_then).apply(&map("a")), []);
}

/// Makes a Secret for its ConfigMap; it does not watch Secrets, but asks now and then.
async fn make_late(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(map) = cx.lister::<ConfigMap>()?.get(&key) else { return Ok(Action::done()) };
    let secrets: Api<Secret> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    if secrets.get_opt(key.name()).await?.is_none() {
        let owners = [controller_reference(&*map)];
        let secret = json!({"metadata": {"name": key.name(), "ownerReferences": owners}});
        secrets.create(&Default::default(), &serde_json::from_value(secret)?).await?;
    }
    Ok(Action::requeue_after(5 * SECOND))
}

/// A garbage collector takes it again, and the controller is not to blame.
#[test]
fn what_is_made_for_an_owner_that_is_gone_is_collected() {
    Explorer::new("late", |_: &World| scenario_of!(make_late).apply(&map("a")).delete(&map("a")))
        .run()
        .assert_nothing_found();
}
