//! A small HTTP/1.1 client that shows what is on the wire: the status line,
//! the headers, and each chunk of a chunked body as it comes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::kubeconfig::Kubeconfig;

/// No single read waits longer.
const READ_LIMIT: Duration = Duration::from_secs(10);

pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Makes connections to one server; each request has its own.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    tls: Option<Arc<ClientConfig>>,
    /// Lines that each request has besides its own.
    headers: String,
}

impl Client {
    /// Plain HTTP, as `kubectl proxy` speaks.
    pub(crate) fn plain(address: &str) -> Self {
        Self { address: address.to_owned(), tls: None, headers: String::new() }
    }

    /// TLS with the client certificate of a kubeconfig.
    pub(crate) fn admin(kubeconfig: &Kubeconfig) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(&kubeconfig.certificate).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&kubeconfig.key).context("the client key is not PEM")?;
        let config = trusting(kubeconfig)?.with_client_auth_cert(chain, key)?;
        Ok(Self { address: kubeconfig.address.clone(), tls: Some(Arc::new(config)), headers: String::new() })
    }

    /// TLS without any credentials.
    pub(crate) fn anonymous(kubeconfig: &Kubeconfig) -> Result<Self> {
        let config = trusting(kubeconfig)?.with_no_client_auth();
        Ok(Self { address: kubeconfig.address.clone(), tls: Some(Arc::new(config)), headers: String::new() })
    }

    /// TLS with a bearer token.
    pub(crate) fn with_token(kubeconfig: &Kubeconfig, token: &str) -> Result<Self> {
        Ok(Self::anonymous(kubeconfig)?.with_headers(&format!("Authorization: Bearer {token}")))
    }

    /// The same with more headers, in the form of the wire.
    pub(crate) fn with_headers(mut self, lines: &str) -> Self {
        self.headers.push_str(lines);
        self.headers.push_str("\r\n");
        self
    }

    pub(crate) fn get(&self, path: &str) -> Result<Response> {
        self.send("GET", path, "application/json", None)
    }

    /// GET that must be answered with 200 and a JSON document.
    pub(crate) fn get_json(&self, path: &str, accept: &str) -> Result<Value> {
        let response = self.send("GET", path, accept, None)?;
        let status = response.status;
        let body = response.text()?;
        if status != 200 {
            bail!("GET {path} answered {status}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("GET {path} did not answer JSON: {body}"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Response> {
        self.send("POST", path, "application/json", Some(body))
    }

    /// Any request with a body of this type, answered in JSON.
    pub(crate) fn exchange(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        self.send_as(method, path, "application/json", media, body)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        self.send_as(method, path, accept, "application/json", body)
    }

    fn send_as(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        let mut stream = self.connect()?;
        let host = &self.address;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n");
        request.push_str(&self.headers);
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request.push_str(&format!("Content-Type: {media}\r\nContent-Length: {}\r\n", body.len()));
        }
        request.push_str("Connection: close\r\n\r\n");
        request.push_str(&body);
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        Response::read(BufReader::new(stream)).with_context(|| format!("{method} {path}"))
    }

    /// A connection on which anything can be said.
    pub(crate) fn connect(&self) -> Result<Box<dyn Stream>> {
        let address = self.address.to_socket_addrs()?.next().context("no address")?;
        let stream = TcpStream::connect_timeout(&address, READ_LIMIT)?;
        stream.set_read_timeout(Some(READ_LIMIT))?;
        stream.set_write_timeout(Some(READ_LIMIT))?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let host = self.address.rsplit_once(':').context("no port")?.0.trim_matches(['[', ']']);
        let connection = ClientConnection::new(tls.clone(), ServerName::try_from(host.to_owned())?)?;
        Ok(Box::new(StreamOwned::new(connection, stream)))
    }
}

fn trusting(
    kubeconfig: &Kubeconfig,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&kubeconfig.ca) {
        roots.add(certificate?)?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots))
}

/// A response whose body has not been read yet.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<Box<dyn Stream>>,
    /// What is left of the current line of a stream of events.
    pending: Vec<u8>,
}

impl Response {
    /// Reads the head of a response.
    pub(crate) fn read(mut stream: BufReader<Box<dyn Stream>>) -> Result<Self> {
        let first = line(&mut stream)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("not an HTTP status line: {first:?}"))?;
        let mut headers = Vec::new();
        loop {
            let header = line(&mut stream)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').context("a header without a colon")?;
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        Ok(Self { status, headers, body: stream, pending: Vec::new() })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }

    /// The whole body.
    pub(crate) fn text(mut self) -> Result<String> {
        let mut bytes = Vec::new();
        if self.is_chunked() {
            while let Some(chunk) = self.chunk()? {
                bytes.extend(chunk);
            }
        } else if let Some(length) = self.header("content-length") {
            bytes.resize(length.parse()?, 0);
            self.body.read_exact(&mut bytes)?;
        } else {
            self.body.read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8(bytes)?)
    }

    /// The next event of a watch, which must come in chunks.
    pub(crate) fn event(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let event = std::mem::replace(&mut self.pending, rest);
                return serde_json::from_slice(&event).context("an event is not JSON");
            }
            let chunk = self.chunk()?.context("the watch ended before the event came")?;
            self.pending.extend(chunk);
        }
    }

    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let size = line(&mut self.body)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).with_context(|| format!("not a chunk size: {size:?}"))?;
        let mut bytes = vec![0; size];
        self.body.read_exact(&mut bytes)?;
        line(&mut self.body)?;
        Ok((size > 0).then_some(bytes))
    }
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut text = String::new();
    if stream.read_line(&mut text)? == 0 {
        bail!("the connection was closed");
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn response(text: &str) -> Response {
        let stream: Box<dyn Stream> = Box::new(Cursor::new(text.as_bytes().to_vec()));
        Response::read(BufReader::new(stream)).unwrap()
    }

    #[test]
    fn chunks_are_put_together() {
        let text =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(response(text).text().unwrap(), "abcde");
    }

    #[test]
    fn events_may_cross_chunks() {
        let text =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1]\r\n5\r\n\n[2]\n\r\n0\r\n\r\n";
        let mut watch = response(text);
        assert_eq!(watch.event().unwrap()[0], 1);
        assert_eq!(watch.event().unwrap()[0], 2);
        assert!(watch.event().is_err());
    }

    #[test]
    fn a_body_ends_at_its_length() {
        let text = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nabcd";
        let answer = response(text);
        assert_eq!(answer.status, 404);
        assert_eq!(answer.text().unwrap(), "ab");
    }
}
