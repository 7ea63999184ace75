//! What a pod needs before its containers can start, and what is not there of it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use setpoint::ObjectKey;
use setpoint::k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// A kind of object that pods need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    ConfigMap,
    Secret,
    Claim,
}

impl Need {
    /// As kubelets write it.
    fn word(self) -> &'static str {
        match self {
            Need::ConfigMap => "configmap",
            Need::Secret => "secret",
            Need::Claim => "persistentvolumeclaim",
        }
    }
}

/// Who needs something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// The volume of this name.
    ByVolume(String),
    /// The environment of the container of this name.
    ByContainer(String),
}

/// Something that a pod needs and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) kind: Need,
    pub(super) name: String,
    pub(super) by: Needed,
    /// Why it will not do, in a kubelet's words.
    pub(super) why: String,
}

/// The first thing that a pod needs and that will not do. `why_not` says why, or nothing if it will.
pub(super) fn first(pod: &Pod, why_not: impl Fn(Need, &str) -> Option<&'static str>) -> Option<Obstacle> {
    needs(pod).into_iter().find_map(|(kind, name, by)| {
        let why = why_not(kind, &name)?;
        let why = format!("{} {name:?} {why}", kind.word());
        Some(Obstacle { kind, name, by, why })
    })
}

/// All that a pod cannot do without: what its volumes mount first, then what its containers read.
fn needs(pod: &Pod) -> Vec<(Need, String, Needed)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut needs = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let by = || Needed::ByVolume(volume.name.clone());
        needs.extend(of_volume(volume).into_iter().map(|(kind, name)| (kind, name, by())));
        if volume.ephemeral.is_some() {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            needs.push((Need::Claim, format!("{pod}-{}", volume.name), by()));
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let by = || Needed::ByContainer(container.name.clone());
        needs.extend(of_environment(container).into_iter().map(|(kind, name)| (kind, name, by())));
    }
    needs.retain(|(_, name, _)| !name.is_empty());
    needs
}

fn of_volume(volume: &Volume) -> Vec<(Need, String)> {
    let mut needs = Vec::new();
    let mut need = |kind, name: Option<&String>, optional: Option<bool>| {
        needs.extend(name.filter(|_| optional != Some(true)).map(|name| (kind, name.clone())));
    };
    if let Some(source) = &volume.config_map {
        need(Need::ConfigMap, Some(&source.name), source.optional);
    }
    if let Some(source) = &volume.secret {
        need(Need::Secret, source.secret_name.as_ref(), source.optional);
    }
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        if let Some(source) = &source.config_map {
            need(Need::ConfigMap, Some(&source.name), source.optional);
        }
        if let Some(source) = &source.secret {
            need(Need::Secret, Some(&source.name), source.optional);
        }
    }
    if let Some(source) = &volume.persistent_volume_claim {
        need(Need::Claim, Some(&source.claim_name), None);
    }
    needs
}

fn of_environment(container: &Container) -> Vec<(Need, String)> {
    let mut needs = Vec::new();
    let mut need = |kind, name: &String, optional: Option<bool>| {
        if optional != Some(true) {
            needs.push((kind, name.clone()));
        }
    };
    for from in container.env_from.iter().flatten() {
        if let Some(source) = &from.config_map_ref {
            need(Need::ConfigMap, &source.name, source.optional);
        }
        if let Some(source) = &from.secret_ref {
            need(Need::Secret, &source.name, source.optional);
        }
    }
    for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(source) = &from.config_map_key_ref {
            need(Need::ConfigMap, &source.name, source.optional);
        }
        if let Some(source) = &from.secret_key_ref {
            need(Need::Secret, &source.name, source.optional);
        }
    }
    needs
}

/// The pods that wait for something, by what they wait for.
#[derive(Default)]
pub(super) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    by_need: BTreeMap<(Need, ObjectKey), BTreeSet<ObjectKey>>,
    of_pod: BTreeMap<ObjectKey, (Need, ObjectKey)>,
}

impl Waiting {
    /// Notes what a pod waits for; nothing if it does not wait any more.
    pub(super) fn set(&self, pod: &ObjectKey, need: Option<(Need, ObjectKey)>) {
        let mut state = self.0.lock();
        if state.of_pod.get(pod) == need.as_ref() {
            return;
        }
        if let Some(old) = state.of_pod.remove(pod) {
            let is_empty = state.by_need.get_mut(&old).is_some_and(|pods| {
                pods.remove(pod);
                pods.is_empty()
            });
            if is_empty {
                state.by_need.remove(&old);
            }
        }
        if let Some(need) = need {
            state.of_pod.insert(pod.clone(), need.clone());
            state.by_need.entry(need).or_default().insert(pod.clone());
        }
    }

    /// The pods that wait for this.
    pub(super) fn waiting_for(
        &self,
        kind: Need,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Vec<ObjectKey> {
        let (Some(namespace), Some(name)) = (namespace, name) else { return Vec::new() };
        let key = (kind, ObjectKey::namespaced(namespace, name));
        self.0.lock().by_need.get(&key).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_what_it_mounts_and_reads_unless_that_is_optional() {
        let source = |name: &str| json!({"name": name});
        let spec = json!({
            "volumes": [
                {"name": "a", "configMap": {"name": "map"}},
                {"name": "b", "secret": {"secretName": "no", "optional": true}},
                {"name": "c", "projected": {"sources": [{"secret": source("token")}, {"downwardAPI": {}}]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
            ],
            "containers": [{"name": "web", "envFrom": [{"secretRef": source("env")}], "env": [
                {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
                {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k", "optional": true}}},
            ]}],
        });
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let names: Vec<_> = needs(&pod).into_iter().map(|(kind, name, _)| (kind, name)).collect();
        let expected = [
            (Need::ConfigMap, "map"),
            (Need::Secret, "token"),
            (Need::Claim, "data"),
            (Need::Secret, "env"),
            (Need::ConfigMap, "one"),
        ];
        assert_eq!(names, expected.map(|(kind, name)| (kind, name.to_owned())));
        let found = first(&pod, |kind, _| (kind == Need::Claim).then_some("not found")).unwrap();
        assert_eq!(found.why, "persistentvolumeclaim \"data\" not found");
        assert_eq!(found.by, Needed::ByVolume("d".into()));
    }
}
