//! What a listener learns of a controller.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint::controller::Runtime;
use setpoint::facts::{
    Fact, Finding, LeadershipState, ReconcileResult, ReflectorState, Subscription, WorkState, WriteResult,
};
use setpoint::workqueue::Phase;
use setpoint::{
    Action, Context, Controller, LeaseConfig, LoopEvent, Manager, Metrics, ObjectKey, ReconcileError,
    SharedInformerFactory,
};
use setpoint_sim::{Match, Refusal, World};
use tokio::time::sleep;

use crate::support::{SECOND, create_map, maps, one_child, run};

fn heard(facts: &mut Subscription) -> Vec<Arc<Fact>> {
    std::iter::from_fn(|| facts.try_next()).collect()
}

/// A fact about the controller and its key in a few words; nothing for what is about other things.
fn words(fact: &Fact) -> Option<String> {
    Some(match &fact.event {
        LoopEvent::Added { reason, is_coalesced, .. } => {
            format!("added: {reason}{}", if *is_coalesced { " (coalesced)" } else { "" })
        }
        LoopEvent::Phase { phase, .. } => format!("{phase:?}"),
        LoopEvent::Delayed { delay, cause, .. } => format!("{} in {delay:?}", cause.as_str()),
        LoopEvent::Held { until, .. } => {
            let caches: Vec<&str> = until.iter().map(|until| &*until.cache.resource).collect();
            format!("held for {}", caches.join(" and "))
        }
        LoopEvent::Released { is_late, .. } => format!("released{}", if *is_late { " late" } else { "" }),
        LoopEvent::ReconcileStarted { id, reasons, .. } => format!("reconcile {id}: {reasons}"),
        LoopEvent::ReconcileEnded { id, result: ReconcileResult::Failed { error }, .. } => {
            format!("reconcile {id} failed: {error}")
        }
        LoopEvent::ReconcileEnded { id, .. } => format!("reconcile {id} ended"),
        LoopEvent::Write { id, method, resource, .. } => format!("{id} wrote: {method} {resource}"),
        _ => return None,
    })
}

#[test]
fn the_stream_tells_the_whole_life_of_a_key() {
    World::run(1, async |world| {
        world.faults().on(Match::watch("secrets")).delay_events(SECOND).always();
        let running = run(&world, Controller::of::<ConfigMap>(.., "children", one_child).owns::<Secret>(..));
        let mut facts = running.runtime.facts().subscribe();
        sleep(SECOND).await;
        heard(&mut facts);
        create_map(&world, "a").await;
        sleep(10 * SECOND).await;
        let all = heard(&mut facts);
        let child = all.iter().find_map(|fact| match &fact.event {
            LoopEvent::Write { object, .. } => object.clone(),
            _ => None,
        });
        let child = child.expect("a child was written");
        let told: Vec<String> = all.iter().filter_map(|fact| words(fact)).collect();
        let expected = [
            "added: configmaps default/a added".to_owned(),
            "Queued".to_owned(),
            "Processing".to_owned(),
            "reconcile 1: configmaps default/a added".to_owned(),
            "1 wrote: POST secrets".to_owned(),
            "reconcile 1 ended".to_owned(),
            "held for secrets".to_owned(),
            "Holding".to_owned(),
            "Held".to_owned(),
            "released".to_owned(),
            "Absent".to_owned(),
            format!("added: secrets {child} added"),
            "Queued".to_owned(),
            "Processing".to_owned(),
            format!("reconcile 2: secrets {child} added (own write)"),
            "reconcile 2 ended".to_owned(),
            "Absent".to_owned(),
        ];
        assert_eq!(told, expected);
        assert!(all.windows(2).all(|two| two[0].number + 1 == two[1].number && two[0].at <= two[1].at));
    });
}

