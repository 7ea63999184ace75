//! Mirrors Endpoints that somebody writes by hand to EndpointSlices, for Services without a selector.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{self as core, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use setpoint::owner::controller_reference;
use setpoint::{Action, Context, Controller, Event, ObjectKey, ReconcileError};

use crate::failure;

/// How long one reconcile may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "endpoint-slice-mirroring-controller";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "endpointslicemirroring-controller.k8s.io");
/// The label of Endpoints that are not mirrored, and the annotation of those that elect a leader.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that are about the Endpoints themselves.
const NOT_COPIED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
/// How many addresses of a subset are mirrored at most.
const MOST: usize = 1000;

pub(crate) fn controller() -> Controller {
    let of_service = |namespace: Option<String>, name: Option<String>| {
        let key = namespace.zip(name).map(|(namespace, name)| ObjectKey::namespaced(&namespace, &name));
        key.into_iter().collect::<Vec<_>>()
    };
    Controller::of::<Endpoints>(.., NAME, reconcile)
        .watches::<Service>(.., move |service| of_service(service.namespace(), service.metadata.name.clone()))
        .watches::<EndpointSlice>(.., move |slice| {
            let service = slice.labels().get(SERVICE_NAME).filter(|_| is_mirror(slice));
            of_service(slice.namespace(), service.cloned())
        })
        .time_limit(TIME_LIMIT)
}

fn is_mirror(slice: &EndpointSlice) -> bool {
    slice.labels().get(MANAGED_BY.0).is_some_and(|manager| manager == MANAGED_BY.1)
}

fn is_mirrored(endpoints: &Endpoints, service: &Service) -> bool {
    let is_skipped = endpoints.labels().get(SKIP).is_some_and(|skip| skip == "true");
    let has_selector = service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
    !is_skipped && !endpoints.annotations().contains_key(LEADER) && !has_selector
}

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let namespace = key.namespace().unwrap_or_default();
    let endpoints = cx.lister::<Endpoints>()?.get(&key).filter(|e| e.metadata.deletion_timestamp.is_none());
    let service = cx.lister::<Service>()?.get(&key);
    let mirrored = endpoints.zip(service).filter(|(endpoints, service)| is_mirrored(endpoints, service));
    let wanted = match &mirrored {
        Some((endpoints, _)) => wanted(&cx, endpoints),
        None => Vec::new(),
    };
    let mut current = cx.lister::<EndpointSlice>()?.namespace(namespace).list();
    let of_this =
        |slice: &EndpointSlice| slice.labels().get(SERVICE_NAME).is_some_and(|name| name == key.name());
    current.retain(|slice| is_mirror(slice) && of_this(slice));
    let api: Api<EndpointSlice> = Api::namespaced(cx.client(), namespace);
    for slice in wanted {
        let is_same_group = |known: &Arc<EndpointSlice>| {
            known.address_type == slice.address_type && known.ports == slice.ports
        };
        match current.iter().position(is_same_group) {
            Some(place) => update(&api, &current.remove(place), slice).await?,
            None => match api.create(&PostParams::default(), &slice).await {
                Err(error) if failure::is_namespace_terminating(&error) => return Ok(Action::done()),
                created => drop(created?),
            },
        }
    }
    for surplus in current {
        match api.delete(&surplus.name_any(), &DeleteParams::default()).await {
            Err(error) if failure::is_not_found(&error) => {}
            deleted => drop(deleted?),
        }
    }
    Ok(Action::done())
}

/// Writes a slice, if it is not as wanted.
async fn update(
    api: &Api<EndpointSlice>,
    known: &EndpointSlice,
    mut wanted: EndpointSlice,
) -> Result<(), kube::Error> {
    let annotations = |slice: &EndpointSlice| slice.metadata.annotations.clone().unwrap_or_default();
    if known.endpoints == wanted.endpoints
        && known.metadata.labels == wanted.metadata.labels
        && annotations(known) == annotations(&wanted)
        && known.metadata.owner_references == wanted.metadata.owner_references
    {
        return Ok(());
    }
    wanted.metadata.name = known.metadata.name.clone();
    wanted.metadata.generate_name = None;
    wanted.metadata.resource_version = known.metadata.resource_version.clone();
    api.replace(&known.name_any(), &PostParams::default(), &wanted).await.map(drop)
}

/// The slices of Endpoints: one for each kind of address and each set of ports.
fn wanted(cx: &Context, endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let (slices, invalid, skipped) = mirror(endpoints);
    if invalid > 0 {
        let note = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        cx.recorder().event(endpoints, Event::warning("InvalidIPAddress", note));
    }
    if skipped > 0 {
        let note = format!(
            "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
        );
        cx.recorder().event(endpoints, Event::warning("TooManyAddressesToMirror", note));
    }
    slices
}

/// Ports, and what has them.
type Ports = (Vec<EndpointPort>, Vec<Endpoint>);

/// The slices, and how many addresses are none or too many.
fn mirror(endpoints: &Endpoints) -> (Vec<EndpointSlice>, usize, usize) {
    let mut groups: BTreeMap<(&str, String), Ports> = BTreeMap::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(port).collect();
        let key = serde_json::to_string(&ports).unwrap_or_default();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let mut added = 0;
        for (address, is_ready) in ready.chain(not_ready) {
            match address.ip.parse::<IpAddr>() {
                Err(_) => invalid += 1,
                Ok(_) if added == MOST => skipped += 1,
                Ok(ip) => {
                    let type_ = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
                    let group =
                        groups.entry((type_, key.clone())).or_insert_with(|| (ports.clone(), Vec::new()));
                    group.1.push(endpoint(address, ip, is_ready));
                    added += 1;
                }
            }
        }
    }
    let slices = groups.into_iter().map(|((type_, _), (ports, all))| slice(endpoints, type_, ports, all));
    (slices.collect(), invalid, skipped)
}

fn slice(endpoints: &Endpoints, type_: &str, ports: Vec<EndpointPort>, all: Vec<Endpoint>) -> EndpointSlice {
    let name = endpoints.name_any();
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    let mut annotations = endpoints.annotations().clone();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.namespace(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: controller_reference(endpoints).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: type_.to_owned(),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
        endpoints: Some(all),
    }
}

fn endpoint(address: &core::EndpointAddress, ip: IpAddr, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn port(port: &core::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_grouped_by_kind_and_ports() {
        let endpoints: Endpoints = serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "n", "uid": "u", "labels": {"a": "b"},
                "annotations": {"x": "y", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "subsets": [{
                "addresses": [{"ip": "192.0.2.1", "nodeName": "n1"}, {"ip": "2001:db8::1"}, {"ip": "bad"}],
                "notReadyAddresses": [{"ip": "192.0.2.2"}],
                "ports": [{"port": 5432, "protocol": "TCP"}],
            }],
        }))
        .unwrap();
        let (slices, invalid, skipped) = mirror(&endpoints);
        assert_eq!((invalid, skipped), (1, 0));
        let types: Vec<_> = slices.iter().map(|slice| slice.address_type.as_str()).collect();
        assert_eq!(types, ["IPv4", "IPv6"]);
        let ready: Vec<_> =
            slices[0].endpoints.iter().flatten().map(|e| e.conditions.as_ref().unwrap().ready).collect();
        assert_eq!(ready, [Some(true), Some(false)]);
        assert_eq!(slices[0].labels()[SERVICE_NAME], "db");
        assert_eq!(slices[0].annotations().len(), 1);
    }
}
