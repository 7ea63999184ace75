//! Desired against actual: what must change, decided without asking anybody.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::cidr::{Cidr, InvalidCidr};
use crate::marker::is_marker;
use crate::network::NetworkSpec;
use crate::neutron::{Network, NewSubnet, Subnet, pools_json};

/// What Neutron shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) name: String,
    pub(crate) marker: String,
    pub(crate) cidr: Cidr,
    pub(crate) gateway: Option<IpAddr>,
}

/// A spec that Neutron need not see. (It accepts a gateway that no machine of the subnet can reach.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSpec {
    #[error("spec.cidr: {0}")]
    Cidr(#[from] InvalidCidr),
    #[error("spec.gateway: {0:?} is no IP address")]
    Gateway(String),
    #[error(
        "spec.gateway: {gateway} cannot be the gateway of {cidr}: choose an address inside it, not its first or last"
    )]
    Outside { gateway: IpAddr, cidr: Cidr },
}

impl Desired {
    pub(crate) fn new(name: String, marker: String, spec: &NetworkSpec) -> Result<Desired, InvalidSpec> {
        let cidr: Cidr = spec.cidr.parse()?;
        let given = spec.gateway.as_ref().filter(|text| !text.is_empty());
        let parsed = given.map(|text| text.parse::<IpAddr>().map_err(|_| InvalidSpec::Gateway(text.clone())));
        let gateway = parsed.transpose()?;
        match gateway {
            Some(gateway) if !cidr.can_be_gateway(gateway) => Err(InvalidSpec::Outside { gateway, cidr }),
            gateway => Ok(Desired { name, marker, cidr, gateway }),
        }
    }

    pub(crate) fn subnet(&self, network_id: &str) -> NewSubnet {
        NewSubnet {
            network_id: network_id.to_owned(),
            name: self.name.clone(),
            description: self.marker.clone(),
            cidr: self.cidr.to_string(),
            ip_version: self.cidr.ip_version(),
            gateway_ip: self.gateway.map(|gateway| gateway.to_string()),
        }
    }
}

/// Of several networks with our marker, the one to keep: the one that the status names, else the oldest. The
/// others were made by requests whose answers were lost, and go.
pub(crate) fn choose(mut networks: Vec<Network>, known: Option<&str>) -> (Option<Network>, Vec<Network>) {
    networks.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
    let kept = networks.iter().position(|network| Some(network.id.as_str()) == known).unwrap_or(0);
    if networks.is_empty() {
        return (None, networks);
    }
    let kept = networks.remove(kept);
    (Some(kept), networks)
}

/// Whether a network that the status names, but that has lost our marker, is still ours: somebody may have
/// edited its description, but not made it another Network's.
pub(crate) fn is_ours(network: &Network, marker: &str) -> bool {
    network.description == marker || !is_marker(&network.description)
}

/// The fields of a network that are not as they should be.
pub(crate) fn network_changes(actual: &Network, desired: &Desired) -> Option<Value> {
    let mut changes = json!({});
    if actual.name != desired.name {
        changes["name"] = json!(desired.name);
    }
    if actual.description != desired.marker {
        changes["description"] = json!(desired.marker);
    }
    some_if_any(changes)
}

/// What becomes of the subnets of our network.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SubnetPlan {
    /// The one with the desired range, if there is one.
    pub(crate) keep: Option<Subnet>,
    /// Ours with another range: a range cannot be changed, only replaced.
    pub(crate) remove: Vec<Subnet>,
}

/// Decides by range and marker. Subnets that somebody else has added are none of our business.
pub(crate) fn plan_subnets(subnets: Vec<Subnet>, desired: &Desired, known: Option<&str>) -> SubnetPlan {
    let mut plan = SubnetPlan { keep: None, remove: Vec::new() };
    for subnet in subnets {
        let is_wanted = subnet.cidr.parse::<Cidr>().is_ok_and(|cidr| cidr == desired.cidr);
        let is_marked = subnet.description == desired.marker || Some(subnet.id.as_str()) == known;
        if is_wanted && plan.keep.is_none() {
            plan.keep = Some(subnet);
        } else if is_marked && !is_wanted {
            plan.remove.push(subnet);
        }
    }
    plan
}

/// The fields of a subnet that are not as they should be.
pub(crate) fn subnet_changes(actual: &Subnet, desired: &Desired) -> Option<Value> {
    let mut changes = json!({});
    if actual.name != desired.name {
        changes["name"] = json!(desired.name);
    }
    if actual.description != desired.marker {
        changes["description"] = json!(desired.marker);
    }
    let is_gateway = actual.gateway_ip.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(gateway) = desired.gateway.filter(|gateway| is_gateway != Some(*gateway)) {
        changes["gateway_ip"] = json!(gateway);
        // The pools of a subnet are fixed when it is made: without this, the new gateway would lie in one.
        changes["allocation_pools"] = pools_json(&desired.cidr.pools_without(gateway));
    }
    some_if_any(changes)
}

