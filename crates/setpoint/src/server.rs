//! Beside the manager: what serves HTTP in a controller's process, for health, metrics, webhooks and pages.

mod reviewer;
mod stall;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use setpoint_env::{Env, Task};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::reviewer::{Reviewer, Who};
use self::stall::Stalling;

/// How long a handshake, the time to the first request, and the head of each request may take.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How often a client of HTTP/2 is asked whether it is there, and how long it may take to say so.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);
/// How long a client may take nothing of an answer.
const STALL: Duration = Duration::from_secs(30);

/// Why somebody is not let in: the code and the words of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub StatusCode, pub String);

/// Accepts connections, with or without TLS, in HTTP/1.1 and HTTP/2. There is a limit on how many there are at once; one on
/// which no request comes, whose client is gone, or which takes nothing of its answer, is closed to make room.
#[derive(Clone)]
#[must_use = "a server does nothing until it serves"]
pub struct HttpServer {
    env: Env,
    tls: Option<Arc<ServerConfig>>,
    connections: usize,
    streams: u32,
    grace: Duration,
}

impl HttpServer {
    /// A server without TLS: 64 connections at once, of 64 requests each; two seconds for answers at the end.
    pub fn new(env: &Env) -> HttpServer {
        let grace = Duration::from_secs(2);
        HttpServer { env: env.clone(), tls: None, connections: 64, streams: 64, grace }
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
        let stream = Stalling::new(stream, STALL);
        let Some(tls) = self.tls.clone() else { return self.connection(stream, shutdown, answer).await };
        match tokio::time::timeout(HEAD_TIME, TlsAcceptor::from(tls).accept(stream)).await {
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
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = has_asked.clone();
        let service = service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.streams)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_ANSWER);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // hyper has this limit for heads of HTTP/1.1, but none until it knows the version, and none for HTTP/2.
        let mut first_request = pin!(tokio::time::sleep(HEAD_TIME));
        let (mut is_late, mut is_ending) = (false, false);
        let ended = loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                () = shutdown.cancelled(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = first_request.as_mut(), if !is_late => {
                    is_late = true;
                    if !has_asked.load(Ordering::Relaxed) {
                        return tracing::debug!("no request came in time");
                    }
                }
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
