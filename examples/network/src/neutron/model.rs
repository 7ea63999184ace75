//! What Neutron sends and takes.

use serde::{Deserialize, Deserializer, Serialize};

/// A network, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Network {
    /// Neutron's id.
    pub id: String,
    /// Not unique.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub name: String,
    /// Free text; ours is the marker.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub description: String,
    /// Counts changes, also of subnets.
    #[serde(default)]
    pub revision_number: u64,
    /// When it was made, to tell the older of two.
    #[serde(default)]
    pub created_at: String,
}

/// A subnet, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Neutron's id.
    pub id: String,
    /// Not unique.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub name: String,
    /// Free text; ours is the marker.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub description: String,
    /// The range, with cleared host bits.
    pub cidr: String,
    /// The router's address.
    #[serde(default)]
    pub gateway_ip: Option<String>,
    /// Counts changes.
    #[serde(default)]
    pub revision_number: u64,
}

/// A subnet to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewSubnet {
    /// Where.
    pub network_id: String,
    /// What it is called.
    pub name: String,
    /// The marker.
    pub description: String,
    /// The range.
    pub cidr: String,
    /// 4 or 6.
    pub ip_version: u8,
    /// The router's address; Neutron takes the first if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ip: Option<String>,
}

impl AsRef<str> for Network {
    fn as_ref(&self) -> &str {
        &self.id
    }
}

impl AsRef<str> for Subnet {
    fn as_ref(&self) -> &str {
        &self.id
    }
}

/// Texts that were never set are null.
fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
pub(super) struct Networks {
    pub(super) networks: Vec<Network>,
    #[serde(default, rename = "networks_links")]
    pub(super) links: Vec<Link>,
}

#[derive(Deserialize)]
pub(super) struct Subnets {
    pub(super) subnets: Vec<Subnet>,
    #[serde(default, rename = "subnets_links")]
    pub(super) links: Vec<Link>,
}

/// Says that there is another page.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) rel: String,
}

#[derive(Deserialize)]
pub(super) struct OneNetwork {
    pub(super) network: Network,
}

#[derive(Deserialize)]
pub(super) struct OneSubnet {
    pub(super) subnet: Subnet,
}

#[derive(Serialize)]
pub(super) struct Pool {
    pub(super) start: String,
    pub(super) end: String,
}
