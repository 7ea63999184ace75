//! What a healthy cluster logs: nothing that anybody has to look into.

use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::k8s_openapi::api::apps::v1::Deployment;
use setpoint::k8s_openapi::api::batch::v1::Job;
use setpoint::k8s_openapi::api::core::v1::{Namespace, Service};
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_cluster::Cluster;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::support::{create, field, object, until};

/// Keeps what is logged as a warning or an error.
#[derive(Clone, Default)]
struct Loud(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Loud {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut words = Words(event.metadata().target().to_owned());
            event.record(&mut words);
            self.0.lock().push(words.0);
        }
    }
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

fn deployment(image: &str) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]},
        }},
    })
}

async fn rolled_out(api: &Api<Deployment>, generation: i64) {
    until("rolled out", async || {
        let web = api.get("web").await.unwrap();
        let is_done = field(&web, "/status/observedGeneration") == generation
            && field(&web, "/status/updatedReplicas") == 5
            && field(&web, "/status/availableReplicas") == 5
            && field(&web, "/status/replicas") == 5;
        is_done.then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_healthy_cluster_warns_of_nothing() {
    let loud = Loud::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(loud.clone()));
    let cluster = Cluster::in_process_with(|builder| builder.root_ca("CA").nodes(2)).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, &object(json!({"metadata": {"name": "team"}}))).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "team");
    create(&deployments, &object(deployment("v1"))).await;
    let services: Api<Service> = Api::namespaced(cluster.client(), "team");
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    create(&services, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), "team");
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    create(&jobs, &object(json!({"metadata": {"name": "work"}, "spec": {"template": template}}))).await;
    rolled_out(&deployments, 1).await;
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(deployment("v2"))).await.unwrap();
    rolled_out(&deployments, 2).await;
    // While the pods of one Deployment go, those of another come.
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    create(&deployments, &object(deployment("v3"))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    until("gone", async || namespaces.get_opt("team").await.unwrap().is_none().then_some(())).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.stop().await.unwrap();
    assert_eq!(*loud.0.lock(), Vec::<String>::new());
}
