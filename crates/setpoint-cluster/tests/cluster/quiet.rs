//! A cluster at rest.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use setpoint::k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use setpoint::k8s_openapi::api::batch::v1::{CronJob, Job};
use setpoint::k8s_openapi::api::core::v1::{
    Endpoints, Namespace, PersistentVolumeClaim, ReplicationController, ResourceQuota, Secret, Service,
};
use setpoint::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_apiserver::{SigningKey, TokenSigner};
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

/// Something for every other controller, as it is when it has come to rest.
async fn live_with_state(world: &World) {
    let client = || world.direct();
    let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let workload = |name: &str, spec: serde_json::Value| {
        let mut object = json!({"metadata": {"name": name}, "spec": spec});
        object["spec"]["template"] = template(name);
        if name != "old" {
            object["spec"]["selector"] = json!({"matchLabels": {"app": name}});
        }
        object
    };
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claims = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    let sets: Api<StatefulSet> = Api::namespaced(client(), "default");
    let set = json!({"replicas": 2, "serviceName": "db", "volumeClaimTemplates": claims,
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"}});
    create(&sets, &object(workload("db", set))).await;
    let daemons: Api<DaemonSet> = Api::namespaced(client(), "default");
    create(&daemons, &object(workload("agent", json!({})))).await;
    let old: Api<ReplicationController> = Api::namespaced(client(), "default");
    create(&old, &object(workload("old", json!({"replicas": 1})))).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client(), "default");
    for (name, app) in [("db", "db"), ("nobody", "nobody")] {
        let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}});
        create(&budgets, &object(json!({"metadata": {"name": name}, "spec": spec}))).await;
    }
    let unused: Api<PersistentVolumeClaim> = Api::namespaced(client(), "default");
    create(&unused, &object(json!({"metadata": {"name": "unused"}, "spec": claim}))).await;
    let services: Api<Service> = Api::namespaced(client(), "default");
    create(&services, &object(json!({"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}}))).await;
    let endpoints: Api<Endpoints> = Api::namespaced(client(), "default");
    let subsets = json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}]);
    create(&endpoints, &object(json!({"metadata": {"name": "own"}, "subsets": subsets}))).await;
    live_with_limits(world).await;
    until("they are up", async || {
        let (set, daemon) = (sets.get("db").await.unwrap(), daemons.get("agent").await.unwrap());
        let old = old.get("old").await.unwrap();
        let is_up = field(&set, "/status/availableReplicas") == 2
            && field(&daemon, "/status/numberAvailable") == 3
            && field(&old, "/status/availableReplicas") == 1;
        is_up.then_some(())
    })
    .await;
}

/// A quota, a token, and an autoscaler whose target is as large as it should be.
async fn live_with_limits(world: &World) {
    let quotas: Api<ResourceQuota> = Api::namespaced(world.direct(), "default");
    let hard = json!({"pods": "100", "services": "9", "count/deployments.apps": "9", "configmaps": "9"});
    create(&quotas, &object(json!({"metadata": {"name": "limits"}, "spec": {"hard": hard, "scopes": []}})))
        .await;
    let secrets: Api<Secret> = Api::namespaced(world.direct(), "default");
    let annotations = json!({"kubernetes.io/service-account.name": "default"});
    let metadata = json!({"name": "token", "annotations": annotations});
    create(&secrets, &object(json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"})))
        .await;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(world.direct(), "default");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metric = json!({"type": "External", "external": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 9, "metrics": [metric]});
    let metadata = json!({"name": "web", "annotations": {"sim.setpoint.dev/metric-load": "4"}});
    create(&autoscalers, &object(json!({"metadata": metadata, "spec": spec}))).await;
}

#[test]
fn nothing_is_written_at_rest_but_leases_and_heartbeats() {
    World::run(7, async |world| {
        let cluster = Cluster::builder(world.client_named("cluster"))
            .env(world.env().clone())
            .root_ca("CA")
            .token_signer(TokenSigner::new(SigningKey::generate()))
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
        live_with_state(&world).await;
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
