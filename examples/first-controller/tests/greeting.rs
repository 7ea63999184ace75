//! The controller against a server in this process, on virtual time.

use std::time::Duration;

use example_first_controller::{ANNOTATION, controller};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use setpoint::Metrics;
use setpoint::controller::Runtime;
use setpoint_sim::World;
use tokio::time::sleep;

#[test]
fn a_greeting_is_kept_whatever_happens_to_it() {
    World::run(1, async |world| {
        let runtime = Runtime::with(world.client(), world.env().clone(), Metrics::default());
        let _running = world.env().spawn(async move { controller().run(&runtime).await });

        let namespaces: Api<Namespace> = Api::all(world.direct());
        let annotate = json!({"metadata": {"annotations": {ANNOTATION: "hello"}}});
        namespaces.patch("default", &PatchParams::default(), &Patch::Merge(annotate)).await.unwrap();
        sleep(Duration::from_secs(1)).await; // takes no time: the clock is virtual

        let maps: Api<ConfigMap> = Api::namespaced(world.direct(), "default");
        assert_eq!(maps.get("greeting").await.unwrap().data.unwrap()["text"], "hello");

        maps.delete("greeting", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(maps.get("greeting").await.is_ok(), "it came back");
    });
}

#[test]
fn an_answer_that_is_lost_does_no_harm() {
    World::run(7, async |world| {
        world.faults().on(setpoint_sim::Match::writes().nth(1)).lose_response();
        let runtime = Runtime::with(world.client(), world.env().clone(), Metrics::default());
        let _running = world.env().spawn(async move { controller().run(&runtime).await });
        let namespaces: Api<Namespace> = Api::all(world.direct());
        let annotate = json!({"metadata": {"annotations": {ANNOTATION: "hello"}}});
        namespaces.patch("default", &PatchParams::default(), &Patch::Merge(annotate)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let maps: Api<ConfigMap> = Api::namespaced(world.direct(), "default");
        assert_eq!(maps.get("greeting").await.unwrap().data.unwrap()["text"], "hello");
    });
}
