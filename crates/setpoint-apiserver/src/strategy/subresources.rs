//! The table of paths: what a write on each path of a resource takes from the request, and who answers it.
//!
//! The rows follow the strategies of kube-apiserver 1.37 (`PrepareForUpdate`, `GetResetFields`), with its default
//! feature gates. A subresource without a row is not served.

use super::Part;

/// A field, by the names that lead to it. [`EACH`] stands for every item of a list.
pub(crate) type FieldPath = &'static [&'static str];

/// Every item of a list, paired with the old item at the same place.
pub(crate) const EACH: &str = "*";

/// One path below a resource.
#[derive(Debug)]
pub(crate) struct Subresource {
    group: &'static str,
    plural: &'static str,
    pub(crate) name: &'static str,
    pub(crate) speaks: Speaks,
}

/// Who answers a path, and in which kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Speaks {
    /// The object itself, in its own kind; a write takes a part of it.
    Part(Part, &'static Writes),
    /// `autoscaling/v1` Scale.
    Scale,
    /// `v1` Binding.
    Binding,
    /// `policy/v1` Eviction.
    Eviction,
    /// `authentication.k8s.io/v1` TokenRequest.
    Token,
    /// A kubelet, of which there is none.
    Kubelet,
}

/// What a write on a path changes. Whatever is not named stays as it is stored.
#[derive(Debug)]
pub(crate) struct Writes {
    /// What is taken of everything but the metadata.
    pub(crate) content: Fields,
    /// What is taken of the metadata. The server's own fields in it are never taken.
    pub(crate) metadata: Metadata,
    /// Whether a change of intent raises the generation.
    pub(crate) counts: bool,
    /// The fields that a manager owns by writing them here.
    pub(crate) owned: Fields,
}

/// Some fields of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fields {
    AllBut(&'static [FieldPath]),
    Only(&'static [FieldPath]),
    /// Where the kind has its replicas.
    Replicas,
}

/// Some fields of an object's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    AllBut(&'static [&'static str]),
    None,
}

use Fields::{AllBut, Only};

const ALL: Metadata = Metadata::AllBut(&[]);
const STATUS_FIELD: &[FieldPath] = &[&["status"]];
const EPHEMERAL: &[FieldPath] = &[&["spec", "ephemeralContainers"]];

impl Writes {
    /// A kind without a status of its own.
    const EVERYTHING: Writes =
        Writes { content: AllBut(&[]), metadata: ALL, counts: true, owned: AllBut(&[]) };
    /// A kind whose status has a path of its own.
    const BUT_STATUS: Writes =
        Writes { content: AllBut(STATUS_FIELD), owned: AllBut(STATUS_FIELD), ..Writes::EVERYTHING };
    /// What the server itself changes on behalf of a Binding or an Eviction; there is no strategy in between.
    const INTERNAL: Writes = Writes { counts: false, ..Writes::EVERYTHING };
    /// A path that is in no row.
    const NOTHING: Writes =
        Writes { content: Only(&[]), metadata: Metadata::None, counts: false, owned: Only(&[]) };

