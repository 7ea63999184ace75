//! What goes through goes through piece by piece.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::{Env, Task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::backend::{Setup, full};
use super::{FLUNDERS, SERVICES, with_backend};

/// How many MiB a large body has.
const PIECES: usize = 64;

type Pieces = mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>;

/// A backend whose answers are what is sent here.
fn fed() -> (Setup, Arc<Mutex<Vec<Pieces>>>) {
    let senders: Arc<Mutex<Vec<Pieces>>> = Arc::default();
    let keep = Arc::clone(&senders);
    let setup = Setup::answering(move |_| {
        let (sender, receiver) = mpsc::channel(0);
        keep.lock().push(sender);
        let body = BodyExt::boxed_unsync(StreamBody::new(receiver));
        Ok(Box::pin(std::future::ready(Response::new(body))))
    });
    (setup, senders)
}

#[tokio::test]
async fn a_watch_is_told_each_event_when_it_happens_and_ends_with_the_api_service() {
    let (setup, senders) = fed();
    let (api, _backend) = with_backend(setup).await;
    let mut watch = api
        .server
        .as_user(User::admin())
        .oneshot(Request::get(format!("{FLUNDERS}?watch=1")).body(Full::<Bytes>::default()).unwrap())
        .await
        .unwrap()
        .into_body();
    let mut sender = senders.lock().pop().unwrap();
    for n in 0..3 {
        let piece = Bytes::from(format!("event {n}\n"));
        sender.send(Ok(Frame::data(piece.clone()))).await.unwrap();
        let seen =
            tokio::time::timeout(Duration::from_secs(5), watch.frame()).await.expect("it is sent on at once");
        assert_eq!(seen.unwrap().unwrap().into_data().unwrap(), piece);
    }
    api.delete(&format!("{SERVICES}/v1.wardle.example.com"), &serde_json::Value::Null).await.ok();
    let end = tokio::time::timeout(Duration::from_secs(5), watch.frame()).await.expect("it has ended");
    assert!(end.is_none());
    tokio::time::timeout(Duration::from_secs(5), async {
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    })
    .await
    .expect("the backend is let go, too");
}

#[tokio::test]
async fn a_watch_goes_on_with_new_priorities_and_authorities_and_ends_with_another_service() {
    let (setup, senders) = fed();
    let (api, backend) = with_backend(setup).await;
    let request = Request::get(format!("{FLUNDERS}?watch=1")).body(Full::<Bytes>::default()).unwrap();
    let mut watch = api.server.as_user(User::admin()).oneshot(request).await.unwrap().into_body();
    let mut sender = senders.lock().pop().unwrap();
    let path = format!("{SERVICES}/v1.wardle.example.com");
    let other = CertificateAuthority::generate(&Env::system()).unwrap();
    let both = STANDARD.encode(format!("{}{}", other.certificate_pem(), backend.bundle));
    for change in [
        json!({"groupPriorityMinimum": 1500, "versionPriority": 20}),
        json!({"caBundle": both}),
        json!({"insecureSkipTLSVerify": true, "caBundle": null}),
    ] {
        api.merge(&path, &json!({"spec": change})).await.ok();
        // Whoever looks after the backend has its time.
        tokio::time::sleep(Duration::from_millis(100)).await;
        sender.send(Ok(Frame::data("event\n".into()))).await.unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(5), watch.frame()).await.expect("it is sent on");
        assert_eq!(seen.expect("it goes on").unwrap().into_data().unwrap(), "event\n", "{change}");
    }
    api.merge(&path, &json!({"spec": {"service": {"port": 444}}})).await.ok();
    let end = tokio::time::timeout(Duration::from_secs(5), watch.frame()).await.expect("it has ended");
    assert!(end.is_none());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let (setup, senders) = fed();
    let (api, _backend) = with_backend(setup).await;
    let request = Request::get(FLUNDERS).body(Full::<Bytes>::default()).unwrap();
    let mut body = api.server.as_user(User::admin()).oneshot(request).await.unwrap().into_body();
    let mut sender = senders.lock().pop().unwrap();
    sender.send(Ok(Frame::data("half of".into()))).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half of");
    sender.send(Err(std::io::Error::other("gone"))).await.unwrap();
    body.frame().await.unwrap().unwrap_err();
}

#[tokio::test]
async fn what_a_client_does_not_take_waits_in_the_backend() {
    let (setup, senders) = fed();
    let (api, _backend) = with_backend(setup).await;
    let request = Request::get(format!("{FLUNDERS}?watch=1")).body(Full::<Bytes>::default()).unwrap();
    let response = api.server.as_user(User::admin()).oneshot(request).await.unwrap();
    let mut sender = senders.lock().pop().unwrap();
    let (piece, mut sent) = (Bytes::from(vec![b'x'; 1 << 20]), 0);
    // Sockets have buffers; after those nothing goes on.
    while tokio::time::timeout(Duration::from_millis(500), sender.send(Ok(Frame::data(piece.clone()))))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 64, "somebody keeps {sent} MiB");
    }
    drop(response);
}

#[tokio::test]
async fn a_large_body_goes_up_piece_by_piece() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let setup = Setup::answering(move |request| {
        let count = Arc::clone(&count);
        Ok(Box::pin(async move {
            let mut body = pin!(request.into_body());
            while let Some(Ok(frame)) = body.frame().await {
                count.fetch_add(frame.data_ref().map_or(0, Bytes::len), Ordering::Relaxed);
            }
            Response::new(full(count.load(Ordering::Relaxed).to_string()))
        }))
    });
    let (api, _backend) = with_backend(setup).await;
    let (mut sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(0);
    let feed = async {
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        for _ in 0..PIECES {
            sender.send(Ok(Frame::data(piece.clone()))).await.unwrap();
        }
        // The backend has some of it before it has all of it.
        assert!(taken.load(Ordering::Relaxed) > 0);
        sender.close_channel();
    };
    let request = Request::post(FLUNDERS).body(StreamBody::new(receiver)).unwrap();
    let asking = api.server.as_user(User::admin()).oneshot(request);
    let ((), response) = futures::join!(feed, asking);
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, (PIECES << 20).to_string(), "far more than an object of this server may have");
}

