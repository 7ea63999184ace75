//! Where a service is: `NAMESPACE/NAME[:PORT]=HOST:PORT`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A service, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// One port of the service; none for all of them.
    pub(crate) port: Option<u16>,
    pub(crate) address: SocketAddr,
}

impl FromStr for ServiceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ServiceAddress, String> {
        let form = || format!("{text:?} is not of the form NAMESPACE/NAME[:PORT]=HOST:PORT");
        let (service, address) = text.split_once('=').ok_or_else(form)?;
        let (namespace, name) = service.split_once('/').ok_or_else(form)?;
        let (name, port) = match name.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| form())?)),
            None => (name, None),
        };
        if namespace.is_empty() || name.is_empty() {
            return Err(form());
        }
        let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
        let address = found.next().ok_or_else(|| format!("{address} has no address"))?;
        Ok(ServiceAddress { namespace: namespace.to_owned(), name: name.to_owned(), port, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_with_or_without_a_port() {
        let one: ServiceAddress = "wardle/api:443=127.0.0.1:8443".parse().unwrap();
        assert_eq!((one.namespace.as_str(), one.name.as_str(), one.port), ("wardle", "api", Some(443)));
        assert_eq!(one.address, SocketAddr::from(([127, 0, 0, 1], 8443)));
        let all: ServiceAddress = "wardle/api=[::1]:8443".parse().unwrap();
        assert_eq!(all.port, None);
        for bad in
            ["", "api=127.0.0.1:1", "wardle/api", "wardle/=127.0.0.1:1", "wardle/api:x=127.0.0.1:1", "a/b=1"]
        {
            assert!(bad.parse::<ServiceAddress>().is_err(), "{bad}");
        }
    }
}
