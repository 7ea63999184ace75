//! How kube-apiserver's registry treats the objects of each resource.
//!
//! The facts were read by hand from the strategies of Kubernetes 1.37 with its default feature
//! gates. A resource without an entry behaves as [`Behavior::DEFAULT`].

use std::time::Duration;

use serde_json::Value;

/// How the registry of kube-apiserver treats the objects of a resource.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Behavior {
    /// When `metadata.generation` counts.
    pub generation: Generation,
    /// Whether a create discards the status of the request.
    pub resets_status: bool,
    /// Whether an update of the object itself keeps the stored status; `/status` writes it.
    pub keeps_status: bool,
    /// What names may look like.
    pub name: NameStyle,
    /// Whether a PUT to a name that does not exist creates the object.
    pub create_on_update: bool,
    /// Whether a PUT may leave out `metadata.resourceVersion`.
    pub unconditional_update: bool,
    /// Whether a delete is graceful by default. Only pods are: for `spec.terminationGracePeriodSeconds`,
    /// but at once when they have no node or have already ended.
    pub graceful_deletion: bool,
    /// Whether a delete without a propagation policy orphans the dependents.
    pub orphans_dependents: bool,
    /// How long objects live after their last write.
    pub ttl: Option<Duration>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub field_labels: &'static [FieldLabel],
}

/// When `metadata.generation` counts. It starts at 1; a `deletionTimestamp` counts as a change too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Objects have none.
    Absent,
    /// It stays 1.
    Constant,
    /// It counts changes of these top-level fields.
    Fields(&'static [&'static str]),
    /// It counts changes of these top-level fields and of `metadata.annotations`.
    FieldsOrAnnotations(&'static [&'static str]),
    /// It counts changes of these top-level fields and of `metadata.labels`.
    FieldsOrLabels(&'static [&'static str]),
    /// It counts changes of everything but `metadata`: custom resources.
    Content,
}

impl Generation {
    /// Whether an update from `old` to `new` raises the generation.
    pub fn counts(self, old: &Value, new: &Value) -> bool {
        let differ = |fields: &[&str]| fields.iter().any(|field| old.get(field) != new.get(field));
        let differ_at = |pointer: &str| old.pointer(pointer) != new.pointer(pointer);
        match self {
            Self::Absent | Self::Constant => false,
            Self::Fields(fields) => differ(fields),
            Self::FieldsOrAnnotations(fields) => differ(fields) || differ_at("/metadata/annotations"),
            Self::FieldsOrLabels(fields) => differ(fields) || differ_at("/metadata/labels"),
            Self::Content => {
                let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old != new };
                let names = old.keys().chain(new.keys()).filter(|name| *name != "metadata");
                names.into_iter().any(|name| old.get(name) != new.get(name))
            }
        }
    }
}

/// What the names of a kind may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameStyle {
    /// An RFC 1123 subdomain: at most 253 characters, dots allowed.
    DnsSubdomain,
    /// An RFC 1123 label: at most 63 characters, no dots.
    DnsLabel,
    /// Any segment of a URL path: not `.` or `..`, no `/` or `%`.
    PathSegment,
    /// An IP address in canonical form.
    IpAddress,
    /// `signer:with:colons:name` for a bundle with a signer, otherwise a subdomain.
    ClusterTrustBundle,
    /// `<plural>.<group>` of the spec.
    CustomResourceDefinition,
    /// `<version>.<group>` of the spec.
    ApiService,
}

/// A field selector that a resource supports.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FieldLabel {
    /// The label in `fieldSelector=label=value`.
    pub label: &'static str,
    /// The JSON pointer of the value in an object of the served version.
    pub pointer: &'static str,
    /// The pointer to use when the first one leads to nothing or to an empty string.
    pub fallback: Option<&'static str>,
    /// The value of an object where the pointer leads to nothing.
    pub default: &'static str,
    /// Whether the API server finds objects by it without looking at all of them: each value leaves few.
    pub indexed: bool,
}

impl FieldLabel {
    /// The value that a selector compares with.
    pub fn value(&self, object: &Value) -> String {
        let at = |pointer: &str| match object.pointer(pointer) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Value::Bool(flag)) => Some(flag.to_string()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        at(self.pointer).or_else(|| self.fallback.and_then(at)).unwrap_or_else(|| self.default.to_owned())
    }
}

