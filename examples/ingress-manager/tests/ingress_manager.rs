//! The ingress manager against a server in this process, on virtual time.

use example_ingress_manager::{ANNOTATION, Settings, controller};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use setpoint::Metrics;
use setpoint::controller::{ControllerError, Runtime};
use setpoint_env::Task;
use setpoint_sim::{Match, World};
use std::time::Duration;
use tokio::time::sleep;

/// Longer than anything takes on virtual time.
const SETTLED: Duration = Duration::from_secs(30);

fn start(world: &World) -> Task<Result<(), ControllerError>> {
    let runtime = Runtime::with(world.client_named("controller"), world.env().clone(), Metrics::default());
    let controller = controller(Settings { ingress_class: Some("nginx".into()) });
    world.env().spawn(async move { controller.run(&runtime).await })
}

fn services(world: &World) -> Api<Service> {
    Api::default_namespaced(world.direct())
}

fn ingresses(world: &World) -> Api<Ingress> {
    Api::default_namespaced(world.direct())
}

async fn create_service(world: &World, annotation: Option<&str>, ports: Value) -> Service {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": annotation.map(|value| json!({ANNOTATION: value}))},
        "spec": {"selector": {"app": "web"}, "clusterIP": "None", "ports": ports},
    }))
    .unwrap();
    services(world).create(&PostParams::default(), &service).await.unwrap()
}

fn port_80() -> Value {
    json!([{"name": "http", "port": 80}, {"name": "metrics", "port": 9090}])
}

async fn annotate(world: &World, value: Option<&str>) {
    let patch = json!({"metadata": {"annotations": {ANNOTATION: value}}});
    services(world).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    sleep(SETTLED).await;
}

async fn ingress(world: &World) -> Option<Ingress> {
    sleep(SETTLED).await;
    ingresses(world).get_opt("web").await.unwrap()
}

async fn reasons(world: &World) -> Vec<String> {
    sleep(SETTLED).await;
    let events: Api<Event> = Api::default_namespaced(world.direct());
    events.list(&ListParams::default()).await.unwrap().into_iter().filter_map(|event| event.reason).collect()
}

#[test]
fn an_annotated_service_gets_an_ingress_that_routes_to_it() {
    World::run(1, async |world| {
        let _controller = start(&world);
        let service = create_service(&world, Some("true"), port_80()).await;
        let ingress = ingress(&world).await.expect("it was made");
        let owner = &ingress.owner_references()[0];
        assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Service", service.meta().uid.as_ref()));
        let spec = ingress.spec.unwrap();
        assert_eq!(spec.ingress_class_name.as_deref(), Some("nginx"));
        let rule = spec.rules.unwrap()[0].http.clone().unwrap().paths[0].clone();
        let backend = rule.backend.service.unwrap();
        assert_eq!((rule.path.as_deref(), rule.path_type.as_str()), (Some("/"), "Prefix"));
        assert_eq!((backend.name.as_str(), backend.port.unwrap().number), ("web", Some(80)));
        assert_eq!(reasons(&world).await, ["IngressCreated"]);
    });
}

#[test]
fn a_service_without_the_annotation_gets_none() {
    for annotation in [None, Some("false"), Some("True")] {
        World::run(1, async |world| {
            let _controller = start(&world);
            create_service(&world, annotation, port_80()).await;
            assert!(ingress(&world).await.is_none());
        });
    }
}

#[test]
fn the_ingress_goes_with_the_annotation_and_comes_back_with_it() {
    World::run(1, async |world| {
        let _controller = start(&world);
        create_service(&world, Some("true"), port_80()).await;
        annotate(&world, Some("false")).await;
        assert!(ingress(&world).await.is_none());
        annotate(&world, Some("true")).await;
        assert!(ingress(&world).await.is_some());
        annotate(&world, None).await;
        assert!(ingress(&world).await.is_none());
    });
}

#[test]
fn the_ingress_goes_with_the_service() {
    World::run(1, async |world| {
        let _controller = start(&world);
        create_service(&world, Some("true"), port_80()).await;
        assert!(ingress(&world).await.is_some());
        services(&world).delete("web", &DeleteParams::default()).await.unwrap();
        assert!(ingress(&world).await.is_none());
    });
}

#[test]
fn an_ingress_that_somebody_deletes_or_changes_is_made_good() {
    World::run(1, async |world| {
        let _controller = start(&world);
        create_service(&world, Some("true"), port_80()).await;
        let first = ingress(&world).await.unwrap();
        ingresses(&world).delete("web", &DeleteParams::default()).await.unwrap();
        let second = ingress(&world).await.expect("it came back");
        assert_ne!(first.uid(), second.uid());
        let patch = json!({"spec": {"ingressClassName": "other"}});
        ingresses(&world).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let third = ingress(&world).await.unwrap();
        assert_eq!(third.spec.unwrap().ingress_class_name.as_deref(), Some("nginx"));
    });
}

#[test]
fn an_ingress_of_somebody_else_is_left_alone_until_it_is_gone() {
    World::run(1, async |world| {
        let _controller = start(&world);
        let foreign: Ingress = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"defaultBackend": {"service": {"name": "other", "port": {"number": 1}}}},
        }))
        .unwrap();
        ingresses(&world).create(&PostParams::default(), &foreign).await.unwrap();
        create_service(&world, Some("true"), port_80()).await;
        assert!(ingress(&world).await.unwrap().owner_references().is_empty());
        assert_eq!(reasons(&world).await, ["ErrResourceExists"]);
        ingresses(&world).delete("web", &DeleteParams::default()).await.unwrap();
        assert!(!ingress(&world).await.unwrap().owner_references().is_empty());
    });
}

#[test]
fn a_service_without_ports_is_told_what_to_do() {
    World::run(1, async |world| {
        let _controller = start(&world);
        create_service(&world, Some("true"), json!(null)).await;
        assert!(ingress(&world).await.is_none());
        assert_eq!(reasons(&world).await, ["NoPort"]);
    });
}

#[test]
fn nothing_is_written_when_nothing_changes() {
    World::run(1, async |world| {
        let _controller = start(&world);
        create_service(&world, Some("true"), port_80()).await;
        sleep(SETTLED).await;
        let writes = || world.trace().requests(&Match::writes().client("controller")).count();
        let before = writes();
        for n in 0..5 {
            let patch = json!({"metadata": {"labels": {"touched": n.to_string()}}});
            services(&world).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            sleep(SETTLED).await;
        }
        assert_eq!(writes(), before);
    });
}
