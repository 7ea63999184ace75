//! The page that answers "why was this reconciled?" shows what this prints.

use std::fmt::Write;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint::facts::{Finding, LoopEvent, Subscription};
use setpoint::{Action, Context, Controller, ObjectKey, ReconcileError};
use setpoint_sim::{Match, World};
use tokio::time::sleep;

use crate::support::{SECOND, create_map, run};

const PAGE: &str = include_str!("../../../../docs/why-was-it-reconciled.md");
const THIS: &str = include_str!("why.rs");

async fn stamp(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ConfigMap>()?.get(&key).is_some() {
        let maps: Api<ConfigMap> = Api::default_namespaced(cx.client());
        let last = json!({"data": {"lastReconcile": cx.reconcile_id().to_string()}});
        let params = PatchParams { field_manager: Some("stamp".into()), ..PatchParams::default() };
        maps.patch(key.name(), &params, &Patch::Merge(last)).await?;
    }
    Ok(Action::done())
}

/// Prints until nothing is told any more.
fn print(facts: &mut Subscription, out: &mut String) -> std::fmt::Result {
    while let Some(fact) = facts.try_next() {
        match &fact.event {
            LoopEvent::Added { key, reason, .. } => writeln!(out, "queued     {key}: {reason}")?,
            LoopEvent::ReconcileStarted { key, id, reasons, .. } => {
                writeln!(out, "reconcile  {key} #{id}: {reasons}")?;
            }
            LoopEvent::Write { object: Some(object), method, changed, .. } => {
                let fields: Vec<&str> = changed.iter().flatten().map(|field| field.path.as_str()).collect();
                writeln!(out, "wrote      {object} ({method}): {}", fields.join(", "))?;
            }
            LoopEvent::Held { key, until, .. } => {
                writeln!(out, "held       {key} until {} is at what it wrote", until[0].cache.resource)?;
            }
            LoopEvent::Finding { finding: Finding::SelfTriggered { times, object, .. }, .. } => {
                writeln!(out, "FOUND      a loop: only its own writes to {object}, {times} times in a row")?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn the_page_shows_the_code_and_what_it_prints() {
    let mut out = String::new();
    World::run(1, async |world| {
        // While a loop takes no time, virtual time stands still.
        world.faults().on(Match::patch("configmaps")).delay_response(SECOND / 100).always();
        let running = run(&world, Controller::of::<ConfigMap>(.., "stamp", stamp));
        let mut facts = running.runtime.facts().subscribe();
        create_map(&world, "web").await;
        let (mut all, mut round) = (String::new(), 0);
        while round < 1000 && !all.contains("FOUND") {
            sleep(SECOND / 1000).await;
            print(&mut facts, &mut all).unwrap();
            round += 1;
        }
        out = all;
    });
    let end =
        out.find("FOUND").and_then(|at| Some(at + out[at..].find('\n')? + 1)).expect("the loop is found");
    let printed = &out[..end];
    assert!(PAGE.contains(printed), "the page must show this:\n{printed}");
    let blocks = PAGE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    assert!(blocks.map(|block| assert!(THIS.contains(block), "it is not here: {block}")).count() > 0);
}
