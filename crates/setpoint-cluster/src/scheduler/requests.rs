//! How much of each resource a pod asks for, and a node has.

use std::collections::BTreeMap;

use setpoint::k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};
use setpoint::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by resource, in nanos. The two that nearly every pod names are fields: counting them allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amounts {
    pub(super) cpu: i128,
    pub(super) memory: i128,
    others: BTreeMap<String, i128>,
}

impl Amounts {
    pub(super) fn of(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
        let mut amounts = Amounts::default();
        for (name, quantity) in quantities.into_iter().flatten() {
            *amounts.entry(name) = setpoint_kinds::quantity_nanos(&quantity.0).unwrap_or(0);
        }
        amounts
    }

    pub(super) fn get(&self, name: &str) -> i128 {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory,
            _ => self.others.get(name).copied().unwrap_or(0),
        }
    }

    /// Every resource that may be named, with its amount.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i128)> {
        let others = self.others.iter().map(|(name, amount)| (name.as_str(), *amount));
        [("cpu", self.cpu), ("memory", self.memory)].into_iter().chain(others)
    }

    pub(super) fn add(&mut self, other: &Amounts) {
        self.merge(other, i128::saturating_add);
    }

    pub(super) fn subtract(&mut self, other: &Amounts) {
        self.merge(other, i128::saturating_sub);
    }

    fn raise_to(&mut self, other: &Amounts) {
        self.merge(other, i128::max);
    }

    fn merge(&mut self, other: &Amounts, merge: impl Fn(i128, i128) -> i128) {
        self.cpu = merge(self.cpu, other.cpu);
        self.memory = merge(self.memory, other.memory);
        for (name, amount) in &other.others {
            let mine = self.entry(name);
            *mine = merge(*mine, *amount);
        }
    }

    fn entry(&mut self, name: &str) -> &mut i128 {
        match name {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            _ => self.others.entry(name.to_owned()).or_default(),
        }
    }
}

/// What a pod needs at its greediest moment: all containers together, or one init container with the sidecars
/// that were started before it; and its overhead. What the pod says for itself as a whole goes first.
pub(super) fn of_pod(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let running = Running::of(pod);
    let mut total = Amounts::default();
    spec.containers.iter().for_each(|container| total.add(&running.requests(container)));
    let (mut sidecars, mut most) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let mut with_sidecars = running.requests(container);
        if is_sidecar(container) {
            sidecars.add(&with_sidecars);
            with_sidecars = sidecars.clone();
        } else {
            with_sidecars.add(&sidecars);
        }
        most.raise_to(&with_sidecars);
    }
    total.add(&sidecars);
    total.raise_to(&most);
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let amounts = Amounts::of(whole);
    for name in whole.iter().flat_map(|whole| whole.keys()) {
        *total.entry(name) = amounts.get(name);
    }
    total.add(&Amounts::of(spec.overhead.as_ref()));
    total
}

/// Whether an init container goes on running beside the others.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What the node says that the containers of a pod have. While a resize is under way a container counts with the larger
/// of what it has and what it is to have; one that will never be done counts with what it has.
struct Running<'a> {
    containers: &'a [ContainerStatus],
    sidecars: &'a [ContainerStatus],
    is_infeasible: bool,
}

impl<'a> Running<'a> {
    fn of(pod: &'a Pod) -> Running<'a> {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        Running {
            containers: status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default(),
            sidecars: status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default(),
            is_infeasible: conditions.iter().any(|condition| {
                condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
            }),
        }
    }

    fn requests(&self, container: &Container) -> Amounts {
        let wanted = || of_requirements(container.resources.as_ref());
        let mut statuses = self.containers.iter().chain(self.sidecars);
        let status = statuses.find(|status| status.name == container.name && status.resources.is_some());
        let Some(status) = status else { return wanted() };
        let mut amounts = of_requirements(status.resources.as_ref());
        amounts.raise_to(&Amounts::of(status.allocated_resources.as_ref()));
        if !self.is_infeasible {
            amounts.raise_to(&wanted());
        }
        amounts
    }
}

fn of_requirements(resources: Option<&ResourceRequirements>) -> Amounts {
    Amounts::of(resources.and_then(|resources| resources.requests.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cpu(spec: Value) -> i128 {
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        of_pod(&pod).get("cpu") / 1_000_000
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "a", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn containers_add_up_and_init_containers_run_alone() {
        let two = json!([container("100m"), container("200m")]);
        assert_eq!(cpu(json!({"containers": two})), 300);
        assert_eq!(cpu(json!({"containers": two, "initContainers": [container("250m")]})), 300);
        assert_eq!(cpu(json!({"containers": two, "initContainers": [container("1")]})), 1000);
    }

    #[test]
    fn sidecars_run_beside_everything_that_follows_them() {
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = "Always".into();
        let inits = json!([sidecar, container("500m")]);
        assert_eq!(cpu(json!({"containers": [container("200m")], "initContainers": inits})), 600);
        assert_eq!(cpu(json!({"containers": [container("900m")], "initContainers": inits})), 1000);
    }

    #[test]
    fn overhead_counts_and_a_pod_may_ask_as_a_whole() {
        let spec = json!({"containers": [container("200m")], "overhead": {"cpu": "50m"}});
        assert_eq!(cpu(spec), 250);
        let spec = json!({"containers": [container("200m")], "resources": {"requests": {"cpu": "1"}}});
        assert_eq!(cpu(spec), 1000);
    }

    #[test]
    fn a_resize_counts_with_the_larger_of_what_is_and_what_is_to_be() {
        let cpu_of = |wanted: &str, has: &str, conditions: Value| {
            let status = json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": has}});
            let status = json!({"containerStatuses": [status], "conditions": conditions});
            let spec = json!({"containers": [container(wanted)]});
            let pod = json!({"metadata": {}, "spec": spec, "status": status});
            of_pod(&serde_json::from_value(pod).unwrap()).cpu / 1_000_000
        };
        assert_eq!(cpu_of("2", "1", json!([])), 2000, "it grows");
        assert_eq!(cpu_of("1", "2", json!([])), 2000, "it has not shrunk yet");
        let never = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        assert_eq!(cpu_of("64", "2", never), 2000, "it will never be done");
    }
}
