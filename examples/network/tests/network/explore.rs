//! The Network controller, with every fault at every point: of the API server, and of Neutron.

use bytes::Bytes;
use example_network::neutron::{Auth, Neutron, Transport, of_service};
use example_network::{Network, Settings, controller, crd};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint::Manager;
use setpoint_sim::{FaultLayer, Scenario, World, explore};
use tower::{BoxError, Layer, Service, service_fn};

use crate::scripted::Scripted;
use crate::support::RESYNC;

fn network(cidr: &str) -> Network {
    let metadata = json!({"name": "office", "namespace": "default"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"cidr": cidr}})).expect("a Network")
}

/// Neutron, with faults between it and the controller.
fn faulty(neutron: &Scripted, layer: &FaultLayer) -> Transport {
    let neutron = neutron.clone();
    let inner = layer.layer(service_fn(move |request: Request<Full<Bytes>>| {
        let neutron = neutron.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let answer = neutron.serve(Request::from_parts(parts, body)).await?;
            Ok::<_, BoxError>(answer.map(Full::new))
        }
    }));
    of_service(service_fn(move |request: Request<Bytes>| {
        let answer = inner.clone().call(request.map(Full::new));
        async move {
            let (parts, body) = answer.await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        }
    }))
}

/// Neutron numbers what it makes.
fn without_ids(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|key, _| {
            !["id", "network_id", "revision_number", "networkId", "subnetId"].contains(&key.as_str())
        });
    }
}

fn known(mut objects: Vec<Value>) -> Vec<Value> {
    objects.iter_mut().for_each(without_ids);
    objects
}

fn scenario(_: &World) -> Scenario {
    let neutron = Scripted::default();
    let seen = neutron.clone();
    Scenario::new()
        .given(&crd())
        .controller("network", move |seat| {
            let transport = faulty(&neutron, &seat.layer());
            let neutron = Neutron::new("http://neutron:9696", Auth::None, transport, seat.env());
            let settings = Settings { resync: RESYNC, ..Settings::default() };
            Manager::with(seat.runtime()).controller(controller(neutron, settings)).run()
        })
        .outside(
            "neutron",
            move || json!({"networks": known(seen.networks()), "subnets": known(seen.subnets())}),
        )
        .mask(|_, object| without_ids(&mut object["status"]))
        .apply(&network("10.0.0.0/24"))
        .apply(&network("10.0.1.0/24"))
        .delete(&network("10.0.1.0/24"))
}

#[test]
fn no_fault_breaks_it() {
    explore(scenario);
}
