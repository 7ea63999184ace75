//! What the Foo controller's loop tells of itself, for the screen.

use example_foo::Foo;
use setpoint::facts::{CacheChange, Fact, LoopEvent, ReconcileResult, Subscription};
use setpoint::kube::Resource;
use setpoint::{Cause, Facts};
use setpoint_env::{Env, Task};

use super::notices::Notices;
use super::stage::Stage;

/// From now on, what the controller does is noticed, as long as the task lives.
pub(crate) fn listen(facts: &Facts, env: &Env, notices: &Notices) -> Task<()> {
    env.spawn(follow(facts.subscribe(), notices.clone()))
}

async fn follow(mut facts: Subscription, notices: Notices) {
    while let Some(fact) = facts.next().await {
        tell(&fact, &notices);
    }
}

fn tell(fact: &Fact, notices: &Notices) {
    let add = |stage, text| notices.add_at(fact.at, stage, text);
    match &fact.event {
        LoopEvent::Received { cache, changes, .. } if cache.resource.starts_with(&*Foo::plural(&())) => {
            changes.first.iter().for_each(|change| add(Stage::Reflector, brought(change)));
        }
        LoopEvent::Added { key, reason, is_coalesced: false, .. } => {
            add(Stage::Queue, format!("{key} enqueued: {reason}"));
        }
        LoopEvent::ReconcileStarted { key, .. } => add(Stage::Reconcile, format!("a worker takes {key}")),
        LoopEvent::ReconcileEnded { key, result: ReconcileResult::Failed { error }, .. } => {
            add(Stage::Reconcile, format!("{key} requeued with backoff: {error}"));
        }
        _ => {}
    }
}

fn brought(CacheChange { key, cause, version }: &CacheChange) -> String {
    let version = version.as_ref().map(ToString::to_string).unwrap_or_default();
    match cause {
        Cause::Deleted => format!("the watch delivers the deletion of foo/{}", key.name()),
        _ => format!("the watch delivers foo/{} at resourceVersion {version}", key.name()),
    }
}