fn some_if_any(changes: Value) -> Option<Value> {
    let is_empty = changes.as_object().is_none_or(|fields| fields.is_empty());
    (!is_empty).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "samplecrd.k8s.io/network=c/default/example";

    fn spec(cidr: &str, gateway: Option<&str>) -> NetworkSpec {
        NetworkSpec { cidr: cidr.into(), gateway: gateway.map(str::to_owned) }
    }

    fn desired(cidr: &str, gateway: Option<&str>) -> Desired {
        Desired::new("default/example".into(), MARKER.into(), &spec(cidr, gateway)).unwrap()
    }

    fn network(id: &str, created_at: &str) -> Network {
        Network {
            id: id.into(),
            name: "default/example".into(),
            description: MARKER.into(),
            revision_number: 1,
            created_at: created_at.into(),
        }
    }

    fn subnet(id: &str, cidr: &str, description: &str) -> Subnet {
        Subnet {
            id: id.into(),
            name: "default/example".into(),
            description: description.into(),
            cidr: cidr.into(),
            gateway_ip: Some("10.0.0.1".into()),
            revision_number: 0,
        }
    }

    #[test]
    fn specs_that_make_no_sense_are_refused_with_what_to_write() {
        let refuse = |cidr: &str, gateway| {
            Desired::new(String::new(), String::new(), &spec(cidr, gateway)).unwrap_err().to_string()
        };
        assert!(refuse("10.0.0.0", None).starts_with("spec.cidr: \"10.0.0.0\" is no CIDR"));
        assert_eq!(refuse("10.0.0.0/8", Some("router")), "spec.gateway: \"router\" is no IP address");
        for gateway in ["11.0.0.1", "10.0.0.0", "10.255.255.255", "::1"] {
            assert!(refuse("10.0.0.0/8", Some(gateway)).contains("cannot be the gateway of 10.0.0.0/8"));
        }
    }

    #[test]
    fn host_bits_and_an_unsaid_gateway_are_no_drift() {
        let desired = desired("10.0.0.5/24", None);
        let actual = subnet("s", "10.0.0.0/24", MARKER);
        assert_eq!(subnet_changes(&actual, &desired), None);
        let plan = plan_subnets(vec![actual.clone()], &desired, None);
        assert_eq!(plan, SubnetPlan { keep: Some(actual), remove: vec![] });
    }

    #[test]
    fn edits_are_undone_field_by_field() {
        let desired = desired("10.0.0.0/24", Some("10.0.0.9"));
        let edited = Network { name: "x".into(), description: "y".into(), ..network("n", "") };
        assert_eq!(
            network_changes(&edited, &desired),
            Some(json!({"name": "default/example", "description": MARKER}))
        );
        assert_eq!(network_changes(&network("n", ""), &desired), None);
        let changes = subnet_changes(&subnet("s", "10.0.0.0/24", MARKER), &desired).unwrap();
        assert_eq!(changes["gateway_ip"], "10.0.0.9");
        assert_eq!(changes["allocation_pools"][0], json!({"start": "10.0.0.1", "end": "10.0.0.8"}));
    }

    #[test]
    fn another_range_is_a_replacement_and_foreign_subnets_stay() {
        let desired = desired("10.1.0.0/24", None);
        let ours = subnet("ours", "10.0.0.0/24", MARKER);
        let renamed = subnet("renamed", "10.2.0.0/24", "edited");
        let foreign = subnet("foreign", "10.9.0.0/24", "");
        let plan = plan_subnets(vec![ours.clone(), renamed.clone(), foreign], &desired, Some("renamed"));
        assert_eq!(plan, SubnetPlan { keep: None, remove: vec![ours, renamed] });
    }

    #[test]
    fn of_two_networks_the_known_one_stays_or_the_oldest() {
        let two = || vec![network("b", "2026-01-02"), network("a", "2026-01-03")];
        let (kept, rest) = choose(two(), None);
        assert_eq!((kept.unwrap().id.as_str(), rest.len()), ("b", 1));
        let (kept, rest) = choose(two(), Some("a"));
        assert_eq!((kept.unwrap().id.as_str(), rest[0].id.as_str()), ("a", "b"));
        assert_eq!(choose(vec![], Some("a")), (None, vec![]));
    }

    #[test]
    fn a_network_of_another_network_object_is_never_ours() {
        let mut other = network("n", "");
        assert!(is_ours(&other, MARKER));
        other.description = "edited".into();
        assert!(is_ours(&other, MARKER));
        other.description = "samplecrd.k8s.io/network=c/default/other".into();
        assert!(!is_ours(&other, MARKER));
    }
}
