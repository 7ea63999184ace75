//! The endpoints of services.

use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::{Pod, Service};
use setpoint::k8s_openapi::api::discovery::v1::EndpointSlice;
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, ListParams};
use setpoint_cluster::Cluster;

use crate::support::{create, field, object, pod, pods, until};

async fn slices(cluster: &Cluster) -> Vec<EndpointSlice> {
    let api: Api<EndpointSlice> = Api::namespaced(cluster.client(), "default");
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    api.list(&of_web).await.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn a_service_has_the_addresses_of_the_pods_that_it_selects() {
    let cluster = Cluster::in_process().await.unwrap();
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    create(
        &services,
        &object(json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}})),
    )
    .await;
    let labelled = |name: &str, app: &str| -> Pod {
        let mut pod = pod(name, json!({}), json!({}));
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        pod
    };
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        create(&pods(cluster.client()), &labelled(name, app)).await;
    }
    let endpoints = until("two endpoints", async || {
        let found = slices(&cluster).await;
        let endpoints = field(found.first()?, "/endpoints");
        let are_ready =
            endpoints.as_array()?.iter().filter(|e| e["conditions"]["ready"] == true).count() == 2;
        are_ready.then_some(found)
    })
    .await;
    let [slice] = &endpoints[..] else { panic!("one slice") };
    assert_eq!(field(slice, "/ports/0/port"), 8080);
    assert_eq!(field(slice, "/endpoints/0/targetRef/name"), "a");
    assert_eq!(field(slice, "/endpoints/0/nodeName"), "node-1");
    pods(cluster.client()).delete("a", &DeleteParams::default()).await.unwrap();
    until("one endpoint", async || {
        let found = slices(&cluster).await;
        (field(&found[0], "/endpoints").as_array()?.len() == 1).then_some(())
    })
    .await;
    services.delete("web", &DeleteParams::default()).await.unwrap();
    until("no slice", async || slices(&cluster).await.is_empty().then_some(())).await;
    cluster.stop().await.unwrap();
}
