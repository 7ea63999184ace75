//! The names, places and volumes of a StatefulSet's pods.

use std::ops::Range;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use kube::ResourceExt;

use super::REVISION_LABEL;
use crate::pod_control;

/// The labels of a pod that have its name and its place.
pub(super) const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The name of the set that a pod's name is made of, and its place in it.
fn parts(name: &str) -> Option<(&str, i32)> {
    let (parent, place) = name.rsplit_once('-')?;
    let is_number = !place.is_empty() && place.bytes().all(|digit| digit.is_ascii_digit());
    Some((parent, place.parse().ok().filter(|_| is_number)?))
}

/// The place of a pod; none if its name has none.
pub(super) fn ordinal(pod: &Pod) -> Option<i32> {
    parts(pod.metadata.name.as_deref()?).map(|(_, place)| place)
}

/// Whether a pod has a name of this set.
pub(super) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    let name = pod.metadata.name.as_deref().and_then(parts);
    name.is_some_and(|(parent, _)| Some(parent) == set.metadata.name.as_deref())
}

/// The places that a set shall have pods in.
pub(super) fn ordinals(set: &StatefulSet) -> Range<i32> {
    let start = set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    let replicas = set.spec.replicas.unwrap_or(1).max(0);
    start..start.saturating_add(replicas)
}

/// The name of the claim of a template, for the pod in this place.
pub(super) fn claim_name(set: &StatefulSet, template: &str, place: i32) -> String {
    format!("{template}-{}-{place}", set.name_any())
}

/// The names of the templates of claims.
pub(super) fn claim_templates(set: &StatefulSet) -> impl Iterator<Item = String> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates.map(|template| template.name_any())
}

/// A new pod for a place.
pub(super) fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, place: i32) -> Pod {
    let mut pod = pod_control::from_template(set, template);
    let name = format!("{}-{place}", set.name_any());
    pod.metadata.name = Some(name.clone());
    pod.labels_mut().insert(REVISION_LABEL.to_owned(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.service_name.clone();
    identify(set, &mut pod);
    pod
}

/// Gives a pod the labels and volumes of its place.
pub(super) fn identify(set: &StatefulSet, pod: &mut Pod) {
    let Some(place) = ordinal(pod) else { return };
    let name = pod.name_any();
    pod.labels_mut().insert(NAME_LABEL.to_owned(), name);
    pod.labels_mut().insert(INDEX_LABEL.to_owned(), place.to_string());
    let claims: Vec<String> = claim_templates(set).collect();
    if claims.is_empty() {
        return;
    }
    let spec = pod.spec.get_or_insert_default();
    let others = spec.volumes.take().unwrap_or_default();
    let others = others.into_iter().filter(|volume| !claims.contains(&volume.name));
    let own = claims.iter().map(|template| Volume {
        name: template.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, place),
            read_only: None,
        }),
        ..Volume::default()
    });
    spec.volumes = Some(own.chain(others).collect());
}

/// Whether a pod has the labels and volumes of its place.
pub(super) fn is_identified(set: &StatefulSet, pod: &Pod) -> bool {
    let Some(place) = ordinal(pod) else { return false };
    let volumes = || pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let has_claim = |template: String| {
        let claim = claim_name(set, &template, place);
        volumes().any(|volume| {
            let source = volume.persistent_volume_claim.as_ref();
            volume.name == template && source.is_some_and(|source| source.claim_name == claim)
        })
    };
    pod.labels().get(NAME_LABEL) == pod.metadata.name.as_ref() && claim_templates(set).all(has_claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_parent_and_a_place() {
        assert_eq!(parts("web-0"), Some(("web", 0)));
        assert_eq!(parts("a-b-12"), Some(("a-b", 12)));
        for other in ["web", "web-", "web-x", "web-+1", "web-99999999999"] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
