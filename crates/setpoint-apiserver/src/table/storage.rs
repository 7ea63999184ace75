//! Volumes, claims, and what provides them.

use std::sync::Arc;

use serde_json::Value;

use super::cells::{flag, has, list, name, or_none, quantity, scalar, text, text_or};
use super::{AGE, Column, NAME, Printer};
use crate::object;
use crate::storage::Record;

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "persistentvolumes" => &VOLUME,
        "persistentvolumeclaims" => &CLAIM,
        "storageclasses" => &STORAGE_CLASS,
        "volumeattributesclasses" => &VOLUME_ATTRIBUTES_CLASS,
        "volumeattachments" => &VOLUME_ATTACHMENT,
        "csinodes" => &CSI_NODE,
        "csidrivers" => &CSI_DRIVER,
        "storageversionmigrations" => &STORAGE_VERSION_MIGRATION,
        _ => return None,
    })
}

const ACCESS_MODES: Column = Column::text("Access Modes", "How the volume can be mounted.");
const CAPACITY: Column = Column::text("Capacity", "How much fits into it.");
const STORAGE_CLASS_NAME: Column = Column::text("StorageClass", "Its storage class.");
const ATTRIBUTES_CLASS: Column = Column::text("VolumeAttributesClass", "Its volume attributes class.");
const VOLUME_MODE: Column = Column::text("VolumeMode", "A file system, or a raw block device.").wide();

const VOLUME: Printer = Printer {
    columns: &[
        NAME,
        CAPACITY,
        ACCESS_MODES,
        Column::text("Reclaim Policy", "What happens to the volume once its claim is gone."),
        Column::text("Status", "Whether the volume is bound to a claim."),
        Column::text("Claim", "The claim that the volume is bound to."),
        STORAGE_CLASS_NAME,
        ATTRIBUTES_CLASS,
        Column::text("Reason", "Why the volume has failed."),
        AGE,
        VOLUME_MODE,
    ],
    cells: |object, context| {
        let claim = object.pointer("/spec/claimRef").map_or_else(String::new, |claim| {
            format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
        });
        vec![
            name(object),
            quantity(object, "/spec/capacity/storage").into(),
            access_modes(object, "/spec/accessModes").into(),
            text(object, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(object).into(),
            claim.into(),
            class(object).into(),
            text_or_unset(object, "/spec/volumeAttributesClassName").into(),
            text(object, "/status/reason").into(),
            context.age(object),
            text_or_unset(object, "/spec/volumeMode").into(),
        ]
    },
};

const CLAIM: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Whether the claim is bound to a volume."),
        Column::text("Volume", "The volume that the claim is bound to."),
        CAPACITY,
        ACCESS_MODES,
        STORAGE_CLASS_NAME,
        ATTRIBUTES_CLASS,
        AGE,
        VOLUME_MODE,
    ],
    cells: |object, context| {
        let volume = text(object, "/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            (quantity(object, "/status/capacity/storage"), access_modes(object, "/status/accessModes"))
        };
        vec![
            name(object),
            phase(object).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            class(object).into(),
            text_or_unset(object, "/spec/volumeAttributesClassName").into(),
            context.age(object),
            text_or_unset(object, "/spec/volumeMode").into(),
        ]
    },
};

fn text_or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    if has(object, pointer) { text(object, pointer) } else { "<unset>" }
}

fn phase(object: &Value) -> &str {
    if has(object, "/metadata/deletionTimestamp") { "Terminating" } else { text(object, "/status/phase") }
}

fn class(object: &Value) -> &str {
    let annotation = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    if has(object, annotation) { text(object, annotation) } else { text(object, "/spec/storageClassName") }
}

fn access_modes(object: &Value, pointer: &str) -> String {
    const MODES: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = list(object, pointer);
    let short = MODES.iter().filter(|(mode, _)| modes.iter().any(|found| found == mode));
    short.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

const STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Provisioner", "Who makes volumes of this class."),
        Column::text("ReclaimPolicy", "What happens to volumes once their claims are gone."),
        Column::text("VolumeBindingMode", "When a volume is made for a claim."),
        Column::text("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |object, context| {
        let mut shown = text(object, "/metadata/name").to_owned();
        if context.default_class.as_ref() == Some(&shown) {
            shown.push_str(" (default)");
        }
        vec![
            shown.into(),
            text(object, "/provisioner").into(),
            text_or(object, "/reclaimPolicy", "Delete").into(),
            text_or(object, "/volumeBindingMode", "Immediate").into(),
            flag(object, "/allowVolumeExpansion").into(),
            context.age(object),
        ]
    },
};

