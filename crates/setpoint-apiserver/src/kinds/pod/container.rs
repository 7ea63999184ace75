//! Containers of a pod: those that run, those that run first, and those that are added to debug.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::at::At;
use super::super::formats;
use super::super::rules::PROTOCOLS;
use super::volume::Volumes;
use super::{environment, probe, resources, security, volume};
use crate::metadata::names;

/// What containers need to know of their pod.
pub(super) struct Context<'a, 'v> {
    pub(super) volumes: &'a Volumes<'v>,
    pub(super) grace: Option<i64>,
    pub(super) host_users: bool,
    pub(super) restart_policy: &'v str,
    /// The operating system; none when the pod does not say.
    pub(super) system: Option<&'v str>,
    /// Names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'v str>,
    spec: &'v Value,
}

impl<'a, 'v> Context<'a, 'v> {
    pub(super) fn new(spec: &At<'v, '_>, volumes: &'a Volumes<'v>) -> Self {
        let claims = super::super::at::items(&spec.value()["resourceClaims"]);
        Context {
            volumes,
            grace: spec.field("terminationGracePeriodSeconds").number(),
            host_users: *spec.field("hostUsers").value() != false,
            restart_policy: spec.field("restartPolicy").text(),
            system: spec.field("os").field("name").value().as_str(),
            claims: claims.iter().filter_map(|claim| claim["name"].as_str()).collect(),
            spec: spec.value(),
        }
    }

    fn names(&self, list: &str) -> impl Iterator<Item = &'v str> {
        super::super::at::items(&self.spec[list]).iter().filter_map(|container| container["name"].as_str())
    }
}

pub(super) fn validate_containers(containers: &At, context: &Context) {
    if containers.is_empty() {
        return containers.required("");
    }
    let mut names = BTreeSet::new();
    for container in containers.items() {
        common(&container, context);
        if !names.insert(container.field("name").text()) {
            container.field("name").duplicate();
        }
        probe::lifecycle(&container.field("lifecycle"), context);
        probe::validate_all(&container, context);
        restart_policy(&container);
    }
    host_ports(containers.items());
}

pub(super) fn validate_init_containers(containers: &At, context: &Context) {
    const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
    let mut names: BTreeSet<&str> = context.names("containers").collect();
    for container in containers.items() {
        common(&container, context);
        let policy = container.field("restartPolicy");
        let is_sidecar = policy.text() == "Always";
        if policy.exists() {
            restart_policy(&container);
        } else if !container.field("restartPolicyRules").is_empty() {
            policy.required("must specify restartPolicy when restart rules are used");
        }
        let name = container.field("name");
        if names.contains(name.text()) {
            name.duplicate();
        } else if !name.is_empty() {
            names.insert(name.text());
        }
        host_ports([container].into_iter());
        if is_sidecar {
            probe::lifecycle(&container.field("lifecycle"), context);
            probe::validate_all(&container, context);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.field(field).exists() {
                    container.field(field).forbidden(ONLY_SIDECARS);
                }
            }
            for policy in container.field("resizePolicy").items() {
                if policy.field("restartPolicy").text() == "RestartContainer" {
                    policy
                        .field("restartPolicy")
                        .invalid("must not be set to 'RestartContainer' for non-sidecar initContainers");
                }
            }
        }
    }
}

pub(super) fn validate_ephemeral_containers(containers: &At, context: &Context) {
    const NOT_HERE: &str = "cannot be set for an Ephemeral Container";
    let others: BTreeSet<&str> = context.names("containers").chain(context.names("initContainers")).collect();
    let mut names = others.clone();
    for container in containers.items() {
        common(&container, context);
        padded_image(&container);
        if !names.insert(container.field("name").text()) {
            container.field("name").duplicate();
        }
        let target = container.field("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        let unwanted = [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ];
        for field in unwanted.into_iter().filter(|field| !container.field(field).is_empty()) {
            container.field(field).forbidden(NOT_HERE);
        }
        for mount in container.field("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !mount.field(field).is_empty())
            {
                mount.field(field).forbidden(NOT_HERE);
            }
        }
    }
}

fn common(container: &At, context: &Context) {
    container.field("name").is_named(names::dns1123_label);
    container.field("image").has_text();
    container.field("terminationMessagePolicy").one_of(&["File", "FallbackToLogsOnError"]);
    ports(&container.field("ports"));
    environment::validate(&container.field("env"));
    environment::sources(&container.field("envFrom"));
    volume::mounts(container, context.volumes);
    volume::devices(container, context.volumes);
    container.field("imagePullPolicy").one_of(&["Always", "IfNotPresent", "Never"]);
    resources::of_container(&container.field("resources"), &context.claims);
    resize_policies(&container.field("resizePolicy"), context.restart_policy);
    security::container(&container.field("securityContext"), context.host_users);
}

fn ports(ports: &At) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        if !name.is_empty() {
            let problems = formats::port_name(name.text());
            if problems.is_empty() && !seen.insert(name.text()) {
                name.duplicate();
            }
            problems.into_iter().for_each(|problem| name.invalid(problem));
        }
        let inside = port.field("containerPort");
        if inside.number().unwrap_or(0) == 0 {
            inside.required("");
        } else {
            inside.port_number();
        }
        if port.field("hostPort").number().unwrap_or(0) != 0 {
            port.field("hostPort").port_number();
        }
        port.field("protocol").one_of(&PROTOCOLS);
    }
}

/// No two containers want the same port of the node.
fn host_ports<'v, 'p>(containers: impl Iterator<Item = At<'v, 'p>>) {
    let mut taken = BTreeSet::new();
    for container in containers {
        for port in container.field("ports").items() {
            let number = port.field("hostPort").number().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let text = |field: &str| port.field(field).text();
            let place = format!("{}/{}/{number}", text("protocol"), text("hostIP"));
            if taken.contains(&place) {
                port.field("hostPort").duplicate_as(place);
            } else {
                taken.insert(place);
            }
        }
    }
}

fn resize_policies(policies: &At, restart_policy: &str) {
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.field("resourceName").text(), policy.field("restartPolicy").text());
        if !seen.insert(resource) {
            policy.duplicate_as(resource);
        }
        policies.with(policy.field("resourceName").value()).one_of(&["cpu", "memory"]);
        policies.with(policy.field("restartPolicy").value()).one_of(&["NotRequired", "RestartContainer"]);
        if restart_policy == "Never" && restart != "NotRequired" {
            policies.invalid_as(restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_policy(container: &At) {
    let policy = container.field("restartPolicy");
    let rules = container.field("restartPolicyRules");
    if !policy.exists() && !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    policy.one_of_if_set(&["Always", "Never", "OnFailure"]);
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.items() {
        if !["Restart", "RestartAllContainers"].contains(&rule.field("action").text()) {
            rule.field("action").not_supported(&["Restart", "RestartAllContainers"]);
        }
        let codes = rule.field("exitCodes");
        if !codes.exists() {
            codes.required("must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&codes.field("operator").text()) {
            codes.field("operator").not_supported(&["In", "NotIn"]);
        }
        if codes.field("values").len() > 255 {
            codes.field("values").too_many(255);
        }
    }
}

/// Pods may not name an image with spaces around it; templates may.
pub(super) fn padded_image(container: &At) {
    let image = container.field("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}
