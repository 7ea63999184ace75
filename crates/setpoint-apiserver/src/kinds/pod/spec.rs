//! The rules of a pod's spec, in the order in which kube-apiserver looks at it.

use super::super::at::At;
use super::super::formats;
use super::container::{self, Context};
use super::{affinity, environment, resources, scheduling, security, volume};
use crate::metadata::names;

/// Whose spec it is.
#[derive(Clone, Copy)]
pub(super) enum Of<'a, 'v, 'p> {
    /// A pod with this metadata.
    Pod(&'a At<'v, 'p>),
    Template,
}

impl Of<'_, '_, '_> {
    fn pod_name(&self) -> &str {
        match self {
            Of::Pod(metadata) => metadata.field("name").text(),
            Of::Template => "",
        }
    }
}

pub(super) fn validate(spec: &At, of: Of) {
    validate_with(spec, of, &[]);
}

/// The same with volumes that the workload adds.
pub(super) fn validate_with(spec: &At, of: Of, claimed: &[&str]) {
    let volumes = volume::validate_list(&spec.field("volumes"), of.pod_name(), claimed);
    resources::claims(&spec.field("resourceClaims"));
    let context = Context::new(spec, &volumes);
    container::validate_containers(&spec.field("containers"), &context);
    container::validate_init_containers(&spec.field("initContainers"), &context);
    container::validate_ephemeral_containers(&spec.field("ephemeralContainers"), &context);
    resources::pod_level(spec);
    host_network_ports(spec, matches!(of, Of::Pod(_)));
    spec.field("restartPolicy").one_of(&["Always", "OnFailure", "Never"]);
    spec.field("dnsPolicy").one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    spec.field("nodeSelector").labels();
    security::pod(spec);
    if spec.field("shareProcessNamespace").is_true() && spec.field("hostPID").is_true() {
        spec.field("shareProcessNamespace")
            .invalid("ShareProcessNamespace and HostPID cannot both be enabled");
    }
    affinity::validate(&spec.field("affinity"));
    dns_config(spec);
    for gate in spec.field("readinessGates").items() {
        gate.field("conditionType").has_form(names::label_key);
    }
    scheduling::gates(&spec.field("schedulingGates"));
    scheduling::spread_constraints(&spec.field("topologySpreadConstraints"));
    host_users(spec);
    hostname_override(spec);
    names_of_others(spec);
    scheduling::tolerations(&spec.field("tolerations"));
    for alias in spec.field("hostAliases").items() {
        alias.field("ip").ip_address(&[]);
        alias.field("hostnames").items().for_each(|name| name.has_form(names::dns1123_subdomain));
    }
    spec.field("priorityClassName").has_form_if_set(names::dns1123_subdomain);
    if spec.field("runtimeClassName").exists() {
        spec.field("runtimeClassName").has_form(names::dns1123_subdomain);
    }
    if spec.field("preemptionPolicy").exists() {
        spec.field("preemptionPolicy").one_of(&["PreemptLowerPriority", "Never"]);
    }
    if spec.field("overhead").exists() {
        resources::overhead(&spec.field("overhead"));
    }
    operating_system(spec);
    environment::file_volumes(spec);
}

fn host_network_ports(spec: &At, is_pod: bool) {
    if !spec.field("hostNetwork").is_true() {
        return;
    }
    for container in spec.field("containers").items() {
        for port in container.field("ports").items() {
            let host = port.field("hostPort").number().unwrap_or(0);
            let inside = port.field("containerPort").number().unwrap_or(0);
            if (is_pod || host != 0) && host != inside {
                port.field("hostPort")
                    .invalid_number("must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(spec: &At) {
    let config = spec.field("dnsConfig");
    let servers = config.field("nameservers");
    if spec.field("dnsPolicy").text() == "None" {
        if !config.exists() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        servers.invalid("must not have more than 3 nameservers");
    }
    for server in servers.items() {
        server.ip_address(&[]);
    }
    let searches = config.field("searches");
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths");
    }
    let characters: usize = searches.texts().map(|search| search.len() + 1).sum();
    if characters.saturating_sub(1) > 2048 {
        searches.invalid("must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for problem in formats::search_domain(name) {
            search.invalid_as(name, problem);
        }
    }
    for option in config.field("options").items() {
        if option.field("name").is_empty() {
            option.required("must not be empty");
        }
    }
}

fn host_users(spec: &At) {
    if *spec.field("hostUsers").value() != false {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.field(field).is_true() {
            spec.alias(shown).forbidden("when `hostUsers` is false");
        }
    }
    for list in super::defaults::CONTAINERS {
        for container in spec.field(list).items() {
            if !container.field("volumeDevices").is_empty() {
                container.field("volumeDevices").forbidden("when `hostUsers` is false");
            }
        }
    }
}

fn hostname_override(spec: &At) {
    let name = spec.field("hostnameOverride");
    if !name.exists() {
        return;
    }
    if spec.field("setHostnameAsFQDN").is_true() {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.field("hostNetwork").is_true() {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.text().len() > 64 {
        name.too_long(64);
    }
    name.has_form(names::dns1123_subdomain);
}

fn names_of_others(spec: &At) {
    spec.field("serviceAccountName").has_form_if_set(names::dns1123_subdomain);
    spec.field("nodeName").has_form_if_set(names::dns1123_subdomain);
    let deadline = spec.field("activeDeadlineSeconds");
    if deadline.number().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        deadline.invalid("must be between 1 and 2147483647, inclusive");
    }
    spec.field("hostname").has_form_if_set(names::dns1123_label);
    spec.field("subdomain").has_form_if_set(names::dns1123_label);
}

fn operating_system(spec: &At) {
    let system = spec.field("os");
    if !system.exists() {
        return;
    }
    match system.field("name").text() {
        "" => system.field("name").required(""),
        "linux" => security::linux_only(spec),
        "windows" => security::windows_only(spec),
        name => system.not_supported_as(name, &["linux", "windows"]),
    }
}
