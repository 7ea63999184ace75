//! One HTTP/1.1 connection over TLS that is used again and again.

mod watch;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub(crate) use self::watch::Watch;
use crate::kubeconfig::Kubeconfig;

/// A connection as the administrator.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    out: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(kubeconfig: &Kubeconfig) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&kubeconfig.ca)?)?;
        let certificate = CertificateDer::from_pem_slice(&kubeconfig.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&kubeconfig.key)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        let stream = TcpStream::connect(&kubeconfig.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
        Ok(Self { stream: StreamOwned::new(connection, stream), out: Vec::new(), answer: Vec::new() })
    }

    /// Sends a request and waits for the answer: its status and its body.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(u16, &[u8])> {
        self.send_as(method, path, "application/json", body)
    }

    /// The same with a body of another type.
    pub(crate) fn send_as(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(u16, &[u8])> {
        self.out.clear();
        let length = body.len();
        write!(
            self.out,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        self.out.extend_from_slice(body);
        self.stream.write_all(&self.out)?;
        self.stream.flush()?;
        self.receive()
    }

    fn receive(&mut self) -> Result<(u16, &[u8])> {
        self.answer.clear();
        let mut part = [0; 16 * 1024];
        loop {
            let count = self.stream.read(&mut part)?;
            if count == 0 {
                bail!("the server has closed the connection");
            }
            self.answer.extend_from_slice(&part[..count]);
            let Some(end) = find(&self.answer, b"\r\n\r\n").map(|at| at + 4) else { continue };
            let head = std::str::from_utf8(&self.answer[..end])?.to_ascii_lowercase();
            let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
            let length = head.split_once("content-length: ").context("an answer without a length")?.1;
            let length: usize = length.split("\r\n").next().unwrap_or_default().parse()?;
            while self.answer.len() < end + length {
                let count = self.stream.read(&mut part)?;
                if count == 0 {
                    bail!("the server has closed the connection");
                }
                self.answer.extend_from_slice(&part[..count]);
            }
            return Ok((status, &self.answer[end..]));
        }
    }
}

/// Where a text begins.
pub(crate) fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// The resourceVersion in an answer.
pub(crate) fn resource_version(answer: &[u8]) -> Option<&str> {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    let rest = &answer[find(answer, FIELD)? + FIELD.len()..];
    std::str::from_utf8(&rest[..find(rest, b"\"")?]).ok()
}