/// The class that counts as the default: of those that say so the newest, then the first by name.
pub(super) fn default_class(records: &[Arc<Record>]) -> Option<String> {
    const ANNOTATIONS: [&str; 2] = [
        "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
        "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
    ];
    let classes = records.iter().map(|record| object::decode(&record.value, record.revision));
    let defaults = classes.filter(|class| ANNOTATIONS.iter().any(|key| text(class, key) == "true"));
    let by_age = defaults.map(|class| {
        let created = text(&class, "/metadata/creationTimestamp").to_owned();
        (created, std::cmp::Reverse(text(&class, "/metadata/name").to_owned()))
    });
    by_age.max().map(|(_, name)| name.0)
}

const VOLUME_ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[NAME, Column::text("DriverName", "The driver that knows the attributes."), AGE],
    cells: |object, context| vec![name(object), text(object, "/driverName").into(), context.age(object)],
};

const VOLUME_ATTACHMENT: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Attacher", "The driver that attaches the volume.").name(),
        Column::text("PV", "The volume."),
        Column::text("Node", "The node that the volume is attached to."),
        Column::boolean("Attached", "Whether the volume is attached."),
        AGE,
    ],
    cells: |object, context| {
        vec![
            name(object),
            text(object, "/spec/attacher").into(),
            text(object, "/spec/source/persistentVolumeName").into(),
            text(object, "/spec/nodeName").into(),
            flag(object, "/status/attached").into(),
            context.age(object),
        ]
    },
};

const CSI_NODE: Printer = Printer {
    columns: &[NAME, Column::integer("Drivers", "How many CSI drivers the node has."), AGE],
    cells: |object, context| {
        vec![name(object), list(object, "/spec/drivers").len().into(), context.age(object)]
    },
};

const CSI_DRIVER: Printer = Printer {
    columns: &[
        NAME,
        Column::boolean("AttachRequired", "Whether volumes are attached before they are mounted."),
        Column::boolean("PodInfoOnMount", "Whether the driver is told about the pod."),
        Column::boolean("StorageCapacity", "Whether the scheduler asks for free capacity."),
        Column::text("TokenRequests", "The audiences of the tokens that the driver gets."),
        Column::boolean("RequiresRepublish", "Whether the driver is called again and again."),
        Column::text("Modes", "The life cycles that its volumes can have."),
        AGE,
    ],
    cells: |object, context| {
        let tokens = match object.pointer("/spec/tokenRequests") {
            None | Some(Value::Null) => "<unset>".to_owned(),
            Some(_) => {
                let tokens = list(object, "/spec/tokenRequests").iter();
                tokens.map(|token| text(token, "/audience")).collect::<Vec<_>>().join(",")
            }
        };
        let modes: Vec<String> = list(object, "/spec/volumeLifecycleModes").iter().map(scalar).collect();
        vec![
            name(object),
            object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true).into(),
            flag(object, "/spec/podInfoOnMount").into(),
            flag(object, "/spec/storageCapacity").into(),
            tokens.into(),
            flag(object, "/spec/requiresRepublish").into(),
            or_none(modes.join(",")).into(),
            context.age(object),
        ]
    },
};

const STORAGE_VERSION_MIGRATION: Printer = Printer {
    columns: &[
        Column::text("Name", "The name of the migration."),
        Column::text("Resource", "What is migrated."),
        Column::text("Status", "How far it is."),
    ],
    cells: |object, _| {
        let resource = match text(object, "/spec/resource/group") {
            "" => text(object, "/spec/resource/resource").to_owned(),
            group => format!("{}.{group}", text(object, "/spec/resource/resource")),
        };
        let reached = list(object, "/status/conditions").iter().rev().find(|condition| {
            text(condition, "/status") == "True"
                && matches!(text(condition, "/type"), "Running" | "Failed" | "Succeeded")
        });
        let status = reached.map_or("Unknown", |condition| text(condition, "/type"));
        vec![name(object), resource.into(), status.into()]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_default_class_counts() {
        let class = |name: &str, created: &str, is_default: &str| {
            let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {
                "name": name, "creationTimestamp": created,
                "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}});
            Arc::new(Record::new(name.into(), 1, object::encode(&object)))
        };
        let classes = [
            class("a", "2026-01-01T00:00:00Z", "true"),
            class("b", "2026-01-02T00:00:00Z", "true"),
            class("c", "2026-01-02T00:00:00Z", "true"),
            class("d", "2026-01-03T00:00:00Z", "false"),
        ];
        assert_eq!(default_class(&classes).as_deref(), Some("b"));
        assert_eq!(default_class(&classes[3..]), None);
    }

    #[test]
    fn access_modes_are_abbreviated() {
        let object = json!({"modes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"]});
        assert_eq!(access_modes(&object, "/modes"), "RWO,RWX");
    }
}
