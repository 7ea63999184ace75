//! A `clientConfig` → where to connect, and whom to trust there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::CallError;
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::storage::ListQuery;

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The whole URL; what the certificate must be for is its host.
    pub(super) url: String,
    /// Where that host is, if it is a service of this cluster.
    pub(super) addresses: Option<Vec<SocketAddr>>,
    /// Certificates to trust, in PEM; empty for those of the system.
    pub(super) ca_bundle: Vec<u8>,
}

impl Target {
    pub(super) async fn find(core: &Core, config: &Value, limit: Duration) -> Result<Target, CallError> {
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let ca_bundle = STANDARD
            .decode(bundle)
            .map_err(|error| CallError::Unreachable(format!("caBundle is not base64: {error}")))?;
        let query = format!("timeout={}s", limit.as_secs());
        if let Some(url) = config["url"].as_str() {
            return Ok(Target { url: asked(url, &query), addresses: None, ca_bundle });
        }
        let service = &config["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let port = service["port"].as_u64().unwrap_or(443);
        let addresses = locate(core, namespace, name, port).await?;
        // Without a port, so that the one of the address counts.
        let url = asked(&format!("https://{name}.{namespace}.svc/{}", text("path")), &query);
        Ok(Target { url, addresses: Some(addresses), ca_bundle })
    }
}

/// The URL that is called: its path as Go's clients clean it, and a query more. Some webhooks are configured with two slashes
/// in a row, which their servers answer with a redirect.
fn asked(url: &str, query: &str) -> String {
    let (address, own) = url.split_once('?').map_or((url, None), |(address, own)| (address, Some(own)));
    let host = address.find("://").map_or(0, |at| at + 3);
    let slash = address[host..].find('/').map_or(address.len(), |at| host + at);
    let mut path = Vec::new();
    for part in address[slash..].split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    let own = own.map(|own| format!("{own}&")).unwrap_or_default();
    format!("{}/{}?{own}{query}", &address[..slash], path.join("/"))
}

/// The ready endpoints of a service; its own address if it has none of its own choosing.
async fn locate(core: &Core, namespace: &str, name: &str, port: u64) -> Result<Vec<SocketAddr>, CallError> {
    let failed = |why: String| CallError::Unreachable(why);
    let services = Registry::built_in().expect("", "v1", "services");
    let key = services.key(Some(namespace), name);
    let record = read(core, &key).await.map_err(|status| failed(status.message))?;
    let record = record.ok_or_else(|| failed(format!("service {name:?} not found")))?;
    let service = object::decode(&record.value, record.revision);
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(entry) = ports.iter().find(|entry| entry["port"].as_u64() == Some(port)) else {
        return Err(failed(format!("no service port {port} found for service {name:?}")));
    };
    let found = endpoints(core, namespace, name, entry["name"].as_str().unwrap_or_default()).await?;
    if !found.is_empty() {
        return Ok(found);
    }
    let address: Option<IpAddr> = spec["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
    match (address, u16::try_from(port)) {
        (Some(ip), Ok(port)) => Ok(vec![SocketAddr::new(ip, port)]),
        _ => Err(failed(format!("no endpoints available for service {name:?}"))),
    }
}

async fn endpoints(
    core: &Core,
    namespace: &str,
    service: &str,
    port: &str,
) -> Result<Vec<SocketAddr>, CallError> {
    let slices = Registry::built_in().expect("discovery.k8s.io", "v1", "endpointslices");
    let query = ListQuery::all(slices.collection()).under(format!("{namespace}/"));
    let page = core.storage.list(&query).await.map_err(|error| CallError::Unreachable(error.to_string()))?;
    let mut found = Vec::new();
    for record in &page.records {
        if record.attributes.label(&record.value, "kubernetes.io/service-name") != Some(service) {
            continue;
        }
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
            found.extend(addresses.filter_map(|ip| ip.parse().ok()).map(|ip| SocketAddr::new(ip, number)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_as_go_cleans_it() {
        for (url, called) in [
            ("https://hook.test:8443//validate", "https://hook.test:8443/validate?timeout=5s"),
            ("https://hook.test/a//b/./c/../d/", "https://hook.test/a/b/d?timeout=5s"),
            ("https://hook.test", "https://hook.test/?timeout=5s"),
            ("https://hook.test/", "https://hook.test/?timeout=5s"),
            ("https://hook.test/../..", "https://hook.test/?timeout=5s"),
            ("https://hook.test/a?b=c//d", "https://hook.test/a?b=c//d&timeout=5s"),
        ] {
            assert_eq!(asked(url, "timeout=5s"), called);
        }
    }
}
