//! The Foo controller, with every fault at every point. Somebody plays the Deployment controller.

use example_foo::{Foo, FooController, RESYNC, WORKERS, crd};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint::{Action, Context, Controller, Manager, ObjectKey, ReconcileError, SharedInformerFactory};
use setpoint_sim::{Explorer, Scenario, World, explore};
use tokio_util::sync::CancellationToken;

fn foo(replicas: i32) -> Foo {
    let spec = json!({"deploymentName": "web", "replicas": replicas});
    let metadata = json!({"name": "web", "namespace": "default"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Foo")
}

/// Plays the Deployment controller: every replica is available at once.
async fn all_available(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Some(deployment) = cx.lister::<Deployment>()?.get(&key) else { return Ok(Action::done()) };
    let replicas = deployment.spec.replicas;
    let status =
        json!({"status": {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
    let deployments: Api<Deployment> = Api::namespaced(cx.client(), key.namespace().unwrap_or_default());
    deployments.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(Action::done())
}

fn scenario(_: &World) -> Scenario {
    Scenario::new()
        .given(&crd())
        .controller("foo", |seat| async move {
            let (client, env) = (seat.client(), seat.env());
            let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).resync(RESYNC);
            seat.listen(factory.facts());
            FooController::new(client, &factory, env).run(WORKERS, CancellationToken::new()).await
        })
        .beside("deployment-controller", |seat| async move {
            let controller = Controller::of::<Deployment>(.., "deployments", all_available);
            Manager::with(seat.runtime()).controller(controller).run().await
        })
        .apply(&foo(1))
        .apply(&foo(3))
        .goal("the Deployment has three replicas", |view| {
            let deployment: Option<Deployment> = view.get(Some("default"), "web");
            let replicas = deployment.and_then(|deployment| deployment.spec.replicas);
            if replicas == Some(3) { Ok(()) } else { Err(format!("it has {replicas:?}")) }
        })
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}

#[test]
#[allow(clippy::print_stdout, reason = "what it prints is compared with other runs of it")]
fn a_seed_gives_the_same_run_again_and_another_seed_another_order() {
    let seeds = std::env::var("SETPOINT_SIM_SEEDS").map_or(10, |seeds| seeds.parse().expect("a number"));
    let explorer = Explorer::new("foo", scenario);
    let digest = explorer.check_determinism(0..seeds).unwrap_or_else(|error| panic!("{error}"));
    assert!((1..seeds).any(|seed| explorer.hash(seed) != explorer.hash(0)));
    println!("all seeds: {digest:016x}");
}
