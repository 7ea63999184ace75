//! The addresses of a service: those that offer the same ports together.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, ObjectReference, Pod, Service,
};
use kube::ResourceExt;

use crate::endpoint_slice::number;
use crate::pod;

/// How many addresses Endpoints have at most.
const MOST: usize = 1000;

/// An address is known by the IP and the uid of the pod.
type AddressKey = (String, String);

/// A port, in the order in which ports are told: name, number, protocol, application protocol.
type PortKey = (Option<String>, i32, Option<String>, Option<String>);

/// The addresses of the pods of a service, in a fixed order.
pub(super) fn of(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let Some(spec) = service.spec.as_ref() else { return Vec::new() };
    let publishes_all = spec.publish_not_ready_addresses == Some(true);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    // Which addresses offer a port, and whether they are ready. Without any port that is no port.
    let mut offers: BTreeMap<Option<PortKey>, BTreeMap<AddressKey, bool>> = BTreeMap::new();
    for pod in pods {
        let Some(address) = address(service, pod, publishes_all) else { continue };
        let key = (address.ip.clone(), pod.uid().unwrap_or_default());
        let is_ready = publishes_all || pod::is_ready(pod);
        let mut offer = |port| {
            offers.entry(port).or_default().insert(key.clone(), is_ready);
        };
        if ports.is_empty() && spec.cluster_ip.as_deref() == Some("None") {
            offer(None);
        }
        for port in ports {
            let Some(number) = number(port, pod) else { continue };
            offer(Some((port.name.clone(), number, port.protocol.clone(), port.app_protocol.clone())));
        }
        addresses.insert(key, address);
    }
    let mut by_addresses: BTreeMap<Vec<(AddressKey, bool)>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, offering) in offers {
        let ports = by_addresses.entry(offering.into_iter().collect()).or_default();
        ports.extend(port.map(|(name, port, protocol, app_protocol)| EndpointPort {
            name,
            port,
            protocol,
            app_protocol,
        }));
    }
    by_addresses.into_iter().map(|(offering, ports)| subset(&addresses, &offering, ports)).collect()
}

fn subset(
    addresses: &BTreeMap<AddressKey, EndpointAddress>,
    offering: &[(AddressKey, bool)],
    ports: Vec<EndpointPort>,
) -> EndpointSubset {
    let of = |wanted: bool| {
        let keys = offering.iter().filter(|(_, is_ready)| *is_ready == wanted);
        let found: Vec<_> = keys.filter_map(|(key, _)| addresses.get(key).cloned()).collect();
        Some(found).filter(|found| !found.is_empty())
    };
    EndpointSubset {
        addresses: of(true),
        not_ready_addresses: of(false),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

/// A pod as an address; none if it has none, has ended, or is being deleted.
fn address(service: &Service, pod: &Pod, publishes_all: bool) -> Option<EndpointAddress> {
    let ip = pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())?;
    if pod::is_finished(pod) || (pod.metadata.deletion_timestamp.is_some() && !publishes_all) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let has_name = spec.subdomain.as_deref().is_some_and(|subdomain| subdomain == service.name_any());
    Some(EndpointAddress {
        ip,
        hostname: spec.hostname.clone().filter(|name| has_name && !name.is_empty()),
        node_name: spec.node_name.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
    })
}

/// Leaves out addresses above the most that there may be, first those that are not ready, from each subset in
/// proportion. Says whether some were left out.
pub(super) fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let not_ready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + not_ready <= MOST {
        return false;
    }
    let cuts_ready = ready > MOST;
    let (total, room) = if cuts_ready { (ready, MOST) } else { (not_ready, MOST - ready) };
    let mut left = room;
    for subset in subsets {
        let list = if cuts_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(list) * room).div_ceil(total).min(left);
        if let Some(list) = list {
            list.truncate(share);
        }
        left -= count(list);
        if list.as_ref().is_some_and(Vec::is_empty) {
            *list = None;
        }
        if cuts_ready {
            subset.not_ready_addresses = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let metadata = json!({"name": "web", "namespace": "default"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn pod(number: usize, is_ready: bool, port: i32) -> Arc<Pod> {
        let (name, ip) = (format!("p{number:04}"), format!("10.0.{}.{}", number / 250, number % 250));
        let ready = if is_ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"nodeName": "node-1", "hostname": "h", "subdomain": "web", "containers": [{"name": "a",
                    "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]}]},
                "status": {"podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap(),
        )
    }

    fn sizes(subsets: &[EndpointSubset]) -> Vec<(usize, usize)> {
        let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
        subsets.iter().map(|one| (count(&one.addresses), count(&one.not_ready_addresses))).collect()
    }

    #[test]
    fn addresses_that_offer_the_same_ports_are_together() {
        let ports = json!([{"name": "a", "port": 80, "targetPort": "http", "protocol": "TCP"},
                           {"name": "b", "port": 90, "protocol": "TCP"}]);
        let service = service(json!({"clusterIP": "10.0.0.1", "ports": ports}));
        let subsets = of(&service, &[pod(1, true, 8080), pod(2, false, 8080)]);
        assert_eq!(sizes(&subsets), [(1, 1)]);
        let numbers: Vec<_> = subsets[0].ports.as_ref().unwrap().iter().map(|port| port.port).collect();
        assert_eq!(numbers, [8080, 90]);
        let address = &subsets[0].addresses.as_ref().unwrap()[0];
        assert_eq!((address.hostname.as_deref(), address.node_name.as_deref()), (Some("h"), Some("node-1")));
        // Another number behind the name: that port has subsets of its own.
        let subsets = of(&service, &[pod(1, true, 8080), pod(2, true, 9090)]);
        assert_eq!(sizes(&subsets), [(1, 0), (2, 0), (1, 0)]);
    }

    #[test]
    fn a_service_without_an_ip_may_be_without_ports_and_one_that_publishes_all_has_no_unready_ones() {
        let pods = [pod(1, true, 1), pod(2, false, 1)];
        let subsets = of(&service(json!({"clusterIP": "None"})), &pods);
        assert_eq!((sizes(&subsets), subsets[0].ports.is_none()), (vec![(1, 1)], true));
        let all = service(json!({"clusterIP": "None", "publishNotReadyAddresses": true}));
        assert_eq!(sizes(&of(&all, &pods)), [(2, 0)]);
        assert_eq!(sizes(&of(&service(json!({"clusterIP": "10.0.0.1"})), &pods)), []);
    }

    #[test]
    fn there_are_a_thousand_addresses_at_most_and_the_ready_ones_stay() {
        let service = service(json!({"ports": [{"port": 80}]}));
        let pods = |ready: usize, all: usize| -> Vec<_> { (0..all).map(|n| pod(n, n < ready, 1)).collect() };
        let mut some = of(&service, &pods(600, 1000));
        assert!(!truncate(&mut some));
        let mut many = of(&service, &pods(600, 1100));
        assert!(truncate(&mut many));
        assert_eq!(sizes(&many), [(600, 400)]);
        let mut more = of(&service, &pods(1050, 1100));
        assert!(truncate(&mut more));
        assert_eq!(sizes(&more), [(1000, 0)]);
    }
}
