//! Clients by peer, each with its own trust and its kept connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lru::LruCache;
use parking_lot::Mutex;
use tower::Service;

use super::trust::{self, Trusted};
use crate::pki::Identity;

/// How many different peers are remembered; more are possible, they connect anew.
const MOST_CLIENTS: std::num::NonZeroUsize = std::num::NonZeroUsize::new(64).expect("it is not zero");
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(90);
/// And how many of them to one peer.
const MOST_IDLE: usize = 32;
/// The time to connect to one address.
const CONNECT: Duration = Duration::from_secs(30);
/// The size of the head of a response.
const MOST_HEAD: u32 = 128 * 1024;

/// The body of a request: all at once, or as it comes.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// A client of one peer.
pub(crate) type Http = Client<HttpsConnector<HttpConnector<Resolver>>, RequestBody>;

/// Whom to connect to, apart from the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) place: Where,
    pub(crate) trusted: Trusted,
    pub(crate) protocol: Protocol,
}

/// Where the host of a URL is. What its certificate must be for is the host of the URL all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Where {
    /// Where the system finds its name.
    Url,
    /// At these addresses; the first that answers counts. The URL must have no port.
    At(Vec<SocketAddr>),
    /// Where the system finds another name, at this port. The URL must have no port.
    Named(String, u16),
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    /// What the peer likes best: requests may share a connection.
    Any,
    /// HTTP/1.1: each request has a connection of its own, so that none waits for what another does not read, and any can
    /// be upgraded.
    Http1,
}

/// The clients of one server.
pub(crate) struct Clients {
    /// Who they say they are.
    identity: Option<Arc<Identity>>,
    known: Mutex<LruCache<Peer, Http>>,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients::new(None)
    }
}

impl Clients {
    /// Clients that show this certificate, if there is one.
    pub(crate) fn new(identity: Option<Arc<Identity>>) -> Clients {
        Clients { identity, known: Mutex::new(LruCache::new(MOST_CLIENTS)) }
    }

    /// The client of a peer; or why there cannot be one.
    pub(crate) fn get(&self, peer: Peer) -> Result<Http, String> {
        if let Some(client) = self.known.lock().get(&peer) {
            return Ok(client.clone());
        }
        let client = connect(&peer, self.identity.as_deref())?;
        self.known.lock().put(peer, client.clone());
        Ok(client)
    }
}

fn connect(peer: &Peer, identity: Option<&Identity>) -> Result<Http, String> {
    let tls = trust::client_config(&peer.trusted, identity)?;
    let resolver = match &peer.place {
        Where::Url => Resolver::System(GaiResolver::new()),
        Where::At(addresses) => Resolver::Fixed(addresses.clone()),
        Where::Named(host, port) => {
            let name = host.parse().map_err(|_| format!("{host:?} is not the name of a host"))?;
            Resolver::Named(GaiResolver::new(), name, *port)
        }
    };
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // A peer that vanished without a word is noticed, also in the middle of a watch.
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(15)));
    tcp.set_keepalive_retries(Some(6));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1();
    let https = match peer.protocol {
        Protocol::Any => https.enable_http2().wrap_connector(tcp),
        Protocol::Http1 => https.wrap_connector(tcp),
    };
    let mut builder = Client::builder(TokioExecutor::new());
    Ok(builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MOST_IDLE)
        .http1_max_buf_size(MOST_HEAD as usize)
        .http2_max_header_list_size(MOST_HEAD)
        .build(https))
}

/// An error with its reasons: those of the transport say little by themselves.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        source = error.source();
    }
    text
}

/// Names by the system, or services of this cluster by what they say.
#[derive(Clone)]
pub(crate) enum Resolver {
    System(GaiResolver),
    Fixed(Vec<SocketAddr>),
    Named(GaiResolver, Name, u16),
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        match self {
            Resolver::Fixed(addresses) => Box::pin(std::future::ready(Ok(addresses.clone().into_iter()))),
            Resolver::System(system) => {
                let found = system.call(name);
                Box::pin(async { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
            }
            Resolver::Named(system, other, port) => {
                let (found, port) = (system.call(other.clone()), *port);
                Box::pin(async move {
                    let at = |address: SocketAddr| SocketAddr::new(address.ip(), port);
                    Ok(found.await?.map(at).collect::<Vec<_>>().into_iter())
                })
            }
        }
    }
}
