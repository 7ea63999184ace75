//! A server that behaves as badly as it is asked to: by the name of the object that somebody wants.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "strange.example.com";

/// How many bytes are sent up and down.
pub(super) const LARGE: usize = 64 << 20;

/// The longest head of a request.
const HEAD: usize = 64 << 10;

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A server that lives as long as this does.
pub(super) struct Stranger {
    pub(super) port: u16,
    /// The authority of its certificate, as an APIService has it.
    pub(super) authority: String,
    /// The certificate itself.
    pub(super) leaf: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Stranger {
    /// Starts one whose certificate is for this host.
    pub(super) fn start(host: &str) -> Result<Stranger> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "strange-ca");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut server = CertificateParams::new(vec![host.to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let server = server.signed_by(&key, &authority)?;
        let private = PrivateKeyDer::try_from(key.serialize_der()).ok().context("a key is a key")?;
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![server.der().clone()], private)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::<State>::default();
        let (tls, shared) = (Arc::new(tls), Arc::clone(&state));
        thread::spawn(move || accept(&listener, &tls, &shared));
        let (authority, leaf) = (STANDARD.encode(authority.pem()), STANDARD.encode(server.pem()));
        Ok(Stranger { port, authority, leaf, state })
    }
}

impl Drop for Stranger {
    /// Hangs up on everybody at once, as a server does that is killed.
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // The listener is woken, and goes.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for connection in self.state.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, tls: &Arc<ServerConfig>, state: &State) {
    for stream in listener.incoming() {
        if state.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if let Ok(known) = stream.try_clone() {
            state.connections.lock().unwrap_or_else(PoisonError::into_inner).push(known);
        }
        let tls = Arc::clone(tls);
        // Whoever is talked to in this way hangs up sooner or later, which is no failure here.
        thread::spawn(move || {
            let Ok(connection) = ServerConnection::new(tls) else { return };
            let mut stream = StreamOwned::new(connection, stream);
            let _ = behave(&mut stream);
            stream.conn.send_close_notify();
            let _ = stream.flush();
            let _ = stream.sock.shutdown(Shutdown::Both);
        });
    }
}

/// Answers one request.
fn behave(stream: &mut Stream) -> std::io::Result<()> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let end = loop {
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let read = stream.read(&mut buffer)?;
        if read == 0 || request.len() > HEAD {
            return Ok(());
        }
        request.extend(&buffer[..read]);
    };
    let head = String::from_utf8_lossy(&request[..end]).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path == format!("/apis/{GROUP}/v1") {
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
            "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                "verbs": ["get", "list", "watch"]}]});
        return answer(stream, "200 OK", &list);
    }
    let Some((_, name)) = path.split_once("/things") else {
        return answer(stream, "404 Not Found", &json!({"kind": "Status", "code": 404}));
    };
    match name {
        "" if query.contains("watch") => watch(stream),
        "/echo" => answer(stream, "200 OK", &identity(&head)),
        "/garbage" => stay(stream, b"SSH-2.0-OpenSSH_9.9\r\n"),
        "/nothing" => stay(stream, b""),
        "/hangs-up" => Ok(()),
        "/redirect" => stream.write_all(
            b"HTTP/1.1 307 Temporary Redirect\r\nlocation: https://evil.example/\r\ncontent-length: 0\r\n\r\n",
        ),
        "/switches" => {
            stay(stream, b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        }
        "/breaks-off" => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of"),
        "/two-lengths" => stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n8\r\nabcdefgh\r\n0\r\n\r\n",
        ),
        "/endless-head" => forever(stream, b"HTTP/1.1 200 OK\r\n", b"x-and-so-on: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        "/endless" => {
            let piece = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
            forever(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", &piece)
        }
        "/drips" => loop {
            stream.write_all(b"H")?;
            thread::sleep(Duration::from_millis(50));
        },
        "/upload" => upload(stream, &head, request.len() - end),
        "/download" => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            (0..LARGE >> 16).try_for_each(|_| stream.write_all(&[b'x'; 1 << 16]))
        }
        "/exec" => exec(stream, &request[end..]),
        _ => answer(stream, "404 Not Found", &json!({"kind": "Status", "code": 404})),
    }
}

fn answer(stream: &mut Stream, code: &str, value: &Value) -> std::io::Result<()> {
    let text = value.to_string();
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}

/// Says this, and neither says more nor hangs up.
fn stay(stream: &mut Stream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()?;
    while stream.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

fn forever(stream: &mut Stream, begin: &[u8], again: &[u8]) -> std::io::Result<()> {
    stream.write_all(begin)?;
    let many = again.repeat((1 << 16) / again.len() + 1);
    loop {
        stream.write_all(&many)?;
    }
}

/// What the request says of who asks.
fn identity(head: &str) -> Value {
    let is_of_user = |name: &str| {
        ["authorization", "impersonate-", "x-remote-", "x_remote"].iter().any(|begin| name.starts_with(begin))
    };
    let mut all: Vec<String> = head.lines().skip(1).map(str::to_owned).collect();
    all.retain(|line| is_of_user(&line.to_lowercase()));
    all.iter_mut().for_each(|line| {
        if let Some((name, value)) = line.split_once(':') {
            *line = format!("{}: {}", name.to_lowercase(), value.trim());
        }
    });
    all.sort();
    json!(all)
}

fn upload(stream: &mut Stream, head: &str, read_already: usize) -> std::io::Result<()> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = lengths.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0);
    let (mut taken, mut buffer) = (read_already, vec![0; 1 << 16]);
    while taken < length {
        match stream.read(&mut buffer)? {
            0 => break,
            read => taken += read,
        }
    }
    answer(stream, "200 OK", &json!({"taken": taken}))
}

fn watch(stream: &mut Stream) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    for number in 0.. {
        let event = json!({"type": "ADDED", "object": {"kind": "Thing", "metadata": {"name": format!("thing-{number}")}}});
        let text = format!("{event}\n");
        write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
        stream.flush()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Says everything again, louder.
fn exec(stream: &mut Stream, early: &[u8]) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n")?;
    stream.write_all(&early.to_ascii_uppercase())?;
    let mut buffer = [0; 4096];
    loop {
        stream.flush()?;
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read].to_ascii_uppercase())?,
        }
    }
}
