//! The endpoints of services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use setpoint::k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use setpoint::k8s_openapi::api::discovery::v1::EndpointSlice;
use setpoint::kube::Api;
use setpoint::kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use setpoint_cluster::Cluster;
use setpoint_sim::World;

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
    let mut names: Vec<_> = (0..2).map(|n| field(slice, &format!("/endpoints/{n}/targetRef/name"))).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["a", "b"]);
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

#[tokio::test(start_paused = true)]
async fn a_service_has_endpoints_beside_its_slices() {
    let cluster = Cluster::in_process().await.unwrap();
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let all: Api<Endpoints> = Api::namespaced(cluster.client(), "default");
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let spec = json!({"selector": {"app": "web"}, "ports": ports});
    let web = json!({"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": spec});
    create(&services, &object(web)).await;
    let labelled = |name: &str, annotations: serde_json::Value| -> Pod {
        let mut pod = pod(name, annotations, json!({}));
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod
    };
    create(&pods(cluster.client()), &labelled("a", json!({}))).await;
    let late = json!({setpoint_cluster::node::READY_AFTER: "1h"});
    create(&pods(cluster.client()), &labelled("b", late)).await;
    let found = until("both addresses", async || {
        let found = all.get_opt("web").await.unwrap()?;
        let is_there = field(&found, "/subsets/0/addresses/0").is_object()
            && field(&found, "/subsets/0/notReadyAddresses/0").is_object();
        is_there.then_some(found)
    })
    .await;
    assert_eq!(field(&found, "/subsets/0/addresses/0/targetRef/name"), "a");
    assert_eq!(field(&found, "/subsets/0/notReadyAddresses/0/targetRef/name"), "b");
    assert_eq!(field(&found, "/subsets/0/ports/0"), json!({"name": "http", "port": 8080, "protocol": "TCP"}));
    let manager = "endpoints.kubernetes.io/managed-by";
    assert_eq!(field(&found, "/metadata/labels"), json!({"team": "a", manager: "endpoint-controller"}));
    // What is deleted comes back; what belongs to nobody here is left alone, and goes with its Service.
    all.delete("web", &DeleteParams::default()).await.unwrap();
    until("again", async || all.get_opt("web").await.unwrap()).await;
    create(&services, &object(json!({"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}}))).await;
    let own = json!({"metadata": {"name": "own"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]});
    let own = create(&all, &object(own)).await;
    create(&all, &object(json!({"metadata": {"name": "no-service"}}))).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(all.get("own").await.unwrap(), own);
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client(), "default");
    let of_own = ListParams::default().labels("kubernetes.io/service-name=own");
    let mirror = slices.list(&of_own).await.unwrap().items.remove(0);
    assert_eq!(field(&mirror, "/endpoints/0/addresses"), json!(["192.0.2.1"]));
    let manager = mirror.metadata.labels.unwrap().remove("endpointslice.kubernetes.io/managed-by").unwrap();
    assert_eq!(manager, "endpointslicemirroring-controller.k8s.io");
    for name in ["web", "own"] {
        services.delete(name, &DeleteParams::default()).await.unwrap();
        until("gone", async || all.get_opt(name).await.unwrap().is_none().then_some(())).await;
    }
    until("no mirror", async || slices.list(&of_own).await.unwrap().items.is_empty().then_some(())).await;
    all.get("no-service").await.unwrap();
    cluster.stop().await.unwrap();
}

#[test]
fn an_endpoint_is_in_a_slice_at_every_moment() {
    World::run(9, async |world| {
        let cluster =
            Cluster::builder(world.client_named("cluster")).env(world.env().clone()).nodes(2).start();
        let services: Api<Service> = Api::namespaced(world.direct(), "default");
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        create(&services, &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
        let labelled = |name: String| {
            let mut pod = pod(&name, json!({}), json!({}));
            pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
            pod
        };
        for n in 1..=150 {
            create(&pods(world.direct()), &labelled(format!("p{n:03}"))).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        let all: Api<EndpointSlice> = Api::namespaced(world.direct(), "default");
        let least: Arc<Mutex<usize>> = Arc::new(Mutex::new(usize::MAX));
        let seen = least.clone();
        let watch = world.env().spawn(async move {
            let list = all.list(&ListParams::default()).await.unwrap();
            let version = list.metadata.resource_version.unwrap();
            let mut known: BTreeMap<_, _> =
                list.items.into_iter().map(|slice| (slice.metadata.name.clone(), slice)).collect();
            let mut events = all.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                        known.insert(slice.metadata.name.clone(), slice);
                    }
                    WatchEvent::Deleted(slice) => drop(known.remove(&slice.metadata.name)),
                    _ => continue,
                }
                let old = known.values().flat_map(|slice| slice.endpoints.iter().flatten());
                let old: BTreeSet<_> = old.filter_map(|e| e.target_ref.as_ref()?.name.clone()).collect();
                let old = old.iter().filter(|name| *name != "p000").count();
                let mut least = seen.lock().unwrap();
                *least = old.min(*least);
            }
        });
        create(&pods(world.direct()), &labelled("p000".into())).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        drop(watch);
        assert_eq!(*least.lock().unwrap(), 150);
        cluster.stop().await.unwrap();
    });
}
