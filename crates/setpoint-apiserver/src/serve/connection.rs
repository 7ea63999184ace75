//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::Either;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use setpoint_env::{Env, Later};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::paced::{Outstanding, Paced};
use super::panic_guard;
use super::strangers::{Stranger, Strangers};
use super::streams::Streams;
use super::{Anonymous, HttpService, Limits, PeerCertificate, Unidentified};
use crate::audit::PeerAddress;
use crate::authenticate::Chain;
use crate::lane::Lane;
use crate::pki;
use crate::user::User;

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// How much of an upload is taken before the service reads it: nearly every object fits into one window, and
/// a connection full of uploads stays small.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// What hyper needs at least.
const MIN_HTTP1_BUFFER: usize = 8192;

/// How often it is looked whether a certificate has expired.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// What a connection needs.
#[derive(Clone)]
pub(super) struct Connection<S> {
    pub(super) service: S,
    pub(super) tls: TlsAcceptor,
    pub(super) env: Env,
    pub(super) shutdown: CancellationToken,
    pub(super) limits: Arc<Limits>,
    pub(super) strangers: Arc<Strangers>,
    /// What strangers can make us compute before they say who they are.
    pub(super) handshakes: Lane,
}

impl<S: HttpService> Connection<S> {
    /// Serves until the client leaves, breaks a rule, has to make room, or the server shuts down.
    pub(super) async fn run(self, stream: TcpStream, peer: SocketAddr) {
        let stranger = Arc::new(self.strangers.admit());
        tokio::select! {
            biased;
            () = stranger.makes_room() => tracing::debug!(%peer, "too many connections of unauthenticated clients; closing the oldest"),
            () = self.serve(stream, peer, &stranger) => {}
        }
    }

