//! What the server knows about single kinds, beyond the table: what it fills in and which rules they obey, a
//! file a kind.
//!
//! - [`default`] fills in what a decoded object leaves to the server.
//! - [`prepare_create`] and [`prepare_update`] set what the server decides, whatever the request says.
//! - [`validate`] finds everything that is wrong, in kube-apiserver's words and order.
//!
//! Objects are in the served version and conform to their kind (`setpoint_kinds::conform`), so rules find
//! values of the right types. The vocabulary of rules is in `at.rs` and `rules.rs`.

mod admission_policy;
mod api_service;
mod at;
mod certificate_signing_request;
mod cluster_trust_bundle;
mod config_map;
mod cron;
mod cron_job;
mod custom_resource;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod difference;
mod endpoints;
mod event;
mod fill;
pub(crate) mod formats;
mod horizontal_pod_autoscaler;
mod ingress;
mod ip_address;
mod job;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
pub(crate) mod pod;
mod policy;
mod rbac;
mod replica_set;
mod replication_controller;
mod resource_quota;
mod rules;
mod secret;
mod service;
mod service_account;
mod service_cidr;
mod stateful_set;
mod webhook_configuration;
mod workload;

use serde_json::Value;
use setpoint_env::Env;

use crate::convert;
use crate::field_error::FieldError;
use crate::metadata;
use crate::object::metadata_mut;
use crate::resource::Resource;
use crate::server::Core;
use crate::strategy::{self, Part};
use crate::user::User;
use at::{At, Errors};
pub(crate) use certificate_signing_request::organizations as requested_organizations;
pub(crate) use policy::SYSTEM_CLASSES;
pub(crate) use service::node_ports::Orphans;
pub(crate) use service::{allocation, network};

/// Fills in what a decoded object leaves to the server, on every write.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if let Some(custom) = resource.definition() {
        if let Some(program) = &custom.program {
            program.default(&custom.version, object);
        }
        return;
    }
    match (resource.group(), resource.plural()) {
        ("", "endpoints") => endpoints::default(object),
        ("", "limitranges") => resource_quota::default_limit_range(object),
        ("", "namespaces") => namespace::default(object),
        ("", "nodes") => node::default(object),
        ("", "persistentvolumeclaims") => persistent_volume_claim::default(object),
        ("", "persistentvolumes") => persistent_volume::default(object),
        ("", "pods") => pod::default(object),
        ("", "podtemplates") => pod::template::default_in_object(object),
        ("", "replicationcontrollers") => replication_controller::default(object),
        ("", "resourcequotas") => resource_quota::default(object),
        ("", "secrets") => secret::default(object),
        ("", "services") => service::default(object),
        ("admissionregistration.k8s.io", plural) if plural.ends_with("webhookconfigurations") => {
            webhook_configuration::default(object, plural.starts_with("mutating"));
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => admission_policy::default(object),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            admission_policy::default_binding(object);
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => custom_resource_definition::default(object),
        ("apiregistration.k8s.io", "apiservices") => api_service::default(object),
        ("apps", "daemonsets") => daemon_set::default(object),
        ("apps", "deployments") => deployment::default(object),
        ("apps", "replicasets") => replica_set::default(object),
        ("apps", "statefulsets") => stateful_set::default(object),
        ("autoscaling", "horizontalpodautoscalers") if resource.is_converted() => {
            horizontal_pod_autoscaler::default_v1(object);
        }
        ("autoscaling", "horizontalpodautoscalers") => horizontal_pod_autoscaler::default(object),
        ("batch", "cronjobs") => cron_job::default(object),
        ("batch", "jobs") => job::default(object),
        ("discovery.k8s.io", "endpointslices") => endpoints::default_slice(object),
        ("networking.k8s.io", "ingressclasses") => ingress::default_class(object),
        ("networking.k8s.io", "networkpolicies") => network_policy::default(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rbac::default_binding(object);
        }
        ("rbac.authorization.k8s.io", _) => rbac::default_role(object),
        ("scheduling.k8s.io", "priorityclasses") => policy::default_priority_class(object),
        ("storage.k8s.io", "storageclasses") => policy::default_storage_class(object),
        _ => {}
    }
}