const METADATA: &[FieldLabel] =
    &[label("metadata.name", "/metadata/name"), label("metadata.namespace", "/metadata/namespace")];

impl Behavior {
    /// What most kinds do.
    pub const DEFAULT: Self = Self {
        generation: Generation::Absent,
        resets_status: false,
        keeps_status: false,
        name: NameStyle::DnsSubdomain,
        create_on_update: false,
        unconditional_update: true,
        graceful_deletion: false,
        orphans_dependents: false,
        ttl: None,
        field_labels: &[],
    };

    /// Counts spec changes and has a status that only `/status` writes.
    const WORKLOAD: Self = Self { resets_status: true, keeps_status: true, ..Self::SPEC };
    /// Counts spec changes.
    const SPEC: Self = Self { generation: Generation::Fields(&["spec"]), ..Self::DEFAULT };
    /// Has a status that only `/status` writes, and no generation.
    const STATUS: Self = Self { resets_status: true, keeps_status: true, ..Self::DEFAULT };
    const RBAC: Self = Self { name: NameStyle::PathSegment, create_on_update: true, ..Self::DEFAULT };
    const EVENT: Self = Self {
        name: NameStyle::PathSegment,
        create_on_update: true,
        ttl: Some(Duration::from_secs(60 * 60)),
        ..Self::DEFAULT
    };
    const WEBHOOKS: Self =
        Self { generation: Generation::Fields(&["webhooks"]), unconditional_update: false, ..Self::DEFAULT };

    /// The same, but an update must name the resourceVersion that it replaces.
    const fn conditional(self) -> Self {
        Self { unconditional_update: false, ..self }
    }

    /// How the registry treats custom resources, with a status subresource or without.
    pub const fn custom(has_status: bool) -> Self {
        Self {
            generation: Generation::Content,
            resets_status: has_status,
            keeps_status: has_status,
            unconditional_update: false,
            ..Self::DEFAULT
        }
    }

    /// The supported field selector of this name, `metadata.name` and `metadata.namespace` included.
    pub fn field_label(&self, name: &str) -> Option<&'static FieldLabel> {
        self.field_labels.iter().chain(METADATA).find(|found| found.label == name)
    }
}

const fn label(label: &'static str, pointer: &'static str) -> FieldLabel {
    FieldLabel { label, pointer, fallback: None, default: "", indexed: false }
}

const fn label_or(label: &'static str, pointer: &'static str, default: &'static str) -> FieldLabel {
    FieldLabel { label, pointer, fallback: None, default, indexed: false }
}

const POD: &[FieldLabel] = &[
    FieldLabel { indexed: true, ..label("spec.nodeName", "/spec/nodeName") },
    label("spec.host", "/spec/nodeName"),
    label("spec.restartPolicy", "/spec/restartPolicy"),
    label("spec.schedulerName", "/spec/schedulerName"),
    label("spec.serviceAccountName", "/spec/serviceAccountName"),
    label_or("spec.hostNetwork", "/spec/hostNetwork", "false"),
    label("status.phase", "/status/phase"),
    label("status.podIP", "/status/podIPs/0/ip"),
    // Accepted, but kube-apiserver gives no pod a value for it.
    label("status.podIPs", "/status/podIPs"),
    label("status.nominatedNodeName", "/status/nominatedNodeName"),
];

