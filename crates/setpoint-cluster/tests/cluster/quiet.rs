//! A cluster at rest.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::Service;
use setpoint::kube::Api;
use setpoint_cluster::Cluster;
use setpoint_sim::{What, World};

use crate::support::{create, field, object, pod, pods, until};

#[test]
fn nothing_is_written_at_rest_but_leases_and_heartbeats() {
    World::run(7, async |world| {
        let cluster = Cluster::builder(world.client_named("cluster"))
            .env(world.env().clone())
            .root_ca("CA")
            .nodes(3)
            .start();
        let api = pods(world.direct());
        for n in 0..10 {
            create(&api, &pod(&format!("p{n}"), json!({}), json!({}))).await;
        }
        let big =
            json!({"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1000"}}}]});
        create(&api, &pod("too-big", json!({}), big)).await;
        let services: Api<Service> = Api::namespaced(world.direct(), "default");
        create(&services, &object(json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))).await;
        until("all run", async || {
            let list = api.list(&Default::default()).await.unwrap();
            let running = list.items.iter().filter(|pod| field(*pod, "/status/phase") == "Running").count();
            (running == 10).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let before = world.trace().entries().len();
        tokio::time::sleep(Duration::from_secs(600)).await;
        let trace = world.trace();
        let writes: Vec<String> = trace.entries()[before..]
            .iter()
            .filter(|entry| matches!(entry.what, What::Sent { .. }) && entry.request.verb.is_write())
            .filter(|entry| {
                !matches!(&*entry.request.group_resource(), "leases.coordination.k8s.io" | "nodes")
            })
            .map(|entry| format!("{:?}", entry.request))
            .collect();
        assert!(writes.is_empty(), "{writes:#?}");
        cluster.stop().await.unwrap();
    });
}
