//! What is done about the difference between desired and actual.

use crate::diff::{Desired, choose, is_ours, network_changes, plan_subnets, subnet_changes};
use crate::network::NetworkStatus;
use crate::neutron::{Network, Neutron, NeutronError, Subnet};

/// What Neutron has now, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) network_id: String,
    pub(crate) subnet_id: String,
    /// One word and one sentence for each thing that was done; none if all was well.
    pub(crate) done: Vec<(&'static str, String)>,
}

/// Makes Neutron match. Whatever was done before a crash or an error is found again by the next call.
pub(crate) async fn apply(
    neutron: &Neutron,
    desired: &Desired,
    known: &NetworkStatus,
) -> Result<Applied, NeutronError> {
    let mut done = Vec::new();
    let network = ensure_network(neutron, desired, known.network_id.as_deref(), &mut done).await?;
    let subnet = ensure_subnet(neutron, desired, &network, known.subnet_id.as_deref(), &mut done).await?;
    Ok(Applied { network_id: network.id, subnet_id: subnet.id, done })
}

/// Deletes every network with this marker, and the one that the status names if it is still ours. Says how
/// many there were.
pub(crate) async fn remove(
    neutron: &Neutron,
    marker: &str,
    known: Option<&str>,
) -> Result<usize, NeutronError> {
    let mut networks = neutron.networks_described(marker).await?;
    networks.extend(known_network(neutron, marker, known, &networks).await?);
    for network in &networks {
        neutron.delete_network(&network.id).await?;
    }
    Ok(networks.len())
}

/// The network that the status names, if it has lost its marker and nobody else has claimed it.
async fn known_network(
    neutron: &Neutron,
    marker: &str,
    known: Option<&str>,
    found: &[Network],
) -> Result<Option<Network>, NeutronError> {
    let Some(id) = known.filter(|id| !found.iter().any(|network| network.id == *id)) else { return Ok(None) };
    Ok(neutron.network(id).await?.filter(|network| is_ours(network, marker)))
}

async fn ensure_network(
    neutron: &Neutron,
    desired: &Desired,
    known: Option<&str>,
    done: &mut Vec<(&'static str, String)>,
) -> Result<Network, NeutronError> {
    let marked = neutron.networks_described(&desired.marker).await?;
    let (found, extra) = choose(marked, known);
    for network in extra {
        neutron.delete_network(&network.id).await?;
        done.push(("DuplicateDeleted", format!("deleted a second network {}", network.id)));
    }
    let found = match found {
        Some(found) => Some(found),
        None => known_network(neutron, &desired.marker, known, &[]).await?,
    };
    let Some(network) = found else {
        let created = neutron.create_network(&desired.name, &desired.marker).await?;
        done.push(("NetworkCreated", format!("created network {}", created.id)));
        return Ok(created);
    };
    let Some(changes) = network_changes(&network, desired) else { return Ok(network) };
    let updated = neutron.update_network(&network.id, network.revision_number, &changes).await?;
    done.push(("NetworkRepaired", format!("network {} was edited: {}", network.id, fields(&changes))));
    Ok(updated)
}

async fn ensure_subnet(
    neutron: &Neutron,
    desired: &Desired,
    network: &Network,
    known: Option<&str>,
    done: &mut Vec<(&'static str, String)>,
) -> Result<Subnet, NeutronError> {
    let plan = plan_subnets(neutron.subnets(&network.id).await?, desired, known);
    // Before the new one is made: the two ranges may overlap.
    for subnet in plan.remove {
        neutron.delete_subnet(&subnet.id).await?;
        done.push(("SubnetReplaced", format!("{} becomes {}", subnet.cidr, desired.cidr)));
    }
    let Some(subnet) = plan.keep else {
        let created = neutron.create_subnet(&desired.subnet(&network.id)).await?;
        done.push(("SubnetCreated", format!("created subnet {} with {}", created.id, created.cidr)));
        return Ok(created);
    };
    let Some(changes) = subnet_changes(&subnet, desired) else { return Ok(subnet) };
    let updated = neutron.update_subnet(&subnet.id, subnet.revision_number, &changes).await?;
    done.push(("SubnetUpdated", format!("subnet {} got {}", subnet.id, fields(&changes))));
    Ok(updated)
}

/// `gateway_ip, name`
fn fields(changes: &serde_json::Value) -> String {
    let names = changes.as_object().into_iter().flat_map(|fields| fields.keys());
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
