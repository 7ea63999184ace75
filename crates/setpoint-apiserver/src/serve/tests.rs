//! Real TLS on the loopback device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::User;
use crate::pki::{CertificateAuthority, Identity};

mod front_proxy;

type BoxBody = UnsyncBoxBody<Bytes, Infallible>;
type Failure = Box<dyn StdError + Send + Sync>;

/// Anything that takes longer than this in a test hangs.
const HANG: Duration = Duration::from_secs(20);
/// A limit that a test waits for.
const SHORT: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    Http1,
    Http2,
}

const VERSIONS: [Version; 2] = [Version::Http1, Version::Http2];

/// What the service under the server can be told, and tells.
#[derive(Default)]
struct Stage {
    shutdown: CancellationToken,
    release: Notify,
    entered: Notify,
    /// Requests and responses that are alive.
    alive: AtomicUsize,
}

/// Counts itself while it lives.
struct Alive(Arc<Stage>);

impl Alive {
    fn new(stage: &Arc<Stage>) -> Alive {
        stage.alive.fetch_add(1, Ordering::SeqCst);
        Alive(Arc::clone(stage))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Stage {
    /// Waits until everything that belonged to requests is gone.
    async fn all_gone(&self) {
        let gone = async {
            while self.alive.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(HANG, gone).await.expect("requests are still alive");
    }
}

async fn answer(stage: Arc<Stage>, request: Request<Incoming>) -> Result<Response<BoxBody>, Infallible> {
    let alive = Alive::new(&stage);
    let body = match request.uri().path() {
        "/whoami" => match User::of(request.extensions()) {
            Some(user) => text(format!("{} {}", user.name, user.groups.join(","))),
            None => text("nobody".to_owned()),
        },
        "/unknown" => {
            let mut response = Response::new(text("who are you?".to_owned()));
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            response.extensions_mut().insert(Unidentified);
            return Ok(response);
        }
        "/panic" => panic!("as the test wants it"),
        "/panic-late" => stream_of(stream::once(async { first_frame() }).chain(stream::poll_fn(|_| {
            panic!("as the test wants it");
        }))),
        "/slow" => {
            stage.entered.notify_one();
            stage.release.notified().await;
            text("done".to_owned())
        }
        // A watch as it should be: it ends on the token.
        "/watch" => {
            let token = stage.shutdown.clone();
            stream_of(
                stream::once(async { first_frame() })
                    .chain(stream::poll_fn(Box::new(ended_by(alive, token)))),
            )
        }
        // A watch that knows no token.
        "/deaf" => stream_of(stream::once(async { first_frame() }).chain(stream::poll_fn(move |_| {
            let _owned = &alive;
            Poll::Pending
        }))),
        // More than anybody reads.
        "/flood" => stream_of(stream::repeat_with(move || {
            let _owned = &alive;
            Ok(Frame::data(Bytes::from(vec![b'x'; 256 * 1024])))
        })),
        _ => text(format!("{:?}", request.version())),
    };
    Ok(Response::new(body))
}

fn ended_by(
    alive: Alive,
    token: CancellationToken,
) -> impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> + Send + Unpin {
    let mut end = Box::pin(async move {
        token.cancelled().await;
        drop(alive);
    });
    move |cx| end.as_mut().poll(cx).map(|()| None)
}

fn text(text: String) -> BoxBody {
    Full::new(Bytes::from(text)).boxed_unsync()
}

fn stream_of(
    stream: impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> BoxBody {
    StreamBody::new(stream).boxed_unsync()
}

fn first_frame() -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from_static(b"first")))
}

struct TestServer {
    env: Env,
    ca: CertificateAuthority,
    address: SocketAddr,
    stage: Arc<Stage>,
    running: Task<()>,
}

impl TestServer {
    async fn start() -> TestServer {
        TestServer::start_with(|_| {}).await
    }

    async fn start_with(adjust: impl FnOnce(&mut Limits)) -> TestServer {
        let env = Env::system();
        let ca = CertificateAuthority::generate(&env).unwrap();
        let tls = ca.server_config(&ca.issue_server(["test.example"]).unwrap()).unwrap();
        TestServer::start_on(env, ca, tls, adjust).await
    }

