//! Clients by target, each with its own trust and its kept connections.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use tower::Service;

use super::CallError;
use super::target::Target;
use super::trust;
use crate::body::{self, Undecoded, Unread};
use crate::bounds::{MAX_NODES, Meter};

/// How many different targets are remembered; more are possible, they connect anew.
const MOST_CLIENTS: std::num::NonZeroUsize = std::num::NonZeroUsize::new(64).expect("it is not zero");
/// An answer holds a patch of an object, or as many objects as were sent to be converted.
const MOST_BYTES: usize = 16 << 20;
/// How many values it may have: those of four of the largest objects.
const MOST_VALUES: usize = 4 * MAX_NODES;
/// How much of an error page is told.
const MOST_TEXT: usize = 256;
const IDLE: Duration = Duration::from_secs(90);

type Http = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Whom to connect to, apart from the path.
type Known = (Option<Vec<SocketAddr>>, Vec<u8>);

/// The clients of one server.
pub(crate) struct Clients {
    known: Mutex<LruCache<Known, Http>>,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients { known: Mutex::new(LruCache::new(MOST_CLIENTS)) }
    }
}

impl Clients {
    /// Sends JSON; the answer must be JSON, too.
    pub(super) async fn post(&self, target: Target, body: Bytes) -> Result<Value, CallError> {
        let Target { url, addresses, ca_bundle } = target;
        let failed = |why: String| CallError::Failed { url: url.clone(), why };
        let request = Request::post(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string()))?;
        let client = self.client(addresses, ca_bundle).map_err(CallError::Unreachable)?;
        let response = client.request(request).await.map_err(|error| failed(chain(&error)))?;
        let code = response.status();
        let body = body::read(response.into_body(), MOST_BYTES, |_| Ok(())).await.map_err(|unread| {
            CallError::Unusable(match unread {
                Unread::TooLarge(limit) => format!("it has more than {limit} bytes"),
                Unread::Broken(error) => error.to_string(),
                Unread::Refused(status) => status.message,
            })
        })?;
        if code != StatusCode::OK {
            let text = String::from_utf8_lossy(&body);
            let text = text.trim().chars().take(MOST_TEXT).collect();
            return Err(CallError::Refused { code: code.as_u16(), text });
        }
        read(&body).map_err(CallError::Unusable)
    }

    fn client(&self, addresses: Option<Vec<SocketAddr>>, ca_bundle: Vec<u8>) -> Result<Http, String> {
        let key = (addresses, ca_bundle);
        if let Some(client) = self.known.lock().get(&key) {
            return Ok(client.clone());
        }
        let client = connect(key.0.clone(), &key.1)?;
        self.known.lock().put(key, client.clone());
        Ok(client)
    }
}

/// Reads an answer; an error says why it cannot be used.
fn read(body: &[u8]) -> Result<Value, String> {
    let decoded = body::parse_json_metered(body, &Meter::of(MOST_VALUES));
    decoded.map(|decoded| decoded.value).map_err(|error| match error {
        Undecoded::Malformed(why) => why,
        Undecoded::Exceeded(_) => format!("it has more than {MOST_VALUES} values"),
    })
}

fn connect(addresses: Option<Vec<SocketAddr>>, ca_bundle: &[u8]) -> Result<Http, String> {
    let tls = trust::client_config(ca_bundle)?;
    let resolver = match addresses {
        Some(addresses) => Resolver::Fixed(addresses),
        None => Resolver::System(GaiResolver::new()),
    };
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    let mut builder = Client::builder(TokioExecutor::new());
    Ok(builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(https))
}

/// An error with its reasons: those of the transport say little by themselves.
fn chain(error: &dyn std::error::Error) -> String {
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

/// Names by the system, or services of this cluster by their endpoints.
#[derive(Clone)]
enum Resolver {
    System(GaiResolver),
    Fixed(Vec<SocketAddr>),
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
        }
    }
}