const CORE_EVENT: &[FieldLabel] = &[
    label("involvedObject.kind", "/involvedObject/kind"),
    label("involvedObject.namespace", "/involvedObject/namespace"),
    label("involvedObject.name", "/involvedObject/name"),
    label("involvedObject.uid", "/involvedObject/uid"),
    label("involvedObject.apiVersion", "/involvedObject/apiVersion"),
    label("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
    label("involvedObject.fieldPath", "/involvedObject/fieldPath"),
    label("reason", "/reason"),
    label("reportingComponent", "/reportingComponent"),
    FieldLabel { fallback: Some("/reportingComponent"), ..label("source", "/source/component") },
    label("type", "/type"),
];

const NEW_EVENT: &[FieldLabel] = &[
    label("regarding.kind", "/regarding/kind"),
    label("regarding.namespace", "/regarding/namespace"),
    label("regarding.name", "/regarding/name"),
    label("regarding.uid", "/regarding/uid"),
    label("regarding.apiVersion", "/regarding/apiVersion"),
    label("regarding.resourceVersion", "/regarding/resourceVersion"),
    label("regarding.fieldPath", "/regarding/fieldPath"),
    label("reason", "/reason"),
    label("reportingController", "/reportingController"),
    label("type", "/type"),
];

const NAMESPACE: &[FieldLabel] = &[label("status.phase", "/status/phase")];
const NODE: &[FieldLabel] = &[label_or("spec.unschedulable", "/spec/unschedulable", "false")];
const REPLICATION_CONTROLLER: &[FieldLabel] = &[label_or("status.replicas", "/status/replicas", "0")];
const SECRET: &[FieldLabel] = &[label("type", "/type")];
const SERVICE: &[FieldLabel] =
    &[label("spec.clusterIP", "/spec/clusterIP"), label("spec.type", "/spec/type")];
const JOB: &[FieldLabel] = &[label_or("status.successful", "/status/succeeded", "0")];
const SIGNER: &[FieldLabel] = &[label("spec.signerName", "/spec/signerName")];
const POD_CERTIFICATE_REQUEST: &[FieldLabel] = &[
    label("spec.signerName", "/spec/signerName"),
    label("spec.podName", "/spec/podName"),
    label("spec.nodeName", "/spec/nodeName"),
];
const RESOURCE_SLICE: &[FieldLabel] = &[
    label("spec.nodeName", "/spec/nodeName"),
    label("spec.driver", "/spec/driver"),
    label("spec.pool.name", "/spec/pool/name"),
];

/// The behavior of a resource.
pub(crate) fn of(group: &str, plural: &str) -> Behavior {
    match group {
        "" => core(plural),
        "apps" | "batch" | "autoscaling" | "policy" => workloads(plural),
        "rbac.authorization.k8s.io" => Behavior::RBAC,
        "certificates.k8s.io" => certificates(plural),
        "admissionregistration.k8s.io" => admission(plural),
        "networking.k8s.io" | "discovery.k8s.io" => network(plural),
        "resource.k8s.io" => devices(plural),
        "storage.k8s.io" => storage(plural),
        _ => others(plural),
    }
}

fn core(plural: &str) -> Behavior {
    match plural {
        "endpoints" | "limitranges" => Behavior { create_on_update: true, ..Behavior::DEFAULT },
        "events" => Behavior { field_labels: CORE_EVENT, ..Behavior::EVENT },
        "namespaces" => Behavior { name: NameStyle::DnsLabel, field_labels: NAMESPACE, ..Behavior::STATUS },
        // A node may be created with its status: the kubelet does.
        "nodes" => Behavior { keeps_status: true, field_labels: NODE, ..Behavior::DEFAULT },
        "persistentvolumes" | "persistentvolumeclaims" | "resourcequotas" => Behavior::STATUS,
        "pods" => Behavior { graceful_deletion: true, field_labels: POD, ..Behavior::WORKLOAD },
        "podtemplates" => Behavior { generation: Generation::Fields(&["template"]), ..Behavior::DEFAULT },
        "replicationcontrollers" => {
            Behavior { orphans_dependents: true, field_labels: REPLICATION_CONTROLLER, ..Behavior::WORKLOAD }
        }
        "secrets" => Behavior { field_labels: SECRET, ..Behavior::DEFAULT },
        // Since 1.37 a service may be called as any RFC 1123 label, so it may start with a digit.
        "services" => Behavior {
            name: NameStyle::DnsLabel,
            create_on_update: true,
            field_labels: SERVICE,
            ..Behavior::STATUS
        },
        _ => Behavior::DEFAULT,
    }
}

fn workloads(plural: &str) -> Behavior {
    match plural {
        "daemonsets" | "replicasets" | "cronjobs" | "horizontalpodautoscalers" => Behavior::WORKLOAD,
        "deployments" => {
            Behavior { generation: Generation::FieldsOrAnnotations(&["spec"]), ..Behavior::WORKLOAD }
        }
        "jobs" => Behavior { orphans_dependents: true, field_labels: JOB, ..Behavior::WORKLOAD },
        "statefulsets" => Behavior { name: NameStyle::DnsLabel, ..Behavior::WORKLOAD },
        "poddisruptionbudgets" => {
            Behavior { name: NameStyle::PathSegment, ..Behavior::WORKLOAD.conditional() }
        }
        _ => Behavior::DEFAULT,
    }
}

fn certificates(plural: &str) -> Behavior {
    match plural {
        "certificatesigningrequests" => {
            Behavior { name: NameStyle::PathSegment, field_labels: SIGNER, ..Behavior::STATUS }
        }
        "clustertrustbundles" => Behavior {
            name: NameStyle::ClusterTrustBundle,
            field_labels: SIGNER,
            ..Behavior::DEFAULT.conditional()
        },
        "podcertificaterequests" => {
            Behavior { field_labels: POD_CERTIFICATE_REQUEST, ..Behavior::STATUS.conditional() }
        }
        _ => Behavior::DEFAULT,
    }
}

fn admission(plural: &str) -> Behavior {
    const POLICY: Behavior = Behavior::SPEC.conditional();
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => Behavior::WEBHOOKS,
        "validatingadmissionpolicies" => Behavior { resets_status: true, keeps_status: true, ..POLICY },
        _ => POLICY,
    }
}

