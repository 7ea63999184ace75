//! Which volume will do for a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::{class_of, class_of_volume, storage};

/// Whether a volume is meant for a claim: by name, and by uid if it says one.
pub(super) fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let is_uid =
        reference.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref());
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace && is_uid
}

fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn modes(modes: Option<&Vec<String>>) -> &[String] {
    modes.map(Vec::as_slice).unwrap_or_default()
}

/// Why a volume will not do for a claim that names it, in Kubernetes' words; nothing if it will.
pub(super) fn mismatch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<&'static str> {
    let (Some(wanted), Some(has)) = (&claim.spec, &volume.spec) else { return Some("it has no spec") };
    let asked = storage(wanted.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let offered = modes(has.access_modes.as_ref());
    if asked > storage(has.capacity.as_ref()) {
        return Some("requested PV is too small");
    }
    if class_of_volume(volume) != class_of(claim) {
        return Some("storageClassName does not match");
    }
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    if mode(&wanted.volume_mode) != mode(&has.volume_mode) {
        return Some("incompatible volumeMode");
    }
    let is_offered = |mode: &String| offered.contains(mode);
    if !modes(wanted.access_modes.as_ref()).iter().all(is_offered) {
        return Some("incompatible accessMode");
    }
    None
}

/// The volume for a claim: one that is meant for it, or else the one with the fewest modes, the smallest of them.
/// If binding waits for a pod, only one that is meant for it will do.
pub(super) fn best(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    waits: bool,
) -> Option<Arc<PersistentVolume>> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    let living = volumes.iter().filter(|volume| volume.metadata.deletion_timestamp.is_none());
    let fitting: Vec<_> = living.filter(|volume| mismatch(claim, volume).is_none()).collect();
    let meant =
        fitting.iter().find(|volume| claim_ref(volume).is_some_and(|reference| is_for(reference, claim)));
    if let Some(meant) = meant {
        return Some(Arc::clone(meant));
    }
    let is_free = |volume: &&&Arc<PersistentVolume>| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        claim_ref(volume).is_none()
            && phase == Some("Available")
            && selector.as_ref().is_none_or(|selector| selector.matches(volume.labels()))
    };
    let size = |volume: &&Arc<PersistentVolume>| {
        let spec = volume.spec.as_ref();
        let modes = spec.and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
        (modes, storage(spec.and_then(|spec| spec.capacity.as_ref())), volume.name_any())
    };
    let free = fitting.iter().filter(is_free).filter(|_| !waits).copied();
    free.min_by_key(size).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "2Gi"}}}});
        for (key, value) in spec.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn volume(name: &str, size: &str, more: Value) -> Arc<PersistentVolume> {
        let mut volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}, "status": {"phase": "Available"}});
        for (key, value) in more.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    #[test]
    fn the_smallest_volume_that_is_large_enough_is_taken_unless_one_is_meant() {
        let mut volumes = vec![
            volume("large", "10Gi", json!({})),
            volume("small", "1Gi", json!({})),
            volume("right", "3Gi", json!({})),
            volume("other-class", "2Gi", json!({"storageClassName": "fast"})),
            volume("other-mode", "2Gi", json!({"volumeMode": "Block"})),
            volume("more-modes", "2Gi", json!({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]})),
            volume("taken", "2Gi", json!({"claimRef": {"name": "x", "namespace": "n", "uid": "y"}})),
        ];
        let name = |volumes: &[Arc<PersistentVolume>], spec, waits| {
            best(&claim(spec), volumes, waits).map(|volume| volume.name_any())
        };
        assert_eq!(name(&volumes, json!({}), false).as_deref(), Some("right"));
        assert_eq!(name(&volumes, json!({}), true), None);
        assert_eq!(
            name(&volumes, json!({"storageClassName": "fast"}), false).as_deref(),
            Some("other-class")
        );
        assert_eq!(name(&volumes, json!({"accessModes": ["ReadWriteMany"]}), false), None);
        assert_eq!(name(&volumes, json!({"selector": {"matchLabels": {"a": "b"}}}), false), None);
        volumes.push(volume("meant", "50Gi", json!({"claimRef": {"name": "c", "namespace": "n"}})));
        assert_eq!(name(&volumes, json!({}), true).as_deref(), Some("meant"));
    }
}