    async fn start_on(
        env: Env,
        ca: CertificateAuthority,
        tls: Arc<ServerConfig>,
        adjust: impl FnOnce(&mut Limits),
    ) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stage = Arc::new(Stage::default());
        let mut limits = Limits::default();
        adjust(&mut limits);
        let service = {
            let stage = Arc::clone(&stage);
            tower::service_fn(move |request| answer(Arc::clone(&stage), request))
        };
        let options = Options { env: env.clone(), shutdown: stage.shutdown.clone(), limits };
        let running = env.spawn(serve(service, listener, tls, options));
        TestServer { env, ca, address, stage, running }
    }

    async fn tls(&self, client: Option<&Identity>, version: Version) -> io::Result<TlsStream<TcpStream>> {
        self.tls_with(self.client_config(client, version)).await
    }

    /// What clients know. One configuration for several connections lets them resume sessions.
    fn client_config(&self, client: Option<&Identity>, version: Version) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.certificate_der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clock = Arc::new(crate::pki::Clock(self.env.clone()));
        let config = ClientConfig::builder_with_details(provider, clock)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match client {
            None => config.with_no_client_auth(),
            Some(client) => config
                .with_client_auth_cert(vec![client.certificate_der().clone()], client.key_der().clone_key())
                .unwrap(),
        };
        if version == Version::Http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Arc::new(config)
    }

    async fn tls_with(&self, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("test.example").unwrap();
        TlsConnector::from(config).connect(name, stream).await
    }

    async fn client(&self, client: Option<&Identity>, version: Version) -> Result<Client, Failure> {
        self.client_with(self.client_config(client, version), version).await
    }

    async fn client_with(&self, config: Arc<ClientConfig>, version: Version) -> Result<Client, Failure> {
        let io = TokioIo::new(self.tls_with(config).await?);
        let env = self.env.clone();
        Ok(match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                Client::Http1(sender, env.spawn(async { drop(connection.await) }))
            }
            Version::Http2 => {
                let executor = streams::Streams::new(&env);
                let (sender, connection) = http2::handshake(executor.executor(), io).await?;
                Client::Http2(sender, env.spawn(async { drop((connection.await, executor)) }))
            }
        })
    }

    async fn stopped(self) {
        tokio::time::timeout(HANG, self.running).await.expect("the server hangs").unwrap();
    }
}

