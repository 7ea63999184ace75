//! Services.

pub(crate) mod allocation;
mod families;
pub(crate) mod network;
pub(crate) mod node_ports;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::at::{At, items};
use super::fill::{default as set, default_text, each, part, part_or_new, text};
use super::formats;
use super::rules::PROTOCOLS;
use crate::field_error::Shown;
use crate::metadata::names;
use crate::strategy::Part;

const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn default(service: &mut Value) {
    let Some(fields) = service.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    default_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let timeout = part(spec, "sessionAffinityConfig").and_then(|config| part(config, "clientIP"));
            if timeout.is_none_or(|client| !client.contains_key("timeoutSeconds")) {
                spec.insert(
                    "sessionAffinityConfig".to_owned(),
                    json!({"clientIP": {"timeoutSeconds": 10800}}),
                );
            }
        }
        _ => {}
    }
    default_text(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        default_text(port, "protocol", "TCP");
        if port.get("targetPort").is_none_or(|target| *target == 0 || target == "")
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let is_reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || kind == "ClusterIP" && spec.get("externalIPs").is_some_and(|ips| !items(ips).is_empty());
    if is_reachable {
        default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        let balancer = part(fields, "status").and_then(|status| part(status, "loadBalancer"));
        for ingress in balancer.into_iter().flat_map(|balancer| each(balancer, "ingress")) {
            if !text(ingress, "ip").is_empty() {
                set(ingress, "ipMode", "VIP");
            }
        }
    }
}

pub(super) fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"].as_array().is_some_and(|ips| ips.len() == 1 && ips[0] == "None")
}

pub(super) fn needs_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn may_have_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

pub(super) fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn is_reachable(spec: &Value) -> bool {
    may_have_node_ports(spec) || spec["type"] == "ClusterIP" && !items(&spec["externalIPs"]).is_empty()
}

/// What only the old type had goes with it, unless the request says otherwise.
pub(super) fn prepare_update(service: &mut Value, old: &Value, part: Part) {
    if part != Part::Main {
        return;
    }
    let old = &old["spec"];
    let spec = service["spec"].clone();
    let Some(new) = service["spec"].as_object_mut() else { return };
    let unchanged = |field: &str| spec[field] == old[field];
    if needs_cluster_ip(old) && !needs_cluster_ip(&spec) {
        if unchanged("clusterIP") && unchanged("clusterIPs") {
            new.remove("clusterIP");
            new.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|field| unchanged(field)) {
            new.remove(field);
        }
    }
    let ports = |spec: &Value| -> Vec<i64> {
        items(&spec["ports"])
            .iter()
            .filter_map(|port| port["nodePort"].as_i64())
            .filter(|port| *port != 0)
            .collect()
    };
    if may_have_node_ports(old)
        && !may_have_node_ports(&spec)
        && ports(&spec).iter().all(|port| ports(old).contains(port))
    {
        each(new, "ports").for_each(|port| drop(port.remove("nodePort")));
    }
    if needs_health_check(old) && !needs_health_check(&spec) && unchanged("healthCheckNodePort") {
        new.remove("healthCheckNodePort");
    }
    if old["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
            .into_iter()
            .filter(|field| unchanged(field))
        {
            new.remove(field);
        }
    }
    if is_reachable(old) && !is_reachable(&spec) && unchanged("externalTrafficPolicy") {
        new.remove("externalTrafficPolicy");
    }
    if spec["type"] == "ExternalName" {
        new.remove("internalTrafficPolicy");
    }
    if spec["type"] != "LoadBalancer" {
        service["status"]["loadBalancer"] = Value::Object(Map::new());
    }
}

