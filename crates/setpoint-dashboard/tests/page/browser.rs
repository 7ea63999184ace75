//! HTTP as it is on the wire, so that a test can send what no client would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const LIMIT: Duration = Duration::from_secs(20);

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

#[derive(Clone)]
pub(crate) struct Browser {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

/// Server-sent events, one after the other.
pub(crate) struct Events {
    wire: Box<dyn Wire>,
    raw: Vec<u8>,
    text: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Browser {
    pub(crate) fn new(address: SocketAddr) -> Browser {
        Browser { address, tls: None }
    }

    pub(crate) fn with_tls(address: SocketAddr, authority: &str) -> Browser {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Browser { address, tls: Some(TlsConnector::from(Arc::new(config))) }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.address.port())
    }

    async fn send(&self, request: &str) -> Box<dyn Wire> {
        let port = self.address.port();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut wire: Box<dyn Wire> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from("127.0.0.1").unwrap();
                Box::new(tls.connect(name, stream).await.unwrap())
            }
        };
        wire.write_all(request.as_bytes()).await.unwrap();
        wire
    }

    /// Sends a request with these headers (each ends with a line break) besides those that every browser sends.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let host = if headers.to_ascii_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.host())
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        let mut wire = self.send(&request).await;
        let mut bytes = Vec::new();
        let read = timeout(LIMIT, wire.read_to_end(&mut bytes)).await.expect("an answer in time");
        // TLS without a goodbye is an error that says nothing about the answer.
        let _cut = read;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Answer { code, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "").await
    }

    pub(crate) async fn events(&self, path: &str, headers: &str) -> Events {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.host());
        let wire = self.send(&request).await;
        let mut events = Events { wire, raw: Vec::new(), text: String::new() };
        let head = events.head().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("text/event-stream"), "{head}");
        events
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Events {
    /// Reads more; false at the end.
    async fn more(&mut self) -> bool {
        let mut chunk = [0; 64 << 10];
        let n = timeout(LIMIT, self.wire.read(&mut chunk)).await.expect("more in time").unwrap_or(0);
        self.raw.extend_from_slice(&chunk[..n]);
        n > 0
    }

    async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8(self.raw.drain(..end + 4).collect()).unwrap();
                return head;
            }
            assert!(self.more().await, "the connection ended");
        }
    }

    /// Takes whole chunks of the transfer encoding.
    fn unchunk(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            let chunk: Vec<u8> = self.raw.drain(..end + 2 + size + 2).collect();
            self.text.push_str(std::str::from_utf8(&chunk[end + 2..end + 2 + size]).unwrap());
        }
    }

    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            self.unchunk();
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let mut lines =
                        event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    lines.next().map(str::to_owned)
                };
                let Some(data) = field("data") else { continue };
                let data = serde_json::from_str(&data).unwrap();
                return Some(Event { name: field("event").unwrap(), id: field("id"), data });
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The next event of this name.
    pub(crate) async fn of(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if event.name == name {
                return event;
            }
        }
    }

    /// Facts until one is found that fits, with the id after it.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> (Vec<Value>, String) {
        let mut seen = Vec::new();
        loop {
            let Event { id, data, .. } = self.of("facts").await;
            let facts = data["facts"].as_array().unwrap().clone();
            let is_found = facts.iter().any(|fact| fits(&fact["event"]));
            seen.extend(facts);
            if is_found {
                return (seen, id.unwrap());
            }
        }
    }
}