fn network(plural: &str) -> Behavior {
    match plural {
        "ingresses" => Behavior::WORKLOAD,
        "ingressclasses" | "networkpolicies" => Behavior::SPEC,
        "ipaddresses" => Behavior { name: NameStyle::IpAddress, ..Behavior::DEFAULT },
        "servicecidrs" => Behavior::STATUS,
        "endpointslices" => Behavior {
            generation: Generation::FieldsOrLabels(&["addressType", "endpoints", "ports"]),
            ..Behavior::DEFAULT
        },
        _ => Behavior::DEFAULT,
    }
}

fn devices(plural: &str) -> Behavior {
    match plural {
        "deviceclasses" => Behavior::SPEC,
        "devicetaintrules" => Behavior::WORKLOAD,
        "resourceclaims" => Behavior::STATUS,
        "resourceslices" => Behavior { field_labels: RESOURCE_SLICE, ..Behavior::SPEC },
        _ => Behavior::DEFAULT,
    }
}

fn storage(plural: &str) -> Behavior {
    const CONDITIONAL: Behavior = Behavior::DEFAULT.conditional();
    match plural {
        "csidrivers" | "csistoragecapacities" => CONDITIONAL,
        "csinodes" | "volumeattachments" => Behavior::STATUS.conditional(),
        _ => Behavior::DEFAULT,
    }
}

fn others(plural: &str) -> Behavior {
    match plural {
        "apiservices" => Behavior { name: NameStyle::ApiService, ..Behavior::STATUS.conditional() },
        "customresourcedefinitions" => {
            Behavior { name: NameStyle::CustomResourceDefinition, ..Behavior::WORKLOAD.conditional() }
        }
        "events" => Behavior { field_labels: NEW_EVENT, ..Behavior::EVENT },
        "flowschemas" | "prioritylevelconfigurations" => Behavior::WORKLOAD,
        "leases" | "runtimeclasses" => Behavior { create_on_update: true, ..Behavior::DEFAULT.conditional() },
        "priorityclasses" => Behavior { generation: Generation::Constant, ..Behavior::DEFAULT },
        "storageversionmigrations" => Behavior::STATUS.conditional(),
        _ => Behavior::DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_counts_annotations_as_a_change_and_a_replica_set_does_not() {
        let old = json!({"metadata": {}, "spec": {"replicas": 1}, "status": {"replicas": 0}});
        let annotated = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1}});
        assert!(of("apps", "deployments").generation.counts(&old, &annotated));
        assert!(!of("apps", "replicasets").generation.counts(&old, &annotated));
        assert!(!of("", "configmaps").generation.counts(&old, &annotated));
    }

    #[test]
    fn field_labels_have_the_value_of_the_object_or_a_default() {
        let pods = of("", "pods");
        let pod = json!({"metadata": {"name": "a"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        let value = |name| pods.field_label(name).map(|label| label.value(&pod));
        assert_eq!(value("metadata.name").as_deref(), Some("a"));
        assert_eq!(value("status.podIP").as_deref(), Some("10.0.0.1"));
        assert_eq!(value("spec.hostNetwork").as_deref(), Some("false"));
        assert_eq!(value("spec.nodeName").as_deref(), Some(""));
        assert_eq!(value("spec.foo"), None);
    }

    #[test]
    fn the_source_of_an_event_falls_back_to_its_reporting_component() {
        let source = of("", "events").field_label("source").expect("a label");
        assert_eq!(source.value(&json!({"source": {}, "reportingComponent": "kubelet"})), "kubelet");
    }
}
