//! Namespaces from their beginning to their end.

use std::time::Duration;

use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, Patch, PatchParams};
use setpoint_cluster::Cluster;

use crate::support::{create, field, object, pod, until};

async fn cluster() -> (Cluster, Api<Namespace>) {
    let cluster = Cluster::in_process_with(|builder| builder.root_ca("CERTIFICATE")).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, &object(json!({"metadata": {"name": "team"}}))).await;
    (cluster, namespaces)
}

#[tokio::test(start_paused = true)]
async fn every_namespace_has_its_account_and_its_certificate() {
    let (cluster, _) = cluster().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "team");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "team");
    until("the account", async || accounts.get_opt("default").await.unwrap()).await;
    let published = until("the map", async || maps.get_opt("kube-root-ca.crt").await.unwrap()).await;
    assert_eq!(field(&published, "/data"), json!({"ca.crt": "CERTIFICATE"}));
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    until("the account again", async || accounts.get_opt("default").await.unwrap()).await;
    let wrong = Patch::Merge(json!({"data": {"ca.crt": "another"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &wrong).await.unwrap();
    until("the map again", async || {
        let map = maps.get("kube-root-ca.crt").await.unwrap();
        (field(&map, "/data") == json!({"ca.crt": "CERTIFICATE"})).then_some(())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_empties_itself_and_goes() {
    let (cluster, namespaces) = cluster().await;
    let pods = Api::namespaced(cluster.client(), "team");
    create(&pods, &pod("web", json!({}), json!({}))).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "team");
    create(&secrets, &object(json!({"metadata": {"name": "key"}}))).await;
    until("the pod runs", async || {
        let pod = pods.get("web").await.unwrap();
        (field(&pod, "/status/phase") == "Running").then_some(())
    })
    .await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    until("gone", async || namespaces.get_opt("team").await.unwrap().is_none().then_some(())).await;
    assert!(pods.get_opt("web").await.unwrap().is_none() && secrets.get_opt("key").await.unwrap().is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_go_says_what_holds_it() {
    let (cluster, namespaces) = cluster().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "team");
    create(&maps, &object(json!({"metadata": {"name": "held", "finalizers": ["test/hold"]}}))).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let held = until("conditions", async || {
        let namespace = namespaces.get("team").await.unwrap();
        field(&namespace, "/status/conditions/4/message").is_string().then_some(namespace)
    })
    .await;
    let message = |n: usize| field(&held, &format!("/status/conditions/{n}/message"));
    assert_eq!(message(3), "Some resources are remaining: configmaps. has 1 resource instances");
    assert_eq!(
        message(4),
        "Some content in the namespace has finalizers remaining: test/hold in 1 resource instances"
    );
    assert_eq!(field(&held, "/status/phase"), "Terminating");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free).await.unwrap();
    until("gone", async || namespaces.get_opt("team").await.unwrap().is_none().then_some(())).await;
    cluster.stop().await.unwrap();
}
