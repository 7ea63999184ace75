//! The example `inventory`.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use setpoint_sim::World;
use tokio::time::sleep;

use crate::support::{SECOND, maps, run, secrets};

#[allow(dead_code, reason = "`main` is for people")]
#[path = "../../examples/inventory.rs"]
mod example;

async fn ask(world: &World, name: &str) {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"inventory": "yes"}},
        "data": {"version": "v1", "plural": "secrets"},
    }))
    .unwrap();
    maps(world).create(&PostParams::default(), &map).await.unwrap();
    sleep(SECOND).await;
}

async fn make(world: &World, name: &str) {
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    secrets(world).create(&PostParams::default(), &secret).await.unwrap();
    sleep(SECOND).await;
}

async fn count(world: &World, name: &str) -> String {
    maps(world).get(name).await.unwrap().data.unwrap().remove("count").unwrap()
}

#[test]
fn kinds_that_are_named_while_it_runs_are_counted() {
    World::run(1, async |world| {
        let running = run(&world, example::controller());
        make(&world, "before").await;
        ask(&world, "one").await;
        assert_eq!(count(&world, "one").await, "1");
        ask(&world, "two").await;
        make(&world, "after").await;
        assert_eq!((&*count(&world, "one").await, &*count(&world, "two").await), ("2", "2"));

        maps(&world).delete("one", &DeleteParams::default()).await.unwrap();
        sleep(SECOND).await;
        make(&world, "later").await;
        assert_eq!(count(&world, "two").await, "3", "the watch stays for the other");
        let is_watched = || running.runtime.informers().synced_by_kind().contains_key("secrets");
        assert!(is_watched());
        maps(&world).delete("two", &DeleteParams::default()).await.unwrap();
        sleep(SECOND).await;
        assert!(!is_watched());
    });
}
