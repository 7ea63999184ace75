//! How the slices of a service become what they should be, with as little change as possible: an endpoint stays in
//! the slice that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use kube::ResourceExt;

use super::slices::{ADDRESS_TYPE, Group, groups, slice};

/// How many endpoints are in one slice at most.
const MOST: usize = 100;

/// What has to be written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    /// Names.
    pub(super) delete: Vec<String>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }
}

/// A slice that is there, and what it should have.
struct Kept {
    current: Arc<EndpointSlice>,
    endpoints: Vec<Endpoint>,
    is_changed: bool,
}

impl Kept {
    fn room(&self) -> usize {
        MOST.saturating_sub(self.endpoints.len())
    }
}

/// The writes that give a service the slices of these pods; `current` are those that it has.
pub(super) fn plan(service: &Service, pods: &[Arc<Pod>], current: &[Arc<EndpointSlice>]) -> Plan {
    let mut plan = Plan::default();
    let mut left: Vec<Arc<EndpointSlice>> = current.to_vec();
    left.sort_by_key(|slice| slice.name_any());
    let groups = groups(service, pods);
    let all = groups.iter().flat_map(|group| group.endpoints.iter().map(identity));
    let wanted: BTreeSet<String> = all.collect();
    if groups.is_empty() {
        // A service without endpoints has one slice all the same.
        plan.create.push(slice(service, Vec::new(), Vec::new()));
    }
    for Group { ports, endpoints } in groups {
        let mine =
            left.extract_if(.., |slice| slice.address_type == ADDRESS_TYPE && ports_of(slice) == ports);
        let mine: Vec<_> = mine.collect();
        distribute(service, &ports, endpoints, mine, &mut plan, &mut left);
    }
    // A slice that nobody needs becomes one that is missing, if nobody who stays is gone from it by that.
    for unused in left {
        let staying: Vec<String> = identities(&unused).filter(|identity| wanted.contains(identity)).collect();
        let has_all = |new: &EndpointSlice| {
            let new: BTreeSet<String> = identities(new).collect();
            staying.iter().all(|identity| new.contains(identity))
        };
        let place = plan.create.iter().position(has_all).filter(|_| unused.address_type == ADDRESS_TYPE);
        match place {
            Some(place) => {
                let new = plan.create.remove(place);
                change(&mut plan, &unused, new);
            }
            None => plan.delete.push(unused.name_any()),
        }
    }
    plan.update = in_order(plan.update, current);
    plan
}

/// Who moves to another slice is there before it is gone from its own. Two slices that both give and take are written in any
/// order.
fn in_order(updates: Vec<EndpointSlice>, current: &[Arc<EndpointSlice>]) -> Vec<EndpointSlice> {
    let before: BTreeMap<String, &Arc<EndpointSlice>> =
        current.iter().map(|slice| (slice.name_any(), slice)).collect();
    let mut waiting: Vec<(BTreeSet<String>, BTreeSet<String>, EndpointSlice)> = Vec::new();
    for update in updates {
        let has: BTreeSet<String> = identities(&update).collect();
        let had = before.get(&update.name_any()).into_iter().flat_map(|slice| identities(slice));
        let loses = had.filter(|identity| !has.contains(identity)).collect();
        waiting.push((has, loses, update));
    }
    let mut ordered = Vec::new();
    while !waiting.is_empty() {
        let gives_nothing = |(_, loses, _): &(_, BTreeSet<String>, _)| {
            !waiting.iter().any(|(has, ..)| !has.is_disjoint(loses))
        };
        let next = waiting.iter().position(gives_nothing).unwrap_or(0);
        ordered.push(waiting.remove(next).2);
    }
    ordered
}

/// Leaves endpoints where they are, and puts new ones where slices change anyway.
fn distribute(
    service: &Service,
    ports: &[EndpointPort],
    endpoints: Vec<Endpoint>,
    current: Vec<Arc<EndpointSlice>>,
    plan: &mut Plan,
    unused: &mut Vec<Arc<EndpointSlice>>,
) {
    let mut new: BTreeMap<String, Endpoint> =
        endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let mut kept: Vec<Kept> = current.into_iter().map(|slice| keep(slice, &mut new)).collect();
    let mut new = new.into_values();
    for slice in kept.iter_mut().filter(|slice| slice.is_changed) {
        slice.endpoints.extend(new.by_ref().take(slice.room()));
    }
    let mut rest: Vec<Endpoint> = new.collect();
    while rest.len() > MOST {
        let full = rest.drain(..MOST).collect();
        plan.create.push(slice(service, ports.to_vec(), full));
    }
    if !rest.is_empty() {
        // The fullest slice that has room for all of them.
        let fitting =
            kept.iter_mut().filter(|slice| slice.room() >= rest.len() && !slice.endpoints.is_empty());
        match fitting.min_by_key(|slice| slice.room()) {
            Some(fitting) => {
                fitting.endpoints.append(&mut rest);
                fitting.is_changed = true;
            }
            None => plan.create.push(slice(service, ports.to_vec(), rest)),
        }
    }
    for Kept { current, endpoints, .. } in kept {
        match endpoints.is_empty() {
            true => unused.push(current),
            false => change(plan, &current, slice(service, ports.to_vec(), endpoints)),
        }
    }
}