#[test]
fn the_stream_tells_of_lists_watches_caches_and_handlers() {
    World::run(1, async |world| {
        let runtime =
            Runtime::with(world.client_named("controller"), world.env().clone(), Metrics::default());
        let mut facts = runtime.facts().subscribe();
        world.faults().on(Match::watch("configmaps")).refuse_connection();
        let inner = runtime.clone();
        let controller = Controller::of::<ConfigMap>(.., "children", one_child);
        let _running = world.env().spawn(async move { controller.run(&inner).await });
        sleep(10 * SECOND).await;
        let began = heard(&mut facts);
        let state = |wanted: fn(&ReflectorState) -> bool| {
            began
                .iter()
                .any(|fact| matches!(&fact.event, LoopEvent::Reflector { state, .. } if wanted(state)))
        };
        assert!(state(|state| matches!(state, ReflectorState::Failed { pause, .. } if !pause.is_zero())));
        assert!(state(|state| matches!(state, ReflectorState::Listing { is_streaming: true })));
        assert!(state(|state| matches!(state, ReflectorState::Listed { .. })));
        assert!(state(|state| matches!(state, ReflectorState::Watching { from: Some(_) })));
        let is_list = |fact: &Arc<Fact>| matches!(fact.event, LoopEvent::Applied { is_list: true, .. });
        assert!(began.iter().any(is_list), "{began:#?}");
        let works = LoopEvent::Work { controller: "children".into(), state: WorkState::Working };
        assert!(began.iter().any(|fact| fact.event == works));

        create_map(&world, "a").await;
        sleep(SECOND).await;
        let all = heard(&mut facts);
        let at = |wanted: &dyn Fn(&LoopEvent) -> bool| {
            all.iter().position(|fact| wanted(&fact.event)).unwrap_or_else(|| panic!("{all:#?}"))
        };
        let received = at(
            &|event| matches!(event, LoopEvent::Received { changes, .. } if changes.first[0].key == "default/a".into()),
        );
        let applied = at(
            &|event| matches!(event, LoopEvent::Applied { changes, is_list: false, version: Some(_), .. } if changes.count == 1),
        );
        let behind = at(&|event| matches!(event, LoopEvent::Handler { backlog: 1, .. }));
        let queued = at(&|event| matches!(event, LoopEvent::Phase { phase: Phase::Queued, .. }));
        let told = at(&|event| matches!(event, LoopEvent::Handler { backlog: 0, .. }));
        assert!(received < applied && applied < behind && behind < queued && queued < told, "{all:#?}");
    });
}

async fn set_data(key: &ObjectKey, cx: &Context, data: serde_json::Value) -> Result<(), ReconcileError> {
    let api: Api<ConfigMap> = Api::default_namespaced(cx.client());
    let params = PatchParams::apply("counting").force();
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    api.patch(key.name(), &params, &Patch::Apply(patch)).await?;
    Ok(())
}

/// Writes its own object, each time something else.
async fn count_reconciles(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if let Some(map) = cx.lister::<ConfigMap>()?.get(&key) {
        let count =
            map.data.iter().flatten().find(|(name, _)| *name == "n").map_or(0, |(_, n)| n.parse().unwrap());
        if count < 20 {
            set_data(&key, &cx, json!({"n": (count + 1).to_string()})).await?;
        }
    }
    Ok(Action::done())
}

#[test]
fn a_loop_that_triggers_itself_is_named_with_what_it_writes() {
    World::run(1, async |world| {
        let running = run(&world, Controller::of::<ConfigMap>(.., "counting", count_reconciles));
        let mut facts = running.runtime.facts().subscribe();
        create_map(&world, "a").await;
        sleep(60 * SECOND).await;
        let all = heard(&mut facts);
        let times = all.iter().filter_map(|fact| match &fact.event {
            LoopEvent::Finding { finding: Finding::SelfTriggered { times, resource, object }, .. } => {
                assert_eq!((&**resource, object.to_string().as_str()), ("configmaps", "default/a"));
                Some(*times)
            }
            _ => None,
        });
        assert_eq!(times.collect::<Vec<_>>(), (5..=20).collect::<Vec<_>>());
        let labels = [("controller", "counting")];
        assert_eq!(running.metric("setpoint_controller_self_triggered_total", &labels), 16);
        assert_eq!(running.metric("setpoint_controller_unchanged_writes_total", &labels), 0);
        let last = all.iter().rev().find_map(|fact| match &fact.event {
            LoopEvent::ReconcileStarted { reasons, .. } => Some(reasons.to_string()),
            _ => None,
        });
        assert_eq!(last.unwrap(), "configmaps default/a updated by counting (own write)");
    });
}