/// Sets what a new object begins with, whatever the request says.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, env: &Env) {
    match (resource.group(), resource.plural()) {
        ("", "limitranges") if crate::object::name(object).is_empty() => {
            // As in kube-apiserver, they need no name.
            metadata_mut(object).insert("name".to_owned(), env.uuid().into());
        }
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "nodes") => node::prepare_create(object),
        ("", "persistentvolumeclaims") => persistent_volume_claim::prepare_create(object),
        ("", "persistentvolumes") => {
            persistent_volume::prepare_create(object, strategy::timestamp(env.now()));
        }
        ("", "pods") => pod::prepare_create(object, strategy::timestamp(env.now())),
        ("", "serviceaccounts") => service_account::clean(object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            custom_resource_definition::store_version(object);
        }
        ("apps", "daemonsets") => daemon_set::prepare_create(object),
        ("batch", "jobs") => job::prepare_create(object),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            certificate_signing_request::prepare_create(object);
        }
        ("coordination.k8s.io", "leases") => policy::prepare_lease(object),
        _ => {}
    }
}

/// Notes in a new object who asked for it, where its kind does.
pub(crate) fn identify(resource: &Resource, object: &mut Value, user: &User) {
    if (resource.group(), resource.plural()) == ("certificates.k8s.io", "certificatesigningrequests") {
        certificate_signing_request::identify(object, user);
    }
}

/// Sets what the server decides about a new state of an object. What the path cannot change is back in place already.
pub(crate) fn prepare_update(resource: &Resource, part: Part, old: &Value, new: &mut Value, env: &Env) {
    let now = || strategy::timestamp(env.now());
    match (resource.group(), resource.plural()) {
        ("", "nodes") => node::prepare_update(new, old, part),
        ("", "persistentvolumeclaims") => persistent_volume_claim::prepare_update(new, part),
        ("", "persistentvolumes") => persistent_volume::prepare_update(new, old, part, now),
        ("", "pods") => pod::prepare_update(new, old, part),
        ("", "serviceaccounts") => service_account::clean(new),
        ("", "services") => service::prepare_update(new, old, part),
        ("apiextensions.k8s.io", "customresourcedefinitions") if part == Part::Main => {
            custom_resource_definition::store_version(new);
        }
        ("apps", "daemonsets") => daemon_set::prepare_update(new, old, part),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            certificate_signing_request::prepare_update(new, old, part, &now());
        }
        ("coordination.k8s.io", "leases") => policy::prepare_lease(new),
        _ => {}
    }
}

/// Whether objects of this kind get addresses and ports that no other has.
pub(crate) fn has_allocations(resource: &Resource) -> bool {
    (resource.group(), resource.plural()) == ("", "services")
}

/// Gives back what an object that is gone had to itself.
pub(crate) async fn release(core: &Core, resource: &Resource, object: &Value) {
    if has_allocations(resource) {
        allocation::release_all(core, object).await;
    }
}

/// Everything that is wrong with an object beyond what was `found` in its metadata; `old` is what it was before an
/// update of `part`.
pub(crate) fn validate(
    resource: &Resource,
    part: Part,
    object: &Value,
    old: Option<&Value>,
    found: &[FieldError],
) -> Vec<FieldError> {
    if part == Part::Whole {
        // The server itself has made this change.
        return Vec::new();
    }
    if let Some(custom) = resource.definition() {
        let mut errors = custom_resource::validate(custom, part, object, old, found);
        if let Some(program) = custom.program.as_ref().filter(|_| errors.is_empty() && found.is_empty()) {
            errors = program.validate(&custom.version, object, old);
        }
        return errors;
    }
    let errors = Errors::default();
    if asks_more_of_finalizers(resource) {
        errors.extend(metadata::validate_kube_finalizers(&object["metadata"]));
    }
    let group = resource.group();
    if (group, resource.is_converted()) == ("autoscaling", true) {
        // Every version is checked as the one that is stored.
        let hub = convert::to_stored(resource, object.clone());
        horizontal_pod_autoscaler::validate(&At::root(&hub, &errors), part);
        return errors.into_vec();
    }
    let at = At::root(object, &errors);
    match group {
        "" => validate_core(resource.plural(), &at, old, part),
        "apps" | "batch" | "autoscaling" | "policy" => validate_workload(resource.plural(), &at, old, part),
        _ => validate_other(resource, &at, old, part),
    }
    errors.into_vec()
}