enum Client {
    Http1(http1::SendRequest<Empty<Bytes>>, #[expect(dead_code, reason = "owns the task")] Task<()>),
    Http2(http2::SendRequest<Empty<Bytes>>, #[expect(dead_code, reason = "owns the task")] Task<()>),
}

impl Client {
    async fn get(&mut self, path: &str) -> Result<Response<Incoming>, Failure> {
        tokio::time::timeout(HANG, self.get_at_leisure(path)).await?
    }

    /// The same, for those who let time pass meanwhile.
    async fn get_at_leisure(&mut self, path: &str) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().uri(format!("https://test.example{path}"));
        let request = request.header(http::header::HOST, "test.example").body(Empty::new())?;
        Ok(match self {
            Client::Http1(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Client::Http2(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        })
    }

    async fn get_text(&mut self, path: &str) -> Result<String, Failure> {
        read(self.get(path).await?).await
    }
}

async fn read(response: Response<Incoming>) -> Result<String, Failure> {
    let body = tokio::time::timeout(HANG, response.into_body().collect()).await??;
    Ok(String::from_utf8(body.to_bytes().to_vec())?)
}

/// Whether the server breaks off a response, rather than we lose patience.
async fn is_cut_off(response: Response<Incoming>) -> bool {
    matches!(tokio::time::timeout(HANG, response.into_body().collect()).await, Ok(Err(_)))
}

/// What the server sends until it closes the connection.
async fn read_to_end(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(HANG, stream.read_to_end(&mut bytes)).await;
    let _closed_or_reset = end.expect("the server keeps the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_client_gets_the_http_version_that_it_negotiates() {
    let server = TestServer::start().await;
    let mut http1 = server.client(None, Version::Http1).await.unwrap();
    assert_eq!(http1.get_text("/").await.unwrap(), "HTTP/1.1");
    let mut http2 = server.client(None, Version::Http2).await.unwrap();
    assert_eq!(http2.get_text("/").await.unwrap(), "HTTP/2.0");
}

#[tokio::test]
async fn a_client_certificate_tells_the_service_who_asks() {
    let server = TestServer::start().await;
    let jane = server.ca.issue_client(&User::new("jane", ["developers", "operators"])).unwrap();
    for version in VERSIONS {
        let mut client = server.client(Some(&jane), version).await.unwrap();
        assert_eq!(
            client.get_text("/whoami").await.unwrap(),
            "jane developers,operators,system:authenticated"
        );
        let mut client = server.client(None, version).await.unwrap();
        assert_eq!(client.get_text("/whoami").await.unwrap(), "nobody");
    }
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_refused() {
    let server = TestServer::start().await;
    let stranger = CertificateAuthority::generate(&server.env).unwrap();
    let mallory = stranger.issue_client(&User::admin()).unwrap();
    for version in VERSIONS {
        // With TLS 1.3 a client learns of the refusal only when it reads.
        let refused = match server.client(Some(&mallory), version).await {
            Err(_) => true,
            Ok(mut client) => client.get("/whoami").await.is_err(),
        };
        assert!(refused, "{version:?}");
    }
}

#[tokio::test]
async fn a_server_certificate_is_no_client_certificate() {
    let server = TestServer::start().await;
    let misused = server.ca.issue_server(["test.example"]).unwrap();
    let refused = match server.client(Some(&misused), Version::Http1).await {
        Err(_) => true,
        Ok(mut client) => client.get("/whoami").await.is_err(),
    };
    assert!(refused);
}

#[tokio::test]
async fn a_panic_in_the_service_is_a_500_status_and_the_connection_goes_on() {
    let server = TestServer::start().await;
    for version in VERSIONS {
        let mut client = server.client(None, version).await.unwrap();
        let response = client.get("/panic").await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[http::header::CONTENT_TYPE], "application/json");
        let status: serde_json::Value = serde_json::from_str(&read(response).await.unwrap()).unwrap();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["reason"], "InternalError");
        assert!(client.get_text("/").await.is_ok(), "{version:?}");
    }
}

#[tokio::test]
async fn a_panic_in_a_response_body_breaks_that_response_only() {
    let server = TestServer::start().await;
    for version in VERSIONS {
        let mut client = server.client(None, version).await.unwrap();
        assert!(client.get_text("/panic-late").await.is_err(), "{version:?} hides the panic");
        if version == Version::Http2 {
            assert!(client.get_text("/").await.is_ok(), "the other streams go on");
        }
    }
    assert!(server.client(None, Version::Http1).await.unwrap().get_text("/").await.is_ok());
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_takes_no_new_connections() {
    for version in VERSIONS {
        let server = TestServer::start().await;
        let mut client = server.client(None, version).await.unwrap();
        let _idle = server.client(None, version).await.unwrap();
        let stage = Arc::clone(&server.stage);
        let address = server.address;
        let (answer, ()) = tokio::join!(client.get_text("/slow"), async {
            stage.entered.notified().await;
            stage.shutdown.cancel();
            let closed = async { while TcpStream::connect(address).await.is_ok() {} };
            tokio::time::timeout(HANG, closed).await.expect("the server still listens");
            stage.release.notify_one();
        });
        assert_eq!(answer.unwrap(), "done");
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_watch_that_ends_on_the_token_reaches_its_end_on_shutdown() {
    for version in VERSIONS {
        let server = TestServer::start_with(|limits| limits.grace = HANG * 2).await;
        let mut client = server.client(None, version).await.unwrap();
        let watch = client.get("/watch").await.unwrap();
        server.stage.shutdown.cancel();
        assert_eq!(read(watch).await.unwrap(), "first");
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_watch_that_does_not_end_is_cut_off_after_the_grace_time() {
    for version in VERSIONS {
        let server = TestServer::start_with(|limits| limits.grace = SHORT).await;
        let mut client = server.client(None, version).await.unwrap();
        let watch = client.get("/deaf").await.unwrap();
        let stage = Arc::clone(&server.stage);
        stage.shutdown.cancel();
        server.stopped().await;
        assert!(read(watch).await.is_err(), "{version:?}: a cut is not an end");
        stage.all_gone().await;
    }
}

#[tokio::test]
async fn dropping_the_server_ends_its_connections_and_their_requests() {
    for version in VERSIONS {
        let server = TestServer::start().await;
        let mut client = server.client(None, version).await.unwrap();
        let watch = client.get("/deaf").await.unwrap();
        let stage = Arc::clone(&server.stage);
        drop(server);
        assert!(read(watch).await.is_err(), "{version:?}");
        stage.all_gone().await;
    }
}

#[tokio::test]
async fn a_request_ends_when_its_client_goes_away() {
    for version in VERSIONS {
        let server = TestServer::start().await;
        let mut client = server.client(None, version).await.unwrap();
        tokio::select! {
            _ = client.get_text("/slow") => panic!("nobody released it"),
            () = server.stage.entered.notified() => {}
        }
        drop(client);
        server.stage.all_gone().await;
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go() {
    let server = TestServer::start_with(|limits| {
        limits.handshake = SHORT;
        limits.head = SHORT;
    })
    .await;
    let no_handshake = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(read_to_end(no_handshake).await, "");
    for version in VERSIONS {
        let mut no_request = server.tls(None, version).await.unwrap();
        no_request.write_all(b"P").await.unwrap();
        read_to_end(no_request).await;
    }
}

#[tokio::test]
async fn a_client_that_drips_its_request_is_let_go() {
    let server = TestServer::start_with(|limits| limits.head = SHORT).await;
    let stream = server.tls(None, Version::Http1).await.unwrap();
    let (reader, mut writer) = tokio::io::split(stream);
    let drip = async {
        for byte in b"GET / HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'y')) {
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(SHORT / 20).await;
        }
    };
    tokio::select! {
        _answer = read_to_end(reader) => {}
        () = drip => {}
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_cut_off() {
    for version in VERSIONS {
        let server = TestServer::start_with(|limits| limits.stall = SHORT).await;
        let mut client = server.client(None, version).await.unwrap();
        let response = client.get("/flood").await.unwrap();
        assert_eq!(server.stage.alive.load(Ordering::SeqCst), 1, "{version:?}");
        // The response is held, and nothing of it is read.
        server.stage.all_gone().await;
        drop(response);
    }
}

#[tokio::test]
async fn a_watch_of_which_everything_is_read_may_be_silent_for_long() {
    for version in VERSIONS {
        let server = TestServer::start_with(|limits| limits.stall = SHORT).await;
        let mut client = server.client(None, version).await.unwrap();
        let mut watch = client.get("/watch").await.unwrap();
        watch.frame().await.unwrap().unwrap();
        let more = tokio::time::timeout(SHORT * 4, watch.frame()).await;
        assert!(more.is_err(), "{version:?}: {more:?}");
        server.stage.shutdown.cancel();
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_silent_peer_of_an_http2_connection_is_let_go() {
    let server = TestServer::start_with(|limits| {
        limits.ping_interval = SHORT;
        limits.ping_answer = SHORT;
    })
    .await;
    let mut stream = server.tls(None, Version::Http2).await.unwrap();
    // The preface and empty settings, and never an answer to a ping.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    read_to_end(stream).await;
}

#[tokio::test]
async fn an_oversized_head_is_answered_with_431() {
    let server = TestServer::start_with(|limits| limits.head_size = 8192).await;
    let mut stream = server.tls(None, Version::Http1).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(9000));
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_to_end(stream).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
}

#[tokio::test]
async fn a_client_without_tls_is_told_so() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = read_to_end(stream).await;
    assert!(answer.contains("400 Bad Request") && answer.contains("HTTPS"), "{answer:?}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let server = TestServer::start_with(|limits| limits.connections = 1).await;
    let mut first = server.client(None, Version::Http1).await.unwrap();
    assert!(first.get_text("/").await.is_ok());
    let second = server.client(None, Version::Http1);
    let mut second = std::pin::pin!(second);
    assert!(tokio::time::timeout(SHORT, &mut second).await.is_err(), "the limit is not kept");
    drop(first);
    let second = tokio::time::timeout(HANG, second).await.expect("its turn does not come");
    assert!(second.unwrap().get_text("/").await.is_ok());
}

#[test]
fn an_error_of_one_client_is_not_an_error_of_the_listener() {
    assert!(is_about_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    let too_many_open_files = io::Error::from_raw_os_error(24);
    assert!(!is_about_one_connection(&too_many_open_files));
}

#[tokio::test]
async fn a_stranger_that_stays_unknown_loses_its_connection() {
    for version in VERSIONS {
        let server = TestServer::start().await;
        let mut client = server.client(None, version).await.unwrap();
        let refused = client.get("/unknown").await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(read(refused).await.unwrap(), "who are you?", "the answer arrives");
        let closed = async { while client.get_text("/").await.is_ok() {} };
        tokio::time::timeout(HANG, closed).await.expect("the connection goes on");
        server.stage.all_gone().await;
    }
}

#[tokio::test]
async fn a_stranger_that_does_not_take_its_leave_is_cut_off() {
    let server = TestServer::start_with(|limits| limits.grace = SHORT).await;
    let mut stream = server.tls(None, Version::Http2).await.unwrap();
    // The preface, empty settings and one request; and never an answer to a ping, for which a polite end waits.
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let head = b"\x82\x87\x44\x08/unknown\x41\x0ctest.example";
    bytes.extend_from_slice(&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(head);
    stream.write_all(&bytes).await.unwrap();
    let answer = read_to_end(stream).await;
    assert!(answer.contains("who are you?"), "{answer:?}");
}

#[tokio::test]
async fn a_refusal_breaks_off_nothing_that_others_have_begun_on_the_same_connection() {
    let server = TestServer::start_with(|limits| limits.grace = SHORT).await;
    let mut proxy = server.client(None, Version::Http2).await.unwrap();
    let mut watch = proxy.get("/watch").await.unwrap();
    watch.frame().await.unwrap().unwrap();
    assert_eq!(proxy.get("/unknown").await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let more = tokio::time::timeout(SHORT * 3, watch.frame()).await;
    assert!(more.is_err(), "{more:?}");
    assert!(proxy.get("/").await.is_err(), "new requests take a new connection");
}

#[tokio::test]
async fn too_many_strangers_push_out_the_oldest_one_and_nobody_who_is_known() {
    let server = TestServer::start_with(|limits| limits.strangers = 2).await;
    let jane = server.ca.issue_client(&User::new("jane", [""; 0])).unwrap();
    let mut certified = server.client(Some(&jane), Version::Http2).await.unwrap();
    assert!(certified.get_text("/whoami").await.unwrap().starts_with("jane"));
    let mut asked = server.client(None, Version::Http1).await.unwrap();
    assert!(asked.get_text("/").await.is_ok());
    // These say nothing. The first has to make room for the third.
    let first = server.tls(None, Version::Http1).await.unwrap();
    let mut second = server.client(None, Version::Http1).await.unwrap();
    let mut third = server.client(None, Version::Http1).await.unwrap();
    assert_eq!(read_to_end(first).await, "");
    for client in [&mut certified, &mut asked, &mut second, &mut third] {
        assert!(client.get_text("/").await.is_ok());
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Lets time pass, for everything that follows the clock of tokio; the sockets do not notice.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A server whose certificate is good for longer than that of its client, Jane.
async fn server_and_jane(adjust: impl FnOnce(&mut Limits)) -> (TestServer, Identity) {
    let env = Env::seeded(1);
    let ca = CertificateAuthority::generate(&env).unwrap();
    let jane = ca.issue_client(&User::new("jane", [""; 0])).unwrap();
    pass(100 * DAY).await;
    let tls = ca.server_config(&ca.issue_server(["test.example"]).unwrap()).unwrap();
    let adjust = |limits: &mut Limits| {
        // Time passes quickly here.
        limits.head = 600 * DAY;
        adjust(limits);
    };
    (TestServer::start_on(env, ca, tls, adjust).await, jane)
}

#[tokio::test]
async fn a_connection_ends_when_the_certificate_of_its_client_expires() {
    for version in VERSIONS {
        let (server, jane) = server_and_jane(|limits| limits.expired = HANG * 2).await;
        let mut client = server.client(Some(&jane), version).await.unwrap();
        pass(264 * DAY).await;
        assert!(client.get_text("/whoami").await.unwrap().starts_with("jane"), "it is good for a day more");
        let stage = Arc::clone(&server.stage);
        let (slow, ()) = tokio::join!(client.get_at_leisure("/slow"), async {
            stage.entered.notified().await;
            pass(2 * DAY).await;
            tokio::task::yield_now().await;
            stage.release.notify_one();
        });
        let slow = read(slow.unwrap()).await.unwrap();
        assert_eq!(slow, "done", "{version:?}: what was begun is finished");
        let closed = async {
            while let Ok(name) = client.get_text("/whoami").await {
                assert_eq!(name, "nobody", "{version:?}: an expired certificate says nothing");
            }
        };
        tokio::time::timeout(HANG, closed).await.expect("the connection goes on");
        let again = match server.client(Some(&jane), version).await {
            Err(_) => true,
            Ok(mut client) => client.get("/whoami").await.is_err(),
        };
        assert!(again, "{version:?}: there is no new connection either");
    }
}

#[tokio::test]
async fn what_does_not_end_with_the_certificate_is_cut_off_later() {
    for version in VERSIONS {
        let (server, jane) = server_and_jane(|limits| limits.expired = SHORT).await;
        let mut client = server.client(Some(&jane), version).await.unwrap();
        let watch = client.get("/deaf").await.unwrap();
        pass(266 * DAY).await;
        assert!(is_cut_off(watch).await, "{version:?}");
        server.stage.all_gone().await;
    }
}

#[tokio::test]
async fn a_session_is_not_resumed_when_the_certificate_has_expired() {
    for version in VERSIONS {
        let (server, jane) = server_and_jane(|_| {}).await;
        refuses_resumption(&server, &jane, version).await;
    }
}

#[tokio::test]
async fn a_resumed_session_is_looked_at_again_where_a_configuration_allows_resumption() {
    for version in VERSIONS {
        let (own, jane) = server_and_jane(|_| {}).await;
        let env = own.env.clone();
        let mut tls = ServerConfig::clone(
            &own.ca.server_config(&own.ca.issue_server(["test.example"]).unwrap()).unwrap(),
        );
        tls.session_storage = rustls::server::ServerSessionMemoryCache::new(32);
        tls.send_tls13_tickets = 2;
        let ca = CertificateAuthority::from_pem(&env, own.ca.to_pem()).unwrap();
        let server = TestServer::start_on(env, ca, Arc::new(tls), |limits| limits.head = 600 * DAY).await;
        refuses_resumption(&server, &jane, version).await;
    }
}

async fn refuses_resumption(server: &TestServer, jane: &Identity, version: Version) {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let config = server.client_config(Some(jane), version);
    let whoami = async || server.client_with(Arc::clone(&config), version).await?.get_text("/whoami").await;
    // Sessions last a day, so this one begins shortly before the end.
    pass(265 * DAY - HOUR).await;
    assert!(whoami().await.unwrap().starts_with("jane"), "{version:?}");
    assert!(whoami().await.unwrap().starts_with("jane"), "{version:?}");
    pass(2 * HOUR).await;
    let again = whoami().await;
    assert!(again.is_err(), "{version:?}: {again:?}");
}

/// An API server over TLS, with a disk and an audit log.
struct Real {
    api: crate::ApiServer,
    server: TestServer,
    folder: tempfile::TempDir,
}

impl Real {
    async fn start() -> (Real, Identity) {
        let env = Env::seeded(1);
        let ca = CertificateAuthority::generate(&env).unwrap();
        let admin = ca.issue_client(&User::admin()).unwrap();
        pass(100 * DAY).await;
        let tls = ca.server_config(&ca.issue_server(["test.example"]).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let log = crate::audit::AuditLog::new(folder.path().join("audit.log"));
        let builder = crate::ApiServer::builder().env(env.clone()).audit(log).unwrap();
        let api = builder.open(folder.path().join("data")).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stage = Arc::new(Stage::default());
        let running = env.spawn({
            let (api, shutdown) = (api.clone(), stage.shutdown.clone());
            async move { api.serve(listener, tls, shutdown).await }
        });
        let server = TestServer { env, ca, address, stage, running };
        (Real { api, server, folder }, admin)
    }

    async fn client(&self, admin: &Identity) -> (http2::SendRequest<Full<Bytes>>, Task<()>) {
        let io = TokioIo::new(self.server.tls(Some(admin), Version::Http2).await.unwrap());
        let executor = streams::Streams::new(&self.server.env);
        let (sender, connection) = http2::handshake(executor.executor(), io).await.unwrap();
        (sender, self.server.env.spawn(async { drop((connection.await, executor)) }))
    }
}

const MAPS: &str = "https://test.example/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_write_whose_stream_is_reset_is_done_and_told_or_neither() {
    let (real, admin) = Real::start().await;
    let (mut sender, mut connection) = real.client(&admin).await;
    for n in 0..60_u32 {
        // A server ends a connection on which many streams are reset before it has looked at them. How many it has looked at
        // depends on how busy the machine is.
        if n % 10 == 9 || sender.ready().await.is_err() {
            drop((sender, connection));
            (sender, connection) = real.client(&admin).await;
        }
        let body = format!("{{\"metadata\": {{\"name\": \"map-{n}\"}}}}");
        let request = Request::post(MAPS)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header("audit-id", format!("map-{n}"))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        sender.ready().await.unwrap();
        // The response is dropped, which resets the stream, at an ever later moment.
        let mut answer = std::pin::pin!(sender.send_request(request));
        for _ in 0..n * n {
            if futures::poll!(&mut answer).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    drop((sender, connection));
    real.server.stage.shutdown.cancel();
    real.server.stopped().await;
    real.api.close().await;

    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::default_namespaced(real.api.client());
    let found = maps.list(&kube::api::ListParams::default()).await.unwrap();
    let done: std::collections::BTreeSet<String> =
        found.items.into_iter().filter_map(|map| map.metadata.name).collect();
    let log = std::fs::read_to_string(real.folder.path().join("audit.log")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told = lines.filter(|event| event["verb"] == "create" && event["responseStatus"]["code"] == 201);
    let told: std::collections::BTreeSet<String> =
        told.map(|event| event["auditID"].as_str().unwrap().to_owned()).collect();
    assert!(!done.is_empty());
    assert_eq!(done, told);
}

#[tokio::test]
async fn a_watch_ends_with_the_certificate_of_its_client() {
    let (real, admin) = Real::start().await;
    let (mut sender, _connection) = real.client(&admin).await;
    let request =
        Request::get(format!("{MAPS}?watch=1&timeoutSeconds=1000000000")).body(Full::default()).unwrap();
    let watch = sender.send_request(request).await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    pass(266 * DAY).await;
    assert_eq!(read(watch).await.unwrap(), "", "it ends, and is not cut off");
}

#[tokio::test]
async fn a_request_that_nobody_has_signed_is_the_last_of_its_connection() {
    let (real, _) = Real::start().await;
    for version in VERSIONS {
        let mut stranger = real.server.client(None, version).await.unwrap();
        assert_eq!(stranger.get("/version").await.unwrap().status(), StatusCode::UNAUTHORIZED);
        let closed = async { while stranger.get("/version").await.is_ok() {} };
        tokio::time::timeout(HANG, closed).await.expect("the connection goes on");
    }
}
