//! What Services count as.

use serde_json::Value;
use setpoint_kinds::Quantity;

use super::Amounts;

const SERVICES: &str = "services";
const NODE_PORTS: &str = "services.nodeports";
const LOAD_BALANCERS: &str = "services.loadbalancers";

pub(super) fn tracks(name: &str) -> bool {
    [SERVICES, NODE_PORTS, LOAD_BALANCERS].contains(&name)
}

pub(super) fn usage(service: &Value) -> Amounts {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A new service may have no node ports yet: what it asks for counts.
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            (ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count(), 1)
        }
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    let node_ports = Quantity::whole_number(i64::try_from(node_ports).unwrap_or(i64::MAX));
    [(SERVICES, Quantity::ONE), (NODE_PORTS, node_ports), (LOAD_BALANCERS, Quantity::whole_number(balancers))]
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect()
}