/// What is wrong with the kind that a custom resource says it is.
pub(crate) fn wrong_kind(resource: &Resource, object: &Value) -> Option<FieldError> {
    resource.definition()?;
    let (found, expected) = (&object["kind"], resource.kind());
    (*found != expected).then(|| FieldError::invalid("kind", found.clone(), format!("must be {expected}")))
}

/// Most kinds of Kubernetes take no finalizers without a domain.
fn asks_more_of_finalizers(resource: &Resource) -> bool {
    !matches!(
        resource.group(),
        "rbac.authorization.k8s.io"
            | "coordination.k8s.io"
            | "policy"
            | "events.k8s.io"
            | "apiextensions.k8s.io"
    ) && resource.plural() != "events"
}

fn validate_core(plural: &str, at: &At, old: Option<&Value>, part: Part) {
    match plural {
        "configmaps" => config_map::validate(at, old),
        "endpoints" => endpoints::validate(at, old),
        "events" => event::validate_core(at),
        "limitranges" => resource_quota::validate_limit_range(at),
        "namespaces" => namespace::validate(at, part),
        "nodes" => node::validate(at, old, part),
        "persistentvolumeclaims" => persistent_volume_claim::validate(at, old, part),
        "persistentvolumes" => persistent_volume::validate(at, old, part),
        "pods" => match old {
            None => pod::validate_create(at),
            Some(old) => pod::validate_update(at, old, part),
        },
        "podtemplates" => pod::template::validate(&at.field("template")),
        "replicationcontrollers" => replication_controller::validate(at, old, part),
        "resourcequotas" => resource_quota::validate(at, old, part),
        "secrets" => secret::validate(at, old),
        "services" => service::validate(at, old, part),
        _ => {}
    }
}

fn validate_workload(plural: &str, at: &At, old: Option<&Value>, part: Part) {
    match plural {
        "cronjobs" => cron_job::validate(at, old, part),
        "daemonsets" => daemon_set::validate(at, old, part),
        "deployments" => deployment::validate(at, old, part),
        "horizontalpodautoscalers" => horizontal_pod_autoscaler::validate(at, part),
        "jobs" => job::validate(at, old, part),
        "poddisruptionbudgets" => policy::validate_disruption_budget(at, part),
        "replicasets" => replica_set::validate(at, old, part),
        "statefulsets" => stateful_set::validate(at, old, part),
        _ => {}
    }
}

fn validate_other(resource: &Resource, at: &At, old: Option<&Value>, part: Part) {
    match resource.plural() {
        "apiservices" if part != Part::Status => api_service::validate(at),
        "certificatesigningrequests" => certificate_signing_request::validate(at, old, part),
        "clustertrustbundles" => cluster_trust_bundle::validate(at, old),
        "customresourcedefinitions" if part == Part::Status => {
            custom_resource_definition::validate_status(at)
        }
        "customresourcedefinitions" => custom_resource_definition::validate(at, old),
        "clusterrolebindings" | "rolebindings" => rbac::validate_binding(at, old, resource.is_namespaced()),
        "clusterroles" | "roles" => rbac::validate_role(at, resource.is_namespaced()),
        "endpointslices" => endpoints::validate_slice(at, old),
        "events" => event::validate_events(at, old),
        "ipaddresses" => ip_address::validate(at, old),
        "ingressclasses" => ingress::validate_class(at, old),
        "ingresses" => ingress::validate(at, old, part),
        "leases" => policy::validate_lease(at),
        "mutatingwebhookconfigurations" => webhook_configuration::validate(at, true),
        "networkpolicies" => network_policy::validate(at, old),
        "priorityclasses" => policy::validate_priority_class(at, old),
        "servicecidrs" if part != Part::Status => service_cidr::validate(at, old),
        "storageclasses" => policy::validate_storage_class(at, old),
        "validatingadmissionpolicies" => admission_policy::validate(at),
        "validatingadmissionpolicybindings" => admission_policy::validate_binding(at),
        "validatingwebhookconfigurations" => webhook_configuration::validate(at, false),
        _ => {}
    }
}
