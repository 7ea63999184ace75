//! What a pod needs of a node.

use std::collections::BTreeMap;

use setpoint::k8s_openapi::api::core::v1::{Container, Node, NodeSelector, Pod, Toleration};

use super::fit;
use super::requests::{self, Amounts};

/// A port of the host that a pod uses: protocol, address, number.
pub(super) type Port = (String, String, i32);

/// What decides where a pod can go. Pods with equal needs can go to the same nodes.
#[derive(Clone)]
pub(super) struct Needs {
    pub(super) requests: Amounts,
    pub(super) ports: Vec<Port>,
    pub(super) tolerations: Vec<Toleration>,
    labels: BTreeMap<String, String>,
    affinity: Option<NodeSelector>,
}

impl Needs {
    pub(super) fn of(pod: &Pod) -> Needs {
        let spec = pod.spec.as_ref();
        Needs {
            requests: requests::of_pod(pod),
            ports: ports(pod),
            tolerations: spec.and_then(|spec| spec.tolerations.clone()).unwrap_or_default(),
            labels: spec.and_then(|spec| spec.node_selector.clone()).unwrap_or_default(),
            affinity: spec.and_then(fit::required_affinity).cloned(),
        }
    }

    /// Equal for pods with equal needs.
    pub(super) fn class(&self) -> String {
        let Needs { requests, ports, tolerations, labels, affinity } = self;
        let parts = serde_json::to_string(&(ports, tolerations, labels, affinity)).unwrap_or_default();
        format!("{requests:?} {parts}")
    }

    /// Whether a node has the labels, or the name, that the pod asks for.
    pub(super) fn matches(&self, node: &Node) -> bool {
        fit::matches(&self.labels, self.affinity.as_ref(), node)
    }

    /// The names of the only nodes that can do, if the pod says them: pods of DaemonSets do.
    pub(super) fn named(&self) -> Option<Vec<&str>> {
        let terms = &self.affinity.as_ref()?.node_selector_terms;
        let mut names = Vec::new();
        for term in terms {
            let fields = term.match_fields.iter().flatten();
            let mut names_of = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
            names.extend(names_of.next()?.values.iter().flatten().map(String::as_str));
        }
        Some(names)
    }
}

/// The ports of the host that a pod's containers use as long as it runs.
fn ports(pod: &Pod) -> Vec<Port> {
    let spec = pod.spec.as_ref();
    let sidecars = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = sidecars.iter().filter(|container| requests::is_sidecar(container));
    let containers = spec.iter().flat_map(|spec| &spec.containers).chain(sidecars);
    let ports = containers.flat_map(|container: &Container| container.ports.iter().flatten());
    let used = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        Some((protocol, port.host_ip.clone().unwrap_or_default(), number))
    });
    used.collect()
}

/// Whether two pods with these ports cannot be on one node.
pub(super) fn collide(a: &Port, b: &Port) -> bool {
    let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || is_any(&a.1) || is_any(&b.1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_of_the_host_are_taken_once() {
        let port = |ip: &str, number| ("TCP".to_owned(), ip.to_owned(), number);
        assert!(collide(&port("", 80), &port("10.0.0.1", 80)));
        assert!(!collide(&port("10.0.0.2", 80), &port("10.0.0.1", 80)));
        assert!(!collide(&port("", 81), &port("", 80)));
    }

    #[test]
    fn ports_of_sidecars_count_and_those_of_other_init_containers_do_not() {
        let container = |number: i32, policy: Option<&str>| {
            json!({"name": format!("c{number}"), "restartPolicy": policy,
                "ports": [{"containerPort": number, "hostPort": number}]})
        };
        let inits = json!([container(81, Some("Always")), container(82, None)]);
        let spec = json!({"containers": [container(80, None)], "initContainers": inits});
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let numbers: Vec<i32> = Needs::of(&pod).ports.iter().map(|port| port.2).collect();
        assert_eq!(numbers, [80, 81]);
    }

    #[test]
    fn only_affinity_that_names_nodes_in_every_term_names_them() {
        let named = |terms: serde_json::Value| {
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}});
            let spec = json!({"containers": [], "affinity": affinity});
            let needs = Needs::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap());
            needs.named().map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        let by_name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert_eq!(named(json!([by_name("a"), by_name("b")])), Some(vec!["a".into(), "b".into()]));
        let by_label = json!({"matchExpressions": [{"key": "disk", "operator": "Exists"}]});
        assert_eq!(named(json!([by_name("a"), by_label])), None);
    }
}
