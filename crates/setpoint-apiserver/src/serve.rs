//! HTTPS: a listener in front of a service.
//!
//! [`serve`] accepts connections, and each one is a task that `serve` owns: TLS, then HTTP/1.1 or HTTP/2,
//! whichever the client negotiates. Dropping the future of `serve` ends them all.
//!
//! What a client does wrong ends its own connection, never the listener. What the service does wrong (a
//! panic) is answered with a 500 Status.

mod connection;
mod paced;
mod panic_guard;
mod strangers;
mod streams;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connection::Connection;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use jiff::Timestamp;
use rustls::ServerConfig;
use setpoint_env::{Env, Task};
use strangers::Strangers;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
pub use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::authenticate::Chain;
use crate::lane::Lane;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const TIME_BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// How [`serve`] runs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The source of tasks.
    pub env: Env,
    /// When this token is cancelled, `serve` stops accepting, asks every connection to finish, and ends.
    ///
    /// A watch is a response without an end: the service has to end its watches on the same token, or they
    /// are cut off after [`Limits::grace`].
    pub shutdown: CancellationToken,
    /// The limits for clients.
    pub limits: Limits,
}

/// The limits for the connections and requests of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The number of open connections. Further ones wait until one of these ends.
    pub connections: usize,
    /// How many of them may belong to unauthenticated clients: those without a certificate whose requests have not
    /// been authenticated yet. The oldest is closed for the next.
    pub strangers: usize,
    /// The time for the TLS handshake.
    pub handshake: Duration,
    /// The time until a connection has sent its first request. Over HTTP/1.1 also the time for the head of
    /// each request, which makes it the time that an idle connection is kept.
    pub head: Duration,
    /// The size of the head of a request, in bytes. Over HTTP/1.1 it is never less than 8,192.
    pub head_size: u32,
    /// Requests at the same time in one HTTP/2 connection. Each watch is one, and some clients put all of
    /// theirs into one connection, so it is not small.
    pub streams: u32,
    /// How often the peer of an HTTP/2 connection is asked whether it is still there.
    pub ping_interval: Duration,
    /// The time for its answer.
    pub ping_answer: Duration,
    /// The time for a client to read what it was sent. A slower client is disconnected, because what waits for it
    /// uses memory.
    pub stall: Duration,
    /// The time that connections have to finish once the server shuts down.
    pub grace: Duration,
    /// The time that a connection has to finish what it has begun once the certificate of its client has expired.
    pub expired: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 8192,
            strangers: 1024,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            head_size: 128 * 1024,
            streams: 1000,
            ping_interval: Duration::from_secs(30),
            ping_answer: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            expired: Duration::from_secs(60),
        }
    }
}

/// An extension of a response: the client is not authenticated. Its connection takes no more requests, and is closed
/// soon if it has no authenticated user.
#[derive(Clone, Copy, Debug)]
pub struct Unidentified;

/// An extension of a response: the request had no credentials, and is allowed. The connection still counts as
/// unauthenticated.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// An extension of a request: the certificate of its client.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificate {
    /// When the first certificate of its chain expires.
    pub(crate) end: Timestamp,
    pub(crate) chain: Arc<Chain>,
}

/// A service that can be served: what [`serve`] asks of it, in one name.
pub trait HttpService:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    S: Clone + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
{
    type Body = B;
}

/// Serves `service` over TLS until [`Options::shutdown`] is cancelled.
///
/// A request of a client with a certificate carries its [`User`](crate::User); one without carries none. When the
/// certificate expires, its connection ends: what was begun is finished, and nothing new is taken. A connection whose
/// client the service does not know ([`Unidentified`]) takes nothing new either.
///
/// No promise is made about a request whose client goes away: its future may be dropped at any `await`.
pub async fn serve<S: HttpService>(
    service: S,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    options: Options,
) {
    let Options { env, shutdown, limits } = options;
    let grace = limits.grace;
    let connection = Connection {
        service,
        tls: TlsAcceptor::from(tls),
        env: env.clone(),
        shutdown: shutdown.clone(),
        strangers: Strangers::new(limits.strangers),
        limits: Arc::new(limits),
        handshakes: Lane::default(),
    };
    let mut open = FuturesUnordered::new();
    let mut listener = Listener::new(env.clone(), listener);
    loop {
        let has_room = open.len() < connection.limits.connections;
        if !has_room {
            listener.warn_full(open.len());
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = open.next() => log_panic(ended),
            (stream, peer) = listener.accept(), if has_room => {
                open.push(env.spawn(connection.clone().run(stream, peer)));
            }
        }
    }
    drop(listener);
    finish(open, grace).await;
}

/// A connection has no reason to panic. If one does, the others go on, and it shall be known.
fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection panicked");
    }
}

/// Waits until the connections have ended, and cancels those that take too long.
async fn finish(mut open: FuturesUnordered<Task<()>>, grace: Duration) {
    let all_ended = async {
        while let Some(ended) = open.next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout(grace, all_ended).await.is_err() {
        tracing::warn!(connections = open.len(), ?grace, "connections did not end in time; closing them");
        join_all(open.into_iter().map(Task::stop)).await;
    }
}

/// A TCP listener whose `accept` always gives a connection, sooner or later.
struct Listener {
    env: Env,
    inner: TcpListener,
    pause: Duration,
    last_warning: Option<Instant>,
}

impl Listener {
    fn new(env: Env, inner: TcpListener) -> Listener {
        Listener { env, inner, pause: FIRST_PAUSE, last_warning: None }
    }

    /// The next connection. Cancel safe: it holds no connection across an `await`.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.inner.accept().await {
                Ok(accepted) => {
                    self.pause = FIRST_PAUSE;
                    return accepted;
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    if self.may_warn() {
                        tracing::error!(%error, "cannot accept connections; retrying");
                    }
                    tokio::time::sleep(self.pause).await;
                    self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn warn_full(&mut self, connections: usize) {
        if self.may_warn() {
            tracing::warn!(connections, "the limit of open connections is reached; new ones wait");
        }
    }

    /// Lets one warning pass now and then, so that a long trouble does not fill the log.
    fn may_warn(&mut self) -> bool {
        let now = self.env.instant();
        let may = self.last_warning.is_none_or(|last| now.duration_since(last) >= TIME_BETWEEN_WARNINGS);
        if may {
            self.last_warning = Some(now);
        }
        may
    }
}

/// Whether the error belongs to a client that went away before it was accepted, rather than to us (such as
/// too many open files), which would make the next `accept` fail at once as well.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests;
