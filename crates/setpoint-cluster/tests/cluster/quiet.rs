//! A cluster at rest.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::k8s_openapi::api::batch::v1::{CronJob, Job};
use setpoint::k8s_openapi::api::core::v1::{Namespace, Service};
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_cluster::Cluster;
use setpoint_sim::{What, World};

use crate::support::{create, field, object, pod, pods, until};

/// A rollout, a Job that ends, a CronJob that is suspended, and a namespace that comes and goes.
async fn live_a_little(world: &World) {
    let deployments: Api<Deployment> = Api::namespaced(world.direct(), "default");
    let template = |policy: &str| {
        json!({"metadata": {"labels": {"app": "web"}},
               "spec": {"restartPolicy": policy, "containers": [{"name": "a", "image": "b"}]}})
    };
    let spec =
        json!({"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template("Always")});
    create(&deployments, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let work = json!({"template": template("Never")});
    let jobs: Api<Job> = Api::namespaced(world.direct(), "default");
    create(&jobs, &object(json!({"metadata": {"name": "work"}, "spec": work}))).await;
    let cron_jobs: Api<CronJob> = Api::namespaced(world.direct(), "default");
    let spec = json!({"schedule": "* * * * *", "suspend": true, "jobTemplate": {"spec": work}});
    create(&cron_jobs, &object(json!({"metadata": {"name": "tick"}, "spec": spec}))).await;
    let namespaces: Api<Namespace> = Api::all(world.direct());
    create(&namespaces, &object(json!({"metadata": {"name": "team"}}))).await;
    create(&Api::namespaced(world.direct(), "team"), &pod("guest", json!({}), json!({}))).await;
    until("the Deployment is up, the Job is done", async || {
        let (web, work) = (deployments.get("web").await.unwrap(), jobs.get("work").await.unwrap());
        (field(&web, "/status/availableReplicas") == 4 && field(&work, "/status/succeeded") == 1)
            .then_some(())
    })
    .await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "c"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", async || {
        namespaces.get_opt("team").await.unwrap().is_none().then_some(())
    })
    .await;
}

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
            (running >= 10).then_some(())
        })
        .await;
        live_a_little(&world).await;
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
