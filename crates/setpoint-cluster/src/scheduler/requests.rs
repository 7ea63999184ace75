//! How much of each resource a pod asks for, and a node has.

use std::collections::BTreeMap;

use setpoint::k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use setpoint::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by resource, in nanos.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(pub(super) BTreeMap<String, i128>);

impl Amounts {
    pub(super) fn of(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
        let parse = |quantity: &Quantity| setpoint_kinds::quantity_nanos(&quantity.0).unwrap_or(0);
        Amounts(
            quantities.into_iter().flatten().map(|(name, amount)| (name.clone(), parse(amount))).collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(super) fn subtract(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
        }
    }

    fn raise_to(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// What a pod needs at its greediest moment: all containers together, or one init container with the sidecars
/// that were started before it; and its overhead. What the pod says for itself as a whole goes first.
pub(super) fn of_pod(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let mut total = Amounts::default();
    spec.containers.iter().for_each(|container| total.add(&of_container(container)));
    let (mut sidecars, mut most) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let mut with_sidecars = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&with_sidecars);
            with_sidecars = sidecars.clone();
        } else {
            with_sidecars.add(&sidecars);
        }
        most.raise_to(&with_sidecars);
    }
    total.add(&sidecars);
    total.raise_to(&most);
    for (name, amount) in of_requirements(spec.resources.as_ref()).0 {
        total.0.insert(name, amount);
    }
    total.add(&Amounts::of(spec.overhead.as_ref()));
    total
}

fn of_container(container: &Container) -> Amounts {
    of_requirements(container.resources.as_ref())
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
}