pub(super) fn validate(service: &At, old: Option<&Value>, part: Part) {
    if part == Part::Status {
        return status(service, old.unwrap_or(&Value::Null));
    }
    let spec = service.field("spec");
    if let Some(old) = old {
        families::validate_update(&spec, &old["spec"]);
        let class = spec.field("loadBalancerClass");
        let both = spec.field("type").text() == "LoadBalancer" && old["spec"]["type"] == "LoadBalancer";
        if both && *class.value() != old["spec"]["loadBalancerClass"] {
            class.invalid("may not change once set");
        }
        balancer_class(&spec);
        let check = spec.field("healthCheckNodePort");
        if needs_health_check(spec.value())
            && needs_health_check(&old["spec"])
            && *check.value() != old["spec"]["healthCheckNodePort"]
        {
            check.forbidden("field is immutable");
        }
    }
    if spec.field("ports").is_empty()
        && !is_headless(spec.value())
        && spec.field("type").text() != "ExternalName"
    {
        spec.field("ports").required("");
    }
    by_type(&spec);
    ports(&spec);
    spec.field("selector").labels();
    session_affinity(&spec);
    families::validate(&spec, old.map(|old| &old["spec"]));
    external_ips(&spec, old);
    spec.field("type").one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    node_ports(&spec);
    source_ranges(service, old);
    let allocates = spec.field("allocateLoadBalancerNodePorts");
    if allocates.exists() && spec.field("type").text() != "LoadBalancer" {
        allocates.forbidden(ONLY_BALANCERS);
    }
    balancer_class(&spec);
    traffic(&spec);
}

fn by_type(spec: &At) {
    let kind = spec.field("type").text();
    let ips = spec.field("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec.value()) => {
            ips.index(0).invalid(format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            const DETAIL: &str = "may not be set for ExternalName services";
            for field in
                ["clusterIPs", "ipFamilies"].into_iter().filter(|field| !spec.field(field).is_empty())
            {
                spec.field(field).forbidden(DETAIL);
            }
            if spec.field("ipFamilyPolicy").exists() {
                spec.field("ipFamilyPolicy").forbidden(DETAIL);
            }
            let name = spec.field("externalName");
            let host = name.text().strip_suffix('.').unwrap_or(name.text());
            if host.is_empty() {
                name.required("");
            }
            for problem in names::dns1123_subdomain(host).into_iter().filter(|_| !host.is_empty()) {
                name.invalid_as(host, problem);
            }
        }
        _ => {}
    }
}

fn ports(spec: &At) {
    let ports = spec.field("ports");
    let needs_name = ports.len() > 1;
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        if needs_name && name.is_empty() {
            name.required("");
        } else if !name.is_empty() {
            name.has_form(names::dns1123_label);
            if !seen.insert(name.text()) {
                name.duplicate();
            }
        }
        port.field("port").port_number();
        port.field("protocol").one_of(&PROTOCOLS);
        port.field("targetPort").port();
        if port.field("appProtocol").exists() {
            port.field("appProtocol").has_form(names::label_key);
        }
    }
}

fn session_affinity(spec: &At) {
    let affinity = spec.field("sessionAffinity");
    affinity.one_of(&["ClientIP", "None"]);
    let config = spec.field("sessionAffinityConfig");
    match affinity.text() {
        "ClientIP" => {
            let client = config.field("clientIP");
            let timeout = client.field("timeoutSeconds");
            if !timeout.number().is_some_and(|seconds| (1..=86400).contains(&seconds)) {
                timeout.invalid("must be greater than 0 and less than 86400");
            }
        }
        "None" if config.exists() => config.forbidden("must not be set when session affinity is None"),
        _ => {}
    }
}

