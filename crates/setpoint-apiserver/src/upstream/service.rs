//! Services of this cluster → where they are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::Where;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::storage::ListQuery;

/// Where services are that this server cannot find by itself: by namespace, name and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locations(BTreeMap<(String, String, Option<u16>), SocketAddr>);

impl Locations {
    pub(crate) fn set(&mut self, namespace: String, name: String, port: Option<u16>, address: SocketAddr) {
        self.0.insert((namespace, name, port), address);
    }

    fn find(&self, namespace: &str, name: &str, port: u16) -> Option<SocketAddr> {
        let at = |port| self.0.get(&(namespace.to_owned(), name.to_owned(), port)).copied();
        at(Some(port)).or_else(|| at(None))
    }
}

/// A service that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) place: Where,
    /// As URLs have it: `10.96.0.7:443`.
    pub(crate) authority: String,
}

/// Why a service was not found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unlocated {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("no service port {1} found for service {0:?}")]
    NoPort(String, u16),
    /// It has no endpoints; perhaps it can be reached at its own address.
    #[error("no endpoints available for service {service:?}")]
    NoEndpoints { service: String, port_name: String, has_slices: bool, own: Option<SocketAddr> },
    #[error("{0}")]
    Unread(String),
}

/// Where a service is: where the server was told, under its external name, or at its ready endpoints. One that is reached
/// from outside of the cluster may be at its own address.
pub(crate) async fn locate(
    core: &Core,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Located, Unlocated> {
    if let Some(address) = core.locations.find(namespace, name, port) {
        return Ok(at(vec![address]));
    }
    let services = Registry::built_in().expect("", "v1", "services");
    let key = services.key(Some(namespace), name);
    let record = read(core, &key).await.map_err(|status| Unlocated::Unread(status.message))?;
    let record = record.ok_or_else(|| Unlocated::NoService(name.to_owned()))?;
    let service = object::decode(&record.value, record.revision);
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        let host = spec["externalName"].as_str().unwrap_or_default().to_owned();
        return Ok(Located { authority: format!("{host}:{port}"), place: Where::Named(host, port) });
    }
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(entry) = ports.iter().find(|entry| entry["port"].as_u64() == Some(port.into())) else {
        return Err(Unlocated::NoPort(name.to_owned(), port));
    };
    let port_name = entry["name"].as_str().unwrap_or_default();
    let found = endpoints(core, namespace, name, port_name).await?;
    if !found.addresses.is_empty() {
        return Ok(at(found.addresses));
    }
    let own: Option<IpAddr> = spec["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
    let own = own.map(|ip| SocketAddr::new(ip, port));
    match own.filter(|_| spec["type"] != "ClusterIP") {
        Some(own) => Ok(at(vec![own])),
        None => Err(Unlocated::NoEndpoints {
            service: name.to_owned(),
            port_name: port_name.to_owned(),
            has_slices: found.has_slices,
            own,
        }),
    }
}

fn at(addresses: Vec<SocketAddr>) -> Located {
    let authority = addresses.first().map(ToString::to_string).unwrap_or_default();
    Located { place: Where::At(addresses), authority }
}

#[derive(Default)]
struct Endpoints {
    has_slices: bool,
    addresses: Vec<SocketAddr>,
}

async fn endpoints(core: &Core, namespace: &str, service: &str, port: &str) -> Result<Endpoints, Unlocated> {
    let slices = Registry::built_in().expect("discovery.k8s.io", "v1", "endpointslices");
    let query = ListQuery::all(slices.collection()).under(format!("{namespace}/"));
    let page = core.storage.list(&query).await.map_err(|error| Unlocated::Unread(error.to_string()))?;
    let mut found = Endpoints::default();
    for record in &page.records {
        if record.attributes.label(&record.value, "kubernetes.io/service-name") != Some(service) {
            continue;
        }
        found.has_slices = true;
        let slice = object::decode(&record.value, record.revision);
        let ports = slice["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = ports.iter().find(|entry| entry["name"].as_str().unwrap_or_default() == port);
        let number = named.and_then(|entry| entry["port"].as_u64()).and_then(|n| u16::try_from(n).ok());
        let Some(number) = number else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            let addresses = endpoint["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let parsed = addresses.filter_map(|ip| ip.parse().ok()).map(|ip| SocketAddr::new(ip, number));
            found.addresses.extend(parsed);
        }
    }
    Ok(found)
}
