//! Services, their endpoints, and what leads to them.

use serde_json::Value;

use super::cells::{first_of, has, int, labels, list, name, or_none, scalar, selector, text, text_or};
use super::{AGE, Column, NAME, Printer, SELECTOR};

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "services" => &SERVICE,
        "endpoints" => &ENDPOINTS,
        "endpointslices" => &ENDPOINT_SLICE,
        "ingresses" => &INGRESS,
        "ingressclasses" => &INGRESS_CLASS,
        "networkpolicies" => &NETWORK_POLICY,
        "servicecidrs" => &SERVICE_CIDR,
        "ipaddresses" => &IP_ADDRESS,
        _ => return None,
    })
}

/// No cell lists more than this.
const MOST: usize = 3;

const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Type", "How the service can be reached."),
        Column::text("Cluster-IP", "Its address within the cluster."),
        Column::text("External-IP", "Its addresses outside the cluster."),
        Column::text("Port(s)", "Its ports."),
        AGE,
        SELECTOR,
    ],
    cells: |object, context| {
        vec![
            name(object),
            text(object, "/spec/type").into(),
            text_or(object, "/spec/clusterIPs/0", "<none>").into(),
            external_address(object).into(),
            or_none(ports(object)).into(),
            context.age(object),
            labels(object, "/spec/selector").into(),
        ]
    },
};

fn external_address(service: &Value) -> String {
    let mut addresses: Vec<String> = match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => Vec::new(),
        "LoadBalancer" => load_balancer(service),
        "ExternalName" => return text(service, "/spec/externalName").to_owned(),
        _ => return "<unknown>".to_owned(),
    };
    addresses.extend(list(service, "/spec/externalIPs").iter().map(scalar));
    match addresses.join(",") {
        none if none.is_empty() && text(service, "/spec/type") == "LoadBalancer" => "<pending>".to_owned(),
        addresses => or_none(addresses),
    }
}

/// The addresses of a load balancer, each once, in order.
fn load_balancer(object: &Value) -> Vec<String> {
    let points = list(object, "/status/loadBalancer/ingress").iter();
    let mut addresses: Vec<String> = points
        .map(|point| text_or(point, "/ip", text(point, "/hostname")).to_owned())
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn ports(service: &Value) -> String {
    let port = |port: &Value| {
        let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
        match int(port, "/nodePort") {
            node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    list(service, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(",")
}

const ENDPOINTS: Printer = Printer {
    columns: &[NAME, Column::text("Endpoints", "The addresses behind the service."), AGE],
    cells: |object, context| {
        let mut all = Vec::new();
        for subset in list(object, "/subsets") {
            let addresses = || list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
            if list(subset, "/ports").is_empty() {
                all.extend(addresses().map(str::to_owned));
            }
            for port in list(subset, "/ports") {
                all.extend(addresses().map(|address| host_port(address, int(port, "/port"))));
            }
        }
        let shown =
            if list(object, "/subsets").is_empty() { "<none>".to_owned() } else { first_of(&all, MOST, ",") };
        vec![name(object), shown.into(), context.age(object)]
    },
};

fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn or_unset(text: String) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

const ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("AddressType", "What the addresses are."),
        Column::text("Ports", "The ports of each endpoint."),
        Column::text("Endpoints", "The addresses behind the service."),
        AGE,
    ],
    cells: |object, context| {
        let port = |port: &Value| {
            let number = port.get("port").filter(|number| !number.is_null());
            number.or_else(|| port.get("name")).map_or_else(|| "*".to_owned(), scalar)
        };
        let ports: Vec<String> = list(object, "/ports").iter().map(port).collect();
        let endpoints = list(object, "/endpoints").iter();
        let addresses: Vec<String> =
            endpoints.flat_map(|endpoint| list(endpoint, "/addresses")).map(scalar).collect();
        vec![
            name(object),
            text(object, "/addressType").into(),
            or_unset(first_of(&ports, MOST, ",")).into(),
            or_unset(first_of(&addresses, MOST, ",")).into(),
            context.age(object),
        ]
    },
};

const INGRESS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Class", "The class of ingress, which says who serves it."),
        Column::text("Hosts", "The hosts that it answers for."),
        Column::text("Address", "The addresses of its load balancer."),
        Column::text("Ports", "The ports that it opens."),
        AGE,
    ],
    cells: |object, context| {
        let class = object.pointer("/spec/ingressClassName").map_or_else(|| "<none>".to_owned(), scalar);
        let ports = if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
        vec![
            name(object),
            class.into(),
            hosts(object).into(),
            load_balancer(object).join(",").into(),
            ports.into(),
            context.age(object),
        ]
    },
};

