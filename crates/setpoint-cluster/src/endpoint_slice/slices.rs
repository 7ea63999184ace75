//! The slices that a service should have.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use setpoint::owner::{controller_reference, is_controlled_by};

use crate::pod;

/// The label that says whose a slice is, the one that says who keeps it, and the one of services without an IP.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The kind of addresses that there are here.
pub(super) const ADDRESS_TYPE: &str = "IPv4";

/// Whether a slice is one of those that are kept for a service here.
pub(super) fn is_of(slice: &EndpointSlice, service: &Service) -> bool {
    let (key, value) = MANAGED_BY;
    is_controlled_by(slice, service) && slice.labels().get(key).is_some_and(|manager| manager == value)
}

/// Endpoints that have the same ports.
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// The endpoints of a service, by pod name, those with the same ports together.
pub(super) fn groups(service: &Service, pods: &[Arc<Pod>]) -> Vec<Group> {
    let mut by_ports: BTreeMap<String, Group> = BTreeMap::new();
    for pod in pods {
        let Some(endpoint) = endpoint(service, pod) else { continue };
        let ports = ports(service, pod);
        let key = serde_json::to_string(&ports).unwrap_or_default();
        by_ports
            .entry(key)
            .or_insert_with(|| Group { ports, endpoints: Vec::new() })
            .endpoints
            .push(endpoint);
    }
    by_ports.into_values().collect()
}

/// A slice of a service with these endpoints.
pub(super) fn slice(service: &Service, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let name = service.name_any();
    let is_headless = service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if is_headless {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.namespace(),
            labels: Some(labels),
            owner_references: controller_reference(service).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: ADDRESS_TYPE.to_owned(),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
        endpoints: Some(endpoints),
    }
}

/// A pod as an endpoint; none if it has no address, or has ended.
fn endpoint(service: &Service, pod: &Pod) -> Option<Endpoint> {
    let address = pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())?;
    if pod::is_finished(pod) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let (is_serving, is_terminating) = (pod::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let publishes_all = service.spec.as_ref()?.publish_not_ready_addresses == Some(true);
    let has_name = spec.subdomain.as_deref().is_some_and(|subdomain| subdomain == service.name_any());
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all || (is_serving && !is_terminating)),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: spec.hostname.clone().filter(|_| has_name),
        node_name: spec.node_name.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// The ports of a service as they are on one pod. One that the pod does not have is left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port, pod)?),
            protocol: Some(protocol(port).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number of a service's port on a pod; none if the pod has no port of that name.
pub(crate) fn number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let is_it = |known: &&k8s_openapi::api::core::v1::ContainerPort| {
                known.name.as_ref() == Some(name)
                    && known.protocol.as_deref().unwrap_or("TCP") == protocol(port)
            };
            ports.find(is_it).map(|known| known.container_port)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let metadata = json!({"name": "web", "namespace": "default", "uid": "u", "labels": {"team": "a"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn pod(name: &str, port: i32) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"nodeName": "node-1", "containers": [{"name": "a",
                    "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]}]},
                "status": {"podIP": "10.0.0.1", "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn a_slice_has_the_labels_of_its_service() {
        let slice = slice(&service(json!({"clusterIP": "None"})), Vec::new(), Vec::new());
        assert_eq!(slice.labels()[SERVICE_NAME], "web");
        assert_eq!(slice.labels()[HEADLESS], "");
        assert_eq!(slice.labels()["team"], "a");
    }

    #[test]
    fn pods_whose_named_ports_differ_are_in_groups_of_their_own() {
        let service = service(json!({"ports": [{"port": 80, "targetPort": "http"}]}));
        let groups = groups(&service, &[pod("a", 8080), pod("b", 9090), pod("c", 8080)]);
        let ports: Vec<_> = groups.iter().map(|group| group.ports[0].port.unwrap()).collect();
        assert_eq!(ports, [8080, 9090]);
        assert_eq!(groups[0].endpoints.len(), 2);
    }

    #[test]
    fn a_pod_that_goes_is_not_ready_any_more() {
        let service = service(json!({"ports": [{"port": 80}]}));
        let mut going = (*pod("a", 1)).clone();
        going.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        let groups = groups(&service, &[Arc::new(going)]);
        let conditions = groups[0].endpoints[0].conditions.clone().unwrap();
        assert_eq!(
            (conditions.ready, conditions.serving, conditions.terminating),
            (Some(false), Some(true), Some(true))
        );
    }
}