#[test]
fn a_write_says_what_it_changed_against_the_cache() {
    World::run(1, async |world| {
        let running = run(&world, Controller::of::<ConfigMap>(.., "counting", count_reconciles));
        let mut facts = running.runtime.facts().subscribe();
        create_map(&world, "a").await;
        sleep(60 * SECOND).await;
        let all = heard(&mut facts);
        let changed = all.iter().filter_map(|fact| match &fact.event {
            LoopEvent::Write {
                changed,
                before,
                result: WriteResult::Written { version, is_unchanged },
                ..
            } => {
                assert!(before.as_ref().is_some_and(|before| before.is_before(version)) && !is_unchanged);
                let changed = changed.as_ref().expect("it was cached");
                let data = changed.iter().find(|change| change.path.starts_with("data"));
                data.map(|data| (data.path.clone(), data.before.clone(), data.after.clone()))
            }
            _ => None,
        });
        let changed: Vec<_> = changed.collect();
        assert_eq!(changed.len(), 20);
        assert_eq!(changed[0], ("data".into(), None, Some(r#"{"n":"1"}"#.into())));
        assert_eq!(changed[1], ("data.n".into(), Some("1".into()), Some("2".into())));
    });
}

/// Writes the same each time.
async fn write_again(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ConfigMap>()?.get(&key).is_some() {
        set_data(&key, &cx, json!({"same": "value"})).await?;
    }
    Ok(Action::requeue_after(SECOND))
}

#[test]
fn a_write_that_changed_nothing_is_named() {
    World::run(1, async |world| {
        create_map(&world, "a").await;
        let running = run(&world, Controller::of::<ConfigMap>(.., "again", write_again));
        let mut facts = running.runtime.facts().subscribe();
        sleep(10 * SECOND + SECOND / 2).await;
        let all = heard(&mut facts);
        let (mut writes, mut unchanged) = (0, 0);
        for fact in &all {
            match &fact.event {
                LoopEvent::Write { .. } => writes += 1,
                LoopEvent::Finding { finding: Finding::UnchangedWrite { resource, object }, .. } => {
                    assert_eq!((&**resource, object.name()), ("configmaps", "a"));
                    unchanged += 1;
                }
                _ => {}
            }
        }
        assert!(writes > 5, "{writes}");
        assert_eq!(unchanged, writes - 1, "only the first one changed something");
        let labels = [("controller", "again")];
        assert_eq!(running.metric("setpoint_controller_unchanged_writes_total", &labels), unchanged);
        assert_eq!(running.metric("setpoint_controller_self_triggered_total", &labels), 0);
    });
}

#[test]
fn refused_and_lost_writes_are_told_as_such() {
    World::run(1, async |world| {
        let running = run(&world, Controller::of::<ConfigMap>(.., "children", one_child).owns::<Secret>(..));
        let mut facts = running.runtime.facts().subscribe();
        world.faults().on(Match::create("secrets").nth(1)).refuse(Refusal::Conflict);
        world.faults().on(Match::create("secrets").nth(2)).lose_response();
        create_map(&world, "a").await;
        sleep(60 * SECOND).await;
        let results = heard(&mut facts).into_iter().filter_map(|fact| match &fact.event {
            LoopEvent::Write { result, .. } => Some(result.clone()),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        assert!(
            matches!(&results[0], WriteResult::Refused { code: 409, reason } if reason == "Conflict"),
            "{results:?}"
        );
        assert_eq!(results[1..], [WriteResult::Unknown], "and it is found: no third write");
    });
}

#[test]
fn leadership_and_terms_are_told() {
    World::run(1, async |world| {
        let runtime =
            Runtime::with(world.client_named("controller"), world.env().clone(), Metrics::default());
        let mut facts = runtime.facts().subscribe();
        let (shutdown, lease) = (runtime.shutdown().clone(), LeaseConfig::new("default", "lease"));
        let manager = Manager::with(runtime).leader_election(lease);
        let manager = manager.controller(Controller::of::<ConfigMap>(.., "children", one_child));
        let running = world.env().spawn(manager.run());
        sleep(10 * SECOND).await;
        shutdown.cancel();
        running.await.unwrap().unwrap();
        let mut told = Vec::new();
        for fact in heard(&mut facts) {
            match &fact.event {
                LoopEvent::Leadership { lease, state, .. } => {
                    assert_eq!(&**lease, "default/lease");
                    told.push(match state {
                        LeadershipState::Leading => "leads".to_owned(),
                        _ => "follows".to_owned(),
                    });
                }
                LoopEvent::Work { state, .. } => told.push(format!("{state:?}")),
                _ => {}
            }
        }
        told.dedup();
        assert_eq!(told, ["follows", "leads", "CatchingUp", "Working", "Stopped", "follows"]);
    });
}

#[test]
fn a_reconcile_that_is_cut_off_is_told_to_have_ended() {
    World::run(1, async |world| {
        let stuck = |_: ObjectKey, _: Context| std::future::pending::<Result<Action, ReconcileError>>();
        let running = run(&world, Controller::of::<ConfigMap>(.., "stuck", stuck));
        let mut facts = running.runtime.facts().subscribe();
        create_map(&world, "a").await;
        sleep(SECOND).await;
        drop(running);
        sleep(SECOND).await;
        let ended = heard(&mut facts).into_iter().any(|fact| {
            matches!(fact.event, LoopEvent::ReconcileEnded { result: ReconcileResult::CutOff, .. })
        });
        assert!(ended);
    });
}

#[test]
fn two_runs_of_one_seed_tell_the_same() {
    let tell = || {
        World::run(7, async |world| {
            let running =
                run(&world, Controller::of::<ConfigMap>(.., "children", one_child).owns::<Secret>(..));
            let mut facts = running.runtime.facts().subscribe();
            create_map(&world, "a").await;
            maps(&world).delete("a", &Default::default()).await.unwrap();
            sleep(10 * SECOND).await;
            serde_json::to_string(&heard(&mut facts).iter().map(|fact| (**fact).clone()).collect::<Vec<_>>())
                .unwrap()
        })
    };
    assert_eq!(tell(), tell());
}

#[test]
fn lists_and_watches_that_end_are_told_whether_they_are_shut_down_or_dropped() {
    World::run(1, async |world| {
        let facts = setpoint::Facts::new(world.env().clone());
        let mut listening = facts.subscribe();
        let factory = || {
            let factory = SharedInformerFactory::new(world.client()).env(world.env().clone());
            let factory = factory.with_facts(&facts);
            factory.informer::<ConfigMap>();
            factory.start();
            factory
        };
        let (shut_down, dropped) = (factory(), factory());
        sleep(SECOND).await;
        let caches: Vec<u64> = facts.state(0).caches.iter().map(|cache| cache.id).collect();
        assert_eq!(caches.len(), 2, "a resource may have several caches: {caches:?}");
        let mut stopped = || -> Vec<u64> {
            let stopped = heard(&mut listening).into_iter().filter_map(|fact| match &fact.event {
                LoopEvent::Reflector { cache, state: ReflectorState::Stopped } => Some(cache.id),
                _ => None,
            });
            stopped.collect()
        };
        assert_eq!(stopped(), [0; 0]);
        shut_down.shutdown().await;
        assert_eq!(stopped(), [caches[0]]);
        drop(dropped);
        sleep(SECOND).await;
        assert_eq!(stopped(), [caches[1]]);
    });
}
