//! Beside the manager: what serves HTTP in a controller's process, for health, metrics, webhooks and pages.

mod open;
mod reviewer;
mod stall;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use setpoint_env::{Env, Later, Task};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::open::{Open, Patience, Verdict};
pub use self::reviewer::{Reviewer, Who};
use self::stall::Stalling;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// A handshake, the time to the first request, and the head of each request. Also the time between the announcement
    /// that a connection ends and its end.
    head: Duration,
    /// How often a client of HTTP/2 is asked whether it is there.
    ping_interval: Duration,
    /// How long it may take to say so.
    ping_answer: Duration,
    /// How long it may take nothing of an answer.
    stall: Duration,
    /// How long it may keep a connection of HTTP/2 without a request, as kube-apiserver lets its clients.
    idle: Duration,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(10),
    ping_interval: Duration::from_secs(30),
    ping_answer: Duration::from_secs(15),
    stall: Duration::from_secs(30),
    idle: Duration::from_secs(90),
};

/// Why somebody is not let in: the code and the words of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub StatusCode, pub String);

/// Accepts connections, with or without TLS, in HTTP/1.1 and HTTP/2. There is a limit on how many there are at once; one on
/// which no request comes, whose client is gone, or which takes nothing of its answer, is closed to make room. A client of
/// HTTP/2 is told before that it is to open another.
#[derive(Clone)]
#[must_use = "a server does nothing until it serves"]
pub struct HttpServer {
    env: Env,
    tls: Option<Arc<ServerConfig>>,
    connections: usize,
    streams: u32,
    grace: Duration,
    limits: Limits,
}

impl HttpServer {
    /// A server without TLS: 64 connections at once, of 64 requests each; two seconds for answers at the end.
    pub fn new(env: &Env) -> HttpServer {
        let grace = Duration::from_secs(2);
        HttpServer { env: env.clone(), tls: None, connections: 64, streams: 64, grace, limits: LIMITS }
    }

    /// Serves HTTPS, if there are settings for it.
    pub fn tls(mut self, tls: Option<Arc<ServerConfig>>) -> HttpServer {
        self.tls = tls;
        self
    }

    /// How many connections are served at once, and how many requests on each. More wait.
    pub fn limits(mut self, connections: usize, streams: u32) -> HttpServer {
        (self.connections, self.streams) = (connections, streams);
        self
    }

    /// How long answers may take after the shutdown.
    pub fn grace(mut self, grace: Duration) -> HttpServer {
        self.grace = grace;
        self
    }

    /// Serves until the shutdown, and then lets requests under way be answered.
    pub async fn serve<A, F, B>(self, listener: TcpListener, shutdown: CancellationToken, answer: A)
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut open: FuturesUnordered<Task<()>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = open.next() => {}
                accepted = listener.accept(), if open.len() < self.connections => match accepted {
                    Ok((stream, _)) => {
                        let (server, shutdown, answer) = (self.clone(), shutdown.clone(), answer.clone());
                        open.push(self.env.spawn(async move { server.accept(stream, shutdown, answer).await }));
                    }
                    // Too many open files, most likely: it passes.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
        let rest = async { while open.next().await.is_some() {} };
        if tokio::time::timeout(self.grace, rest).await.is_err() {
            tracing::debug!("responses were cut off at shutdown");
        }
    }

    async fn accept<A, F, B>(self, stream: TcpStream, shutdown: CancellationToken, answer: A)
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Small answers are to arrive at once.
        let _unsupported = stream.set_nodelay(true);
        let stream = Stalling::new(stream, self.limits.stall);
        let Some(tls) = self.tls.clone() else { return self.connection(stream, shutdown, answer).await };
        match tokio::time::timeout(self.limits.head, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => self.connection(stream, shutdown, answer).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }

    async fn connection<S, A, F, B>(self, stream: S, shutdown: CancellationToken, answer: A)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (open, limits) = (Open::new(), self.limits);
        let opened = open.clone();
        let service = service_fn(move |request| {
            let (request, answer) = (opened.begin(), answer(request));
            async move { Ok::<_, Infallible>(answer.await.map(|body| request.body(body))) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.streams)
            .keep_alive_interval(limits.ping_interval)
            .keep_alive_timeout(limits.ping_answer);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // hyper has a limit for heads of HTTP/1.1, but none until it knows the version, and none for HTTP/2.
        let patience = Patience { first_request: limits.head, idle: limits.idle, stall: limits.stall };
        let mut wait = pin!(tokio::time::sleep(limits.head));
        let (mut is_stopping, mut is_ending) = (false, false);
        let ended = loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                () = shutdown.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = wait.as_mut() => match open.judge(patience) {
                    Verdict::Keep(until) => wait.as_mut().reset(until),
                    why if is_ending || why == Verdict::NeverAsked => {
                        return tracing::debug!(?why, "a connection was closed");
                    }
                    // What else is open on it can still be answered.
                    _ => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                        wait.as_mut().reset(Instant::now().later(limits.head));
                    }
                },
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("has_tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
