//! The address that the server listens on.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, bail};
use tokio::net::TcpListener;

/// What `--listen` says: `HOST:PORT`, or `:PORT` for this machine alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    host: String,
    port: u16,
}

impl Listen {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Listen> {
        parse(text).with_context(|| {
            format!("bad address {text:?}: --listen takes HOST:PORT or :PORT, such as 127.0.0.1:6443")
        })
    }

    /// Starts to listen.
    pub(crate) async fn bind(&self) -> anyhow::Result<TcpListener> {
        match TcpListener::bind((self.host.as_str(), self.port)).await {
            Ok(listener) => Ok(listener),
            Err(error) => bail!("cannot listen on {self}: {}", self.advice(&error)),
        }
    }

    fn advice(&self, error: &std::io::Error) -> String {
        match error.kind() {
            ErrorKind::AddrInUse => format!(
                "the port is in use; stop the other server or choose another port with --listen {}",
                Listen { host: self.host.clone(), port: 0 }
            ),
            ErrorKind::PermissionDenied => format!(
                "ports below 1024 are for privileged users; choose another with --listen {}",
                Listen { host: self.host.clone(), port: 6443 }
            ),
            ErrorKind::AddrNotAvailable => {
                "no network interface of this machine has that address; choose one with --listen HOST:PORT"
                    .to_owned()
            }
            _ => format!("{error}; choose another address with --listen HOST:PORT"),
        }
    }

    /// The names that clients may know this server by, once it listens on `address`.
    pub(crate) fn server_names(&self, address: SocketAddr) -> Vec<String> {
        let mut names = Vec::new();
        if self.host.parse::<IpAddr>().is_err() {
            names.push(self.host.clone());
        }
        if address.ip().is_unspecified() {
            names.extend(host_name());
            names.extend(outward_addresses().map(|address| address.to_string()));
        } else {
            names.push(address.ip().to_string());
        }
        names
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Listen { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

fn parse(text: &str) -> Option<Listen> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_string(),
        None if host.is_empty() => Ipv4Addr::LOCALHOST.to_string(),
        None if host.contains([':', '/', ' ']) => return None,
        None => host.to_owned(),
    };
    Some(Listen { host, port })
}

/// Where a client on this machine reaches a server that listens on `address`.
pub(crate) fn url_of(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// The name of this machine, if it can be in a certificate.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_ascii_lowercase();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_plain)).then_some(name)
}

/// The addresses that this machine has towards other ones. To "connect" a UDP socket makes the system choose
/// one, and sends nothing. The peers are addresses for documentation, which nobody has.
fn outward_addresses() -> impl Iterator<Item = IpAddr> {
    let from_to = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    from_to.into_iter().filter_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, expected) in [
            ("127.0.0.1:6443", "127.0.0.1:6443"),
            (":0", "127.0.0.1:0"),
            ("0.0.0.0:6443", "0.0.0.0:6443"),
            ("[::1]:6443", "[::1]:6443"),
            ("localhost:6443", "localhost:6443"),
        ] {
            assert_eq!(Listen::parse(text).unwrap().to_string(), expected);
        }
        for text in
            ["", "6443", ":", "localhost", "::1:6443", ":65536", "[::1:6443", "https://localhost:6443"]
        {
            let error = format!("{:#}", Listen::parse(text).unwrap_err());
            assert!(error.contains("HOST:PORT") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_server_on_every_interface_is_reached_through_the_loopback_one() {
        assert_eq!(url_of("0.0.0.0:1".parse().unwrap()), "https://127.0.0.1:1");
        assert_eq!(url_of("[::]:1".parse().unwrap()), "https://[::1]:1");
        assert_eq!(url_of("192.0.2.7:1".parse().unwrap()), "https://192.0.2.7:1");
    }

    #[test]
    fn the_certificate_is_for_the_address_and_the_name_that_were_given() {
        let names = Listen::parse("api.example:1").unwrap().server_names("192.0.2.7:1".parse().unwrap());
        assert_eq!(names, ["api.example", "192.0.2.7"]);
    }
}