/// A client's connection that asks for an upgrade.
pub(crate) struct Upgrading {
    pub(crate) stream: tokio_rustls::client::TlsStream<TcpStream>,
    shutdown: CancellationToken,
    serving: Task<()>,
}

impl Upgrading {
    /// Asks as jane, who claims to be root.
    async fn ask(server: ApiServer) -> Upgrading {
        Upgrading::ask_for(server, &format!("{FLUNDERS}/one/exec?command=sh"), "SPDY/3.1").await
    }

    /// The same for another path and protocol.
    pub(crate) async fn ask_for(server: ApiServer, path: &str, protocol: &str) -> Upgrading {
        let env = Env::system();
        let ca = CertificateAuthority::generate(&env).unwrap();
        let tls = ca.server_config(&ca.issue_server(["localhost"]).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let serving = env.spawn(async move { server.serve(listener, tls, stop).await });
        let jane = ca.issue_client(&User::new("jane", ["system:masters"])).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.certificate_der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![jane.certificate_der().clone()], jane.key_der().clone_key())
            .unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\n\
             x-remote-user: root\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Upgrading { stream, shutdown, serving }
    }

    /// Reads up to and including these bytes.
    pub(crate) async fn until(&mut self, end: &[u8]) -> String {
        let mut seen = Vec::new();
        while !seen.ends_with(end) {
            let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read_buf(&mut seen)).await;
            assert_ne!(read.expect("it comes").unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
        }
        String::from_utf8_lossy(&seen).to_lowercase()
    }
}

#[tokio::test]
async fn a_connection_that_is_upgraded_is_joined_with_the_backends() {
    let tasks: Arc<Mutex<Vec<Task<()>>>> = Arc::default();
    let setup = Setup::answering(move |mut request| {
        if !request.headers().contains_key(header::UPGRADE) {
            return Err(request);
        }
        let upgraded = hyper::upgrade::on(&mut request);
        let echo = Env::system().spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            io.write_all(b"hello ").await.unwrap();
            let mut buffer = [0; 64];
            while let Ok(n @ 1..) = io.read(&mut buffer).await {
                io.write_all(&buffer[..n].to_ascii_uppercase()).await.unwrap();
            }
        });
        tasks.lock().push(echo);
        let user = request.headers()["x-remote-user"].clone();
        let answer =
            Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        Ok(Box::pin(std::future::ready(answer.header("x-user", user).body(full("")).unwrap())))
    });
    let (api, backend) = with_backend(setup).await;
    let mut client = Upgrading::ask(api.server.clone()).await;
    let text = client.until(b"hello ").await;
    let Upgrading { mut stream, shutdown, serving } = client;
    assert!(text.starts_with("http/1.1 101 "), "{text}");
    assert!(text.contains("x-user: jane\r\n") && text.contains("upgrade: spdy/3.1\r\n"), "{text}");
    stream.write_all(b"and more").await.unwrap();
    let mut more = [0; 8];
    stream.read_exact(&mut more).await.unwrap();
    assert_eq!(&more, b"AND MORE");
    shutdown.cancel();
    let end = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut more)).await;
    assert!(!matches!(end.expect("the server ends it"), Ok(1..)));
    serving.await.unwrap();
    drop(backend);
}

#[tokio::test]
async fn a_refused_upgrade_leaves_no_way_to_the_backend() {
    let setup = Setup::answering(|request| {
        if !request.headers().contains_key(header::UPGRADE) {
            return Err(request);
        }
        Ok(Box::pin(std::future::ready(Response::builder().status(400).body(full("no")).unwrap())))
    });
    let (api, backend) = with_backend(setup).await;
    let mut client = Upgrading::ask(api.server.clone()).await;
    let refused = client.until(b"no").await;
    assert!(refused.starts_with("http/1.1 400 "), "{refused}");
    let asked = backend.count();
    // What is said on the same connection is said to the server, which knows who says it.
    let next = format!("GET {FLUNDERS} HTTP/1.1\r\nhost: x\r\nx-remote-user: root\r\n\r\n");
    client.stream.write_all(next.as_bytes()).await.unwrap();
    let answer = client.until(b"}").await;
    assert!(answer.contains("\"x-remote-user\":[\"jane\"]"), "{answer}");
    assert_eq!(backend.count(), asked + 1);
}

#[tokio::test]
async fn a_tunnel_ends_with_either_end_even_if_the_other_does_not_read() {
    let ends: Arc<Mutex<Vec<Task<()>>>> = Arc::default();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let setup = Setup::answering(move |mut request| {
        if !request.headers().contains_key(header::UPGRADE) {
            return Err(request);
        }
        let (upgraded, ended) = (hyper::upgrade::on(&mut request), Arc::clone(&count));
        ends.lock().push(Env::system().spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            // More than any socket keeps.
            while io.write_all(&[b'x'; 65536]).await.is_ok() {}
            ended.fetch_add(1, Ordering::Relaxed);
        }));
        let answer =
            Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        Ok(Box::pin(std::future::ready(answer.body(full("")).unwrap())))
    });
    let (api, _backend) = with_backend(setup).await;
    let mut client = Upgrading::ask(api.server.clone()).await;
    client.until(b"xxxx").await;
    // It says that it is done, and reads no more.
    client.stream.shutdown().await.unwrap();
    let gone = async {
        while ended.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the backend is let go");
}