/// What stays in a slice. What is not new any more is taken from `new`.
fn keep(current: Arc<EndpointSlice>, new: &mut BTreeMap<String, Endpoint>) -> Kept {
    let known = current.endpoints.as_deref().unwrap_or_default();
    let endpoints: Vec<Endpoint> =
        known.iter().filter_map(|endpoint| new.remove(&identity(endpoint))).collect();
    let is_changed = endpoints != known;
    Kept { endpoints, is_changed, current }
}

/// Adds an update, if the slice is not as wanted.
fn change(plan: &mut Plan, current: &EndpointSlice, mut wanted: EndpointSlice) {
    // The server does not keep an empty list.
    let is_same = current.endpoints.as_deref().unwrap_or_default()
        == wanted.endpoints.as_deref().unwrap_or_default()
        && ports_of(current) == wanted.ports.as_deref().unwrap_or_default()
        && current.metadata.labels == wanted.metadata.labels;
    if !is_same {
        wanted.metadata.name = current.metadata.name.clone();
        wanted.metadata.generate_name = None;
        wanted.metadata.resource_version = current.metadata.resource_version.clone();
        plan.update.push(wanted);
    }
}

fn ports_of(slice: &EndpointSlice) -> &[EndpointPort] {
    slice.ports.as_deref().unwrap_or_default()
}

fn identities(slice: &EndpointSlice) -> impl Iterator<Item = String> {
    slice.endpoints.iter().flatten().map(identity)
}

/// What tells endpoints of a service apart: the pod, and its address.
fn identity(endpoint: &Endpoint) -> String {
    let uid = endpoint.target_ref.as_ref().and_then(|pod| pod.uid.as_deref()).unwrap_or_default();
    format!("{uid} {}", endpoint.addresses.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        let metadata = json!({"name": "web", "namespace": "default", "uid": "u"});
        let spec = json!({"ports": [{"port": 80, "targetPort": "http"}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn pod(name: &str, port: i32) -> Arc<Pod> {
        let ports = json!([{"name": "http", "containerPort": port, "protocol": "TCP"}]);
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "a", "ports": ports}]},
            "status": {"podIP": "10.0.0.1", "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn pods(names: impl IntoIterator<Item = usize>, port: i32) -> Vec<Arc<Pod>> {
        names.into_iter().map(|n| pod(&format!("p{n:03}"), port)).collect()
    }

    /// The slices by name, and the names of the pods in all of them.
    #[derive(Default)]
    struct Stored(BTreeMap<String, EndpointSlice>, usize);

    impl Stored {
        fn addresses(&self) -> BTreeSet<String> {
            let endpoints = self.0.values().flat_map(|slice| slice.endpoints.iter().flatten());
            endpoints.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone()).collect()
        }

        fn sizes(&self) -> Vec<usize> {
            self.0.values().map(|slice| slice.endpoints.iter().flatten().count()).collect()
        }

        /// Applies a plan write by write. Who is wanted before and after is there after each of them.
        fn apply(&mut self, pods: &[Arc<Pod>]) -> usize {
            let current: Vec<_> = self.0.values().cloned().map(Arc::new).collect();
            let plan = plan(&service(), pods, &current);
            let wanted: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
            let stable: BTreeSet<String> = self.addresses().intersection(&wanted).cloned().collect();
            let writes = plan.create.len() + plan.update.len() + plan.delete.len();
            for mut slice in plan.create {
                let name = format!("s{}", self.1);
                self.1 += 1;
                slice.metadata.name = Some(name.clone());
                assert!(self.0.insert(name, slice).is_none());
                assert!(self.addresses().is_superset(&stable));
            }
            for slice in plan.update {
                self.0.insert(slice.name_any(), slice);
                assert!(self.addresses().is_superset(&stable));
            }
            for name in plan.delete {
                self.0.remove(&name).unwrap();
                assert!(self.addresses().is_superset(&stable));
            }
            assert_eq!(self.addresses(), wanted);
            assert!(self.sizes().iter().all(|size| *size <= MOST));
            writes
        }
    }

    #[test]
    fn an_endpoint_stays_where_it_is() {
        let mut stored = Stored::default();
        assert_eq!(stored.apply(&pods(1..=150, 80)), 2);
        // One more, before all others by name: one slice gets it, and the other is not touched.
        assert_eq!(stored.apply(&pods(0..=150, 80)), 1);
        assert_eq!(stored.apply(&pods(0..=150, 80)), 0);
        // One of each slice goes, three come: they are put where something changes anyway.
        let some = (0..154).filter(|n| *n != 10 && *n != 140);
        assert_eq!(stored.apply(&pods(some, 80)), 2);
        assert_eq!(stored.0.len(), 2);
    }

    #[test]
    fn a_service_without_endpoints_has_one_slice() {
        let mut stored = Stored::default();
        assert_eq!(stored.apply(&[]), 1);
        assert_eq!(stored.apply(&[]), 0);
        // The empty slice becomes the first one.
        assert_eq!(stored.apply(&pods(0..3, 80)), 1);
        assert_eq!(stored.apply(&[]), 1);
        assert_eq!(stored.sizes(), [0]);
    }

    #[test]
    fn pods_whose_ports_change_are_never_gone() {
        let mut stored = Stored::default();
        stored.apply(&pods(0..150, 80));
        let mixed = |n: usize| [pods(0..n, 81), pods(n..150, 80)].concat();
        for n in [1, 2, 75, 149, 150] {
            stored.apply(&mixed(n));
        }
        assert_eq!(stored.sizes().iter().sum::<usize>(), 150);
    }
}