    async fn serve(self, stream: TcpStream, peer: SocketAddr, stranger: &Arc<Stranger>) {
        let shutdown = self.shutdown.clone();
        let handshake = tokio::time::timeout(self.limits.handshake, self.handshake(stream));
        let stream = match shutdown.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
            Some(Err(_elapsed)) => return tracing::debug!(%peer, "the TLS handshake took too long"),
            None => return,
        };
        if let Err(error) = self.serve_http(stream, peer, Arc::clone(stranger)).await {
            tracing::debug!(%peer, error, "the connection broke");
        }
    }

    async fn handshake(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        stream.set_nodelay(true)?;
        // A peer that vanished without a word is noticed within about two minutes, also in the middle of a
        // watch over HTTP/1.1, which has no pings.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(30))
            .with_interval(Duration::from_secs(15))
            .with_retries(6);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(self.limits.stall))?;

        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
            stream.write_all(PLAIN_HTTP).await?;
            stream.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        self.handshakes.run(self.tls.accept(stream)).await
    }

    async fn serve_http(
        self,
        stream: TlsStream<TcpStream>,
        peer: SocketAddr,
        stranger: Arc<Stranger>,
    ) -> Result<(), String> {
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let certified = session.peer_certificates().and_then(Certified::of);
        if let Some(certified) = &certified {
            // The handshake has looked at the time, unless it resumed an older session.
            if certified.is_over(&self.env) {
                return Err("the certificate of the client has expired".to_owned());
            }
            stranger.becomes_known();
        }
        let end = certified.as_ref().map(|certified| certified.certificate.end);
        let has_asked = Arc::new(AtomicBool::new(false));
        let is_refused = CancellationToken::new();
        let outstanding = Outstanding::new(&self.env);
        let service = hyper::service::service_fn({
            let (has_asked, is_refused) = (Arc::clone(&has_asked), is_refused.clone());
            let stranger = Arc::clone(&stranger);
            let (env, outstanding) = (self.env.clone(), Arc::clone(&outstanding));
            move |mut request: http::Request<Incoming>| {
                has_asked.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(PeerAddress(peer));
                // Looked at with each request: a clock may jump, and a connection takes a while to end.
                if let Some(certified) = certified.as_ref().filter(|certified| !certified.is_over(&env)) {
                    Arc::clone(&certified.user).attach(request.extensions_mut());
                    request.extensions_mut().insert(certified.certificate.clone());
                }
                let (service, outstanding) = (self.service.clone(), Arc::clone(&outstanding));
                let (stranger, is_refused) = (Arc::clone(&stranger), is_refused.clone());
                async move {
                    let mut response = panic_guard::call(service, request).await?;
                    if response.extensions().get::<Unidentified>().is_some() {
                        is_refused.cancel();
                        if !is_http2 {
                            let close = HeaderValue::from_static("close");
                            response.headers_mut().insert(header::CONNECTION, close);
                        }
                    } else if !stranger.is_known() && response.extensions().get::<Anonymous>().is_none() {
                        stranger.becomes_known();
                    }
                    Ok::<_, Infallible>(response.map(|body| Paced::new(body, outstanding)))
                }
            }
        });

        let streams = Streams::new(&self.env);
        let io = TokioIo::new(stream);
        let mut connection = pin!(match is_http2 {
            true => Either::Left(http2(&self.limits, streams.executor()).serve_connection(io, service)),
            false => Either::Right(http1(&self.limits).serve_connection(io, service).with_upgrades()),
        });
        macro_rules! take_nothing_new {
            () => {
                match connection.as_mut().as_pin_mut() {
                    Either::Left(connection) => connection.graceful_shutdown(),
                    Either::Right(connection) => connection.graceful_shutdown(),
                }
            };
        }
        // hyper has this limit for the heads of HTTP/1.1, but none for the start of HTTP/2.
        let mut first_request = pin!(tokio::time::sleep(self.limits.head));
        let stall_interval = self.limits.stall.checked_div(2).unwrap_or_default();
        let mut stall_check = pin!(tokio::time::sleep(stall_interval));
        let mut expiry_check = pin!(tokio::time::sleep(next_look(&self.env, end)));
        // Set when the client has to be done.
        let mut last_moment = pin!(tokio::time::sleep(Duration::ZERO));
        let mut is_late = false;
        let mut is_ending = false;
        let mut is_leaving = false;
        let mut has_expired = false;
        let mut is_cut = false;
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => return result.map_err(|error| error.to_string()),
                () = self.shutdown.cancelled(), if !is_ending => {
                    is_ending = true;
                    take_nothing_new!();
                }
                () = is_refused.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    take_nothing_new!();
                    // A proxy may send requests of many users on one connection: what others have begun goes on.
                    if !stranger.is_known() {
                        is_cut = true;
                        last_moment.as_mut().reset(self.env.instant().later(self.limits.grace));
                    }
                }
                () = expiry_check.as_mut(), if end.is_some() && !has_expired => {
                    if end.is_some_and(|end| self.env.now() <= end) {
                        expiry_check.as_mut().reset(self.env.instant().later(next_look(&self.env, end)));
                        continue;
                    }
                    has_expired = true;
                    is_cut = true;
                    last_moment.as_mut().reset(self.env.instant().later(self.limits.expired));
                    take_nothing_new!();
                }
                () = last_moment.as_mut(), if is_cut => {
                    return Err("the client may ask nothing more, and did not finish in time".to_owned());
                }
                () = stall_check.as_mut() => {
                    if outstanding.is_stalled(self.limits.stall) {
                        return Err("the client does not read what it asked for".to_owned());
                    }
                    stall_check.as_mut().reset(self.env.instant().later(stall_interval));
                }
                () = first_request.as_mut(), if !is_late => {
                    is_late = true;
                    if !has_asked.load(Ordering::Relaxed) {
                        return Err("no request came in time".to_owned());
                    }
                }
            }
        }
    }
}

/// When to look next whether a certificate has expired. Now and then in any case, because the clock may be set, and
/// because a machine that sleeps does not count the time.
fn next_look(env: &Env, end: Option<Timestamp>) -> Duration {
    let left = end.and_then(|end| Duration::try_from(end.duration_since(env.now())).ok());
    left.unwrap_or_default().saturating_add(Duration::from_millis(1)).min(LONGEST_LOOK)
}

/// A client that has shown a certificate.
struct Certified {
    user: Arc<User>,
    certificate: PeerCertificate,
}

impl Certified {
    fn of(chain: &[CertificateDer<'_>]) -> Option<Certified> {
        let user = Arc::new(pki::user_of(chain.first()?)?.authenticated());
        // A chain that does not say when it ends has ended.
        let end = pki::end_of(chain).unwrap_or(Timestamp::MIN);
        let certificate = PeerCertificate { end, chain: Arc::new(Chain::new(chain)) };
        Some(Certified { user, certificate })
    }

    fn is_over(&self, env: &Env) -> bool {
        env.now() > self.certificate.end
    }
}

/// HTTP/1.1. Which one it is, TLS has negotiated: to guess from the first bytes instead would let a client that sends none
/// stay for ever. What a handler upgrades is no longer the business of this connection.
fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size((limits.head_size as usize).max(MIN_HTTP1_BUFFER));
    builder
}

fn http2<E: Clone>(limits: &Limits, executor: E) -> http2::Builder<E> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(limits.head_size)
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_answer);
    builder
}