fn external_ips(spec: &At, old: Option<&Value>) {
    let before: Vec<&str> = old
        .map(|old| items(&old["spec"]["externalIPs"]).iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for ip in spec.field("externalIPs").items() {
        if ip.ip_address(&before) {
            ip.has_form(formats::endpoint_ip);
        }
    }
}

fn node_ports(spec: &At) {
    let ports = spec.field("ports");
    let number = |port: &At| port.field("nodePort").number().unwrap_or(0);
    if spec.field("type").text() == "ClusterIP" {
        for port in ports.items().filter(|port| number(port) != 0) {
            port.field("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items().filter(|port| number(port) != 0) {
        if !seen.insert((port.field("protocol").text(), number(&port))) {
            port.field("nodePort").duplicate();
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.field("protocol").text(), port.field("port").number().unwrap_or(0));
        if !seen.insert((protocol, number)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\
                 \"NodePort\":0}}"
            );
            port.duplicate_as(Shown::Raw(shown));
        }
    }
}

fn source_ranges(service: &At, old: Option<&Value>) {
    let spec = service.field("spec");
    let is_balancer = spec.field("type").text() == "LoadBalancer";
    let ranges = spec.field("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at_spec = spec.with(ranges.value());
        let place = at_spec.alias("LoadBalancerSourceRanges");
        if !is_balancer {
            place.forbidden(ONLY_BALANCERS);
        }
        let before: Vec<&str> = old
            .map(|old| items(&old["spec"]["loadBalancerSourceRanges"]))
            .unwrap_or_default()
            .iter()
            .filter_map(|range| range.as_str().map(str::trim))
            .collect();
        for range in place.items() {
            let text: Value = range.text().trim().into();
            range.with(&text).cidr(&before);
        }
        return;
    }
    let metadata = service.field("metadata");
    let annotations = metadata.field("annotations");
    let annotation = annotations.key(SOURCE_RANGES);
    if annotation.exists() {
        if !is_balancer {
            annotation.forbidden(ONLY_BALANCERS);
        }
        for range in annotation.text().split(',').map(str::trim).filter(|range| !range.is_empty()) {
            annotation.with(&range.into()).cidr(&[]);
        }
    }
}

fn balancer_class(spec: &At) {
    let class = spec.field("loadBalancerClass");
    if !class.exists() {
        return;
    }
    if spec.field("type").text() == "LoadBalancer" {
        class.has_form(names::label_key);
    } else {
        class.forbidden(ONLY_BALANCERS);
    }
}

fn traffic(spec: &At) {
    let external = spec.field("externalTrafficPolicy");
    if is_reachable(spec.value()) {
        external.one_of(&["Cluster", "Local"]);
    } else if !external.is_empty() {
        external.invalid("may only be set for externally-accessible services");
    }
    let check = spec.field("healthCheckNodePort");
    let number = check.number().unwrap_or(0);
    if !needs_health_check(spec.value()) {
        if number != 0 {
            check.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            );
        }
    } else if number == 0 {
        check.required("");
    } else {
        check.port_number();
    }
    spec.field("internalTrafficPolicy").one_of_if_set(&["Cluster", "Local"]);
    spec.field("trafficDistribution").one_of_if_set(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

fn status(service: &At, old: &Value) {
    let status = service.field("status");
    let balancer = status.field("loadBalancer");
    let ingresses = balancer.field("ingress");
    if service.field("spec").field("type").text() != "LoadBalancer" && !ingresses.is_empty() {
        return ingresses.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
    }
    let before: Vec<&str> = items(&old["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter_map(|ingress| ingress["ip"].as_str())
        .collect();
    for ingress in ingresses.items() {
        let (ip, mode) = (ingress.field("ip"), ingress.field("ipMode"));
        if !ip.is_empty() {
            ip.ip_address(&before);
        }
        if !mode.exists() {
            if !ip.is_empty() {
                mode.required("must be specified when `ip` is set");
            }
        } else if ip.is_empty() {
            mode.forbidden("may not be specified when `ip` is not set");
        } else {
            mode.one_of_if_set(&["Proxy", "VIP"]);
        }
        host_name(&ingress.field("hostname"));
    }
}

/// An address of a load balancer, as ingresses have them, too.
pub(super) fn load_balancer_address(ingress: &At, before: &[&str]) {
    if !ingress.field("ip").is_empty() {
        ingress.field("ip").ip_address(before);
    }
    host_name(&ingress.field("hostname"));
}

fn host_name(host: &At) {
    if host.is_empty() {
        return;
    }
    host.has_form(names::dns1123_subdomain);
    if formats::parse_ip_sloppy(host.text()).is_some() {
        host.invalid("must be a DNS name, not an IP address");
    }
}