    const STATUS: Writes =
        Writes { content: Only(STATUS_FIELD), metadata: ALL, counts: false, owned: AllBut(&[&["spec"]]) };
    /// The status of kinds that came later: it writes no metadata.
    const STATUS_ALONE: Writes =
        Writes { metadata: Metadata::None, owned: AllBut(&[&["metadata"], &["spec"]]), ..Writes::STATUS };
    const POD_STATUS: Writes = Writes {
        metadata: Metadata::AllBut(&["deletionTimestamp", "ownerReferences"]),
        owned: AllBut(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
        ..Writes::STATUS
    };
    const DEPLOYMENT_STATUS: Writes = Writes {
        metadata: Metadata::AllBut(&["labels"]),
        owned: AllBut(&[&["spec"], &["metadata", "labels"]]),
        ..Writes::STATUS
    };
    const EPHEMERAL_CONTAINERS: Writes =
        Writes { content: Only(EPHEMERAL), metadata: Metadata::None, counts: true, owned: Only(EPHEMERAL) };
    const RESIZE: Writes = Writes {
        content: Only(&[
            &["spec", "containers", EACH, "resources"],
            &["spec", "containers", EACH, "resizePolicy"],
            &["spec", "initContainers", EACH, "resources"],
            &["spec", "initContainers", EACH, "resizePolicy"],
            &["spec", "resources"],
        ]),
        metadata: Metadata::None,
        counts: true,
        // The resources of the pod as a whole are taken, but nobody owns them by it.
        owned: Only(&[
            &["spec", "containers", EACH, "resources"],
            &["spec", "containers", EACH, "resizePolicy"],
            &["spec", "initContainers", EACH, "resources"],
            &["spec", "initContainers", EACH, "resizePolicy"],
        ]),
    };
    const SCALE: Writes =
        Writes { content: Fields::Replicas, metadata: Metadata::None, counts: true, owned: AllBut(&[]) };

    /// Only `/finalize` takes finalizers off the spec of a namespace.
    const NAMESPACE: Writes =
        Writes { content: AllBut(&[&["spec", "finalizers"], &["status"]]), ..Writes::BUT_STATUS };
    const FINALIZE: Writes =
        Writes { content: Only(&[&["spec"]]), owned: AllBut(STATUS_FIELD), ..Writes::EVERYTHING };

    /// What is asked for never changes: whoever approves it has read it.
    const SIGNING_REQUEST: Writes = Writes {
        content: AllBut(&[&["spec"], &["status"]]),
        owned: AllBut(&[&["spec"], &["status"]]),
        ..Writes::EVERYTHING
    };
    const SIGNING_REQUEST_STATUS: Writes =
        Writes { owned: AllBut(&[&["spec"], &["status", "conditions"]]), ..Writes::STATUS };
    const APPROVAL: Writes = Writes {
        content: Only(&[&["status", "conditions"]]),
        owned: AllBut(&[&["spec"], &["status", "certificate"]]),
        ..Writes::STATUS
    };
}

const fn row(group: &'static str, plural: &'static str, name: &'static str, speaks: Speaks) -> Subresource {
    Subresource { group, plural, name, speaks }
}

const STATUS: Speaks = Speaks::Part(Part::Status, &Writes::STATUS);
const STATUS_ALONE: Speaks = Speaks::Part(Part::Status, &Writes::STATUS_ALONE);

/// Every subresource of the built-in kinds.
static TABLE: &[Subresource] = &[
    row("", "namespaces", "finalize", Speaks::Part(Part::Finalize, &Writes::FINALIZE)),
    row("", "namespaces", "status", STATUS),
    row("", "nodes", "proxy", Speaks::Kubelet),
    row("", "nodes", "status", STATUS),
    row("", "persistentvolumeclaims", "status", STATUS),
    row("", "persistentvolumes", "status", STATUS),
    row("", "pods", "attach", Speaks::Kubelet),
    row("", "pods", "binding", Speaks::Binding),
    row(
        "",
        "pods",
        "ephemeralcontainers",
        Speaks::Part(Part::EphemeralContainers, &Writes::EPHEMERAL_CONTAINERS),
    ),
    row("", "pods", "eviction", Speaks::Eviction),
    row("", "pods", "exec", Speaks::Kubelet),
    row("", "pods", "log", Speaks::Kubelet),
    row("", "pods", "portforward", Speaks::Kubelet),
    row("", "pods", "proxy", Speaks::Kubelet),
    row("", "pods", "resize", Speaks::Part(Part::Resize, &Writes::RESIZE)),
    row("", "pods", "status", Speaks::Part(Part::Status, &Writes::POD_STATUS)),
    row("", "replicationcontrollers", "scale", Speaks::Scale),
    row("", "replicationcontrollers", "status", STATUS),
    row("", "resourcequotas", "status", STATUS),
    row("", "serviceaccounts", "token", Speaks::Token),
    row("", "services", "proxy", Speaks::Kubelet),
    row("", "services", "status", STATUS),
    row("admissionregistration.k8s.io", "validatingadmissionpolicies", "status", STATUS_ALONE),
    // The controllers of definitions take their finalizer off through the status.
    row("apiextensions.k8s.io", "customresourcedefinitions", "status", STATUS),
    row("apiregistration.k8s.io", "apiservices", "status", STATUS_ALONE),
    row("apps", "daemonsets", "status", STATUS),
    row("apps", "deployments", "scale", Speaks::Scale),
    row("apps", "deployments", "status", Speaks::Part(Part::Status, &Writes::DEPLOYMENT_STATUS)),
    row("apps", "replicasets", "scale", Speaks::Scale),
    row("apps", "replicasets", "status", STATUS),
    row("apps", "statefulsets", "scale", Speaks::Scale),
    row("apps", "statefulsets", "status", STATUS),
    row("autoscaling", "horizontalpodautoscalers", "status", STATUS),
    row("batch", "cronjobs", "status", STATUS),
    row("batch", "jobs", "status", STATUS),
    row(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "approval",
        Speaks::Part(Part::Approval, &Writes::APPROVAL),
    ),
    row(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "status",
        Speaks::Part(Part::Status, &Writes::SIGNING_REQUEST_STATUS),
    ),
    row("certificates.k8s.io", "podcertificaterequests", "status", STATUS_ALONE),
    row("flowcontrol.apiserver.k8s.io", "flowschemas", "status", STATUS_ALONE),
    row("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "status", STATUS_ALONE),
    row("networking.k8s.io", "ingresses", "status", STATUS),
    row("networking.k8s.io", "servicecidrs", "status", STATUS_ALONE),
    row("policy", "poddisruptionbudgets", "status", STATUS),
    row("resource.k8s.io", "devicetaintrules", "status", STATUS_ALONE),
    row("resource.k8s.io", "resourceclaims", "status", STATUS_ALONE),
    row("storage.k8s.io", "csinodes", "status", STATUS_ALONE),
    row("storage.k8s.io", "volumeattachments", "status", STATUS_ALONE),
    row("storagemigration.k8s.io", "storageversionmigrations", "status", STATUS_ALONE),
];

/// The subresources that a CustomResourceDefinition may have.
static CUSTOM: &[Subresource] = &[row("", "", "scale", Speaks::Scale), row("", "", "status", STATUS_ALONE)];

/// The paths of one resource.
#[derive(Debug)]
pub(crate) struct Paths {
    main: &'static Writes,
    below: Box<[&'static Subresource]>,
}

impl Paths {
    /// Those of a built-in kind.
    pub(crate) fn built_in(group: &str, plural: &str, keeps_status: bool) -> Paths {
        let main = match (group, plural) {
            ("", "namespaces") => &Writes::NAMESPACE,
            ("certificates.k8s.io", "certificatesigningrequests") => &Writes::SIGNING_REQUEST,
            _ => Paths::main(keeps_status),
        };
        let below = TABLE.iter().filter(|row| (row.group, row.plural) == (group, plural));
        Paths { main, below: below.collect() }
    }

    /// Those of a custom resource.
    pub(crate) fn custom(has: impl Fn(&str) -> bool) -> Paths {
        Paths { main: Paths::main(has("status")), below: CUSTOM.iter().filter(|row| has(row.name)).collect() }
    }

    fn main(keeps_status: bool) -> &'static Writes {
        if keeps_status { &Writes::BUT_STATUS } else { &Writes::EVERYTHING }
    }

    /// The path of this name below the object.
    pub(crate) fn below(&self, name: &str) -> Option<&'static Subresource> {
        self.below.iter().copied().find(|row| row.name == name)
    }

    /// What a write of a part takes.
    pub(crate) fn writes(&self, part: Part) -> &'static Writes {
        let of_part = |row: &&'static Subresource| match row.speaks {
            Speaks::Part(found, writes) if found == part => Some(writes),
            _ => None,
        };
        match part {
            Part::Whole => &Writes::INTERNAL,
            Part::Main => self.main,
            Part::Scale => &Writes::SCALE,
            _ => self.below.iter().find_map(of_part).unwrap_or(&Writes::NOTHING),
        }
    }

    /// The fields that a manager owns by writing them on the path of this name; empty for the object itself.
    pub(crate) fn owned(&self, name: &str) -> Fields {
        match self.below(name).map(|row| row.speaks) {
            Some(Speaks::Part(_, writes)) => writes.owned,
            Some(_) => AllBut(&[]),
            None => self.main.owned,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_subresource_that_is_served_has_a_row_and_every_row_is_served() {
        let mut served = BTreeSet::new();
        for resource in setpoint_kinds::table().resources() {
            for sub in &resource.subresources {
                served.insert((resource.group, resource.plural, sub.name));
            }
        }
        let rows: Vec<_> = TABLE.iter().map(|row| (row.group, row.plural, row.name)).collect();
        assert_eq!(rows.iter().copied().collect::<BTreeSet<_>>(), served);
        assert!(rows.is_sorted_by(|a, b| a < b), "sorted, and each once");
    }

    #[test]
    fn a_row_speaks_the_kind_that_discovery_tells() {
        for resource in setpoint_kinds::table().resources() {
            for sub in &resource.subresources {
                let row = TABLE
                    .iter()
                    .find(|row| {
                        (row.group, row.plural, row.name) == (resource.group, resource.plural, sub.name)
                    })
                    .expect("it has a row");
                let own = (sub.group, sub.kind) == (resource.group, resource.kind);
                let expect = match row.speaks {
                    Speaks::Part(..) => own,
                    // Logs are told as if they were pods.
                    Speaks::Kubelet => sub.kind.ends_with("Options") || sub.name == "log",
                    Speaks::Scale => sub.kind == "Scale",
                    Speaks::Binding => sub.kind == "Binding",
                    Speaks::Eviction => sub.kind == "Eviction",
                    Speaks::Token => sub.kind == "TokenRequest",
                };
                assert!(expect, "{}/{}: {}", resource.plural, sub.name, sub.kind);
            }
        }
    }

    #[test]
    fn a_status_with_a_path_of_its_own_is_not_written_on_another() {
        for resource in setpoint_kinds::table().resources() {
            let behavior = resource.behavior();
            let paths = Paths::built_in(resource.group, resource.plural, behavior.keeps_status);
            let Fields::AllBut(kept) = paths.writes(Part::Main).content else {
                panic!("{}", resource.plural)
            };
            let has_status = resource.subresource("status").is_some();
            assert_eq!(kept.contains(&STATUS_FIELD[0]), has_status, "{}", resource.plural);
        }
        assert!(matches!(Paths::custom(|_| true).writes(Part::Main).content, AllBut([["status"]])));
        assert!(matches!(Paths::custom(|_| false).writes(Part::Main).content, AllBut([])));
    }

    #[test]
    fn a_custom_resource_has_the_paths_of_its_definition() {
        let both = Paths::custom(|_| true);
        assert!(both.below("status").is_some() && both.below("scale").is_some());
        let scale = Paths::custom(|name| name == "scale");
        assert!(scale.below("status").is_none() && scale.below("scale").is_some());
        assert!(both.below("finalize").is_none());
        assert!(matches!(scale.writes(Part::Status).content, Only([])), "what has no row takes nothing");
    }
}