/// The first hosts; what there is more is counted in rules, with a host or without.
fn hosts(ingress: &Value) -> String {
    let rules = list(ingress, "/spec/rules");
    let mut hosts: Vec<&str> = Vec::new();
    let mut has_more = false;
    for rule in rules {
        has_more |= hosts.len() == MOST;
        if !has_more && !text(rule, "/host").is_empty() {
            hosts.push(text(rule, "/host"));
        }
    }
    match hosts.join(",") {
        none if none.is_empty() => "*".to_owned(),
        hosts if has_more => format!("{hosts} + {} more...", rules.len() - MOST),
        hosts => hosts,
    }
}

const INGRESS_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Controller", "Who serves ingresses of this class."),
        Column::text("Parameters", "Where more settings are."),
        AGE,
    ],
    cells: |object, context| {
        let mut shown = text(object, "/metadata/name").to_owned();
        if text(object, "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class") == "true" {
            shown.push_str(" (default)");
        }
        let parameters = object.pointer("/spec/parameters").map_or_else(
            || "<none>".to_owned(),
            |parameters| {
                let group = if has(parameters, "/apiGroup") {
                    format!(".{}", text(parameters, "/apiGroup"))
                } else {
                    String::new()
                };
                format!("{}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
            },
        );
        vec![shown.into(), text(object, "/spec/controller").into(), parameters.into(), context.age(object)]
    },
};

const NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, Column::text("Pod-Selector", "The labels of the pods that it is about."), AGE],
    cells: |object, context| {
        vec![name(object), selector(object, "/spec/podSelector").into(), context.age(object)]
    },
};

const SERVICE_CIDR: Printer = Printer {
    columns: &[NAME, Column::text("CIDRs", "The ranges that services get addresses from."), AGE],
    cells: |object, context| {
        let ranges = list(object, "/spec/cidrs").iter().map(scalar).collect::<Vec<_>>().join(",");
        vec![name(object), ranges.into(), context.age(object)]
    },
};

const IP_ADDRESS: Printer = Printer {
    columns: &[NAME, Column::text("ParentRef", "What the address belongs to.")],
    cells: |object, context| {
        let parent = object.pointer("/spec/parentRef").map_or_else(
            || "<none>".to_owned(),
            |parent| {
                let group = match text(parent, "/group") {
                    "" => String::new(),
                    group => format!(".{group}"),
                };
                let namespace = match text(parent, "/namespace") {
                    "" => String::new(),
                    namespace => format!("/{namespace}"),
                };
                let resource = format!("{}{group}", text(parent, "/resource")).to_lowercase();
                format!("{resource}{namespace}/{}", text(parent, "/name"))
            },
        );
        vec![name(object), parent.into(), context.age(object)]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_shows_where_it_can_be_reached() {
        let check = |spec: Value, status: Value, expect: &str| {
            assert_eq!(external_address(&json!({"spec": spec, "status": status})), expect);
        };
        let balanced = json!({"loadBalancer": {"ingress": [{"hostname": "b.example"}, {"ip": "1.2.3.4"}]}});
        check(json!({"type": "ClusterIP"}), json!({}), "<none>");
        check(json!({"type": "NodePort", "externalIPs": ["9.9.9.9"]}), json!({}), "9.9.9.9");
        check(json!({"type": "LoadBalancer"}), json!({}), "<pending>");
        check(json!({"type": "LoadBalancer"}), balanced.clone(), "1.2.3.4,b.example");
        check(
            json!({"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}),
            balanced,
            "1.2.3.4,b.example,9.9.9.9",
        );
        check(json!({"type": "ExternalName", "externalName": "x.example"}), json!({}), "x.example");
        check(json!({}), json!({}), "<unknown>");
    }

    #[test]
    fn the_first_hosts_of_an_ingress_are_shown() {
        let check = |names: &[&str], expect: &str| {
            let rules: Vec<Value> = names.iter().map(|host| json!({"host": host})).collect();
            assert_eq!(hosts(&json!({"spec": {"rules": rules}})), expect);
        };
        check(&[], "*");
        check(&[""], "*");
        check(&["a", "b"], "a,b");
        check(&["a", "b", "c", "d", "e"], "a,b,c + 2 more...");
    }
}
