//! How a client treats its server: it waits when it is asked to, and does not ask too much.

mod bucket;
mod counts;
mod retry;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use setpoint_env::Env;
use tokio::time::sleep;
use tower::{BoxError, Service};

use self::bucket::Bucket;
use self::counts::ClientMetrics;
use self::retry::{Attempt, discard};
use crate::Metrics;

/// How often a request is tried again, as in client-go.
const RETRIES: u32 = 10;

/// How a client treats its server. [`ClientConfig::connect`](super::ClientConfig::connect) gives a client these; so does
/// [`Manners::around`] to any other.
///
/// | what happens | what the client does |
/// | --- | --- |
/// | 429 or 503 with `Retry-After` | waits as long as it says, and sends the request again |
/// | another 5xx with `Retry-After` | the same, if the request only reads: a write may have happened |
/// | 429 or 5xx without `Retry-After`, as when an eviction must wait | the answer is the caller's |
/// | the connection is refused or breaks before there is an answer | a read is sent again, up to four times, 0.1 s later and then later and later |
/// | a watch cannot connect, or breaks | the informer's own recovery |
///
/// A request is tried again ten times at most, and a server that asks for more than a minute gets no other try. A caller
/// that gives up (by dropping the request) ends the waiting. A body that is a stream is sent once.
///
/// Clones share one limit of requests: clone one for several clients.
///
/// ```
/// use setpoint::client::Manners;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), setpoint::kube::Error> {
/// # let client = setpoint_apiserver::ApiServer::builder().build().client();
/// let client = Manners::default().rate_limit(20.0, 40).around(client);
/// client.apiserver_version().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Manners {
    env: Env,
    retries: u32,
    bucket: Option<Arc<Bucket>>,
    metrics: Option<Arc<ClientMetrics>>,
}

impl Default for Manners {
    fn default() -> Manners {
        Manners::new(Env::system())
    }
}

impl Manners {
    /// The usual ones, with the time and the randomness of `env`.
    pub fn new(env: Env) -> Manners {
        Manners { env, retries: RETRIES, bucket: None, metrics: None }
    }

    /// How often a request is tried again at most. 0: never.
    #[doc(alias = "MaxRetries")]
    pub fn retries(mut self, retries: u32) -> Manners {
        self.retries = retries;
        self
    }

    /// `burst` requests at once, and then no more than `qps` a second, in the order in which they come; for all clients
    /// that these manners and their clones are around. Tries again count as well. Requests for Leases do not wait: no
    /// leader shall lose its term to the requests of its own controllers.
    ///
    /// A `qps` that is not positive is no limit.
    #[doc(alias = "QPS")]
    pub fn rate_limit(mut self, qps: f64, burst: u32) -> Manners {
        self.bucket = Bucket::new(qps, burst).map(Arc::new);
        self
    }

    /// Counts requests, and measures how long they take, and how long they wait for their turn: the metrics that begin
    /// with `rest_client_`.
    pub fn metrics(mut self, metrics: &Metrics) -> Manners {
        self.metrics = Some(Arc::new(ClientMetrics::new(metrics, "")));
        self
    }

    /// The same, where requests go to this host.
    pub(super) fn for_host(mut self, host: &str) -> Manners {
        self.metrics = self.metrics.map(|metrics| Arc::new(metrics.to_host(host)));
        self
    }

    /// A client like `client` that has these manners.
    pub fn around(&self, client: Client) -> Client {
        let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
        let service = Mannered { client, manners: self.clone() };
        Client::new(service, namespace).with_valid_until(valid_until)
    }

    async fn send(&self, client: &Client, mut request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let attempt = Attempt::of(&request);
        for tried in 0.. {
            self.wait_for_turn(&attempt).await;
            let again = if tried < self.retries { copy(&request) } else { None };
            let started = self.env.instant();
            let answer = client.send(request).await;
            if let Some(metrics) = &self.metrics {
                let time = self.env.instant().saturating_duration_since(started);
                metrics.answered(&attempt.method, code_of(&answer), time);
            }
            let (Some(next), Some(wait)) = (again, attempt.wait(&self.env, tried, &answer)) else {
                return answer;
            };
            self.count(&attempt, &answer);
            if let Ok(answer) = answer {
                discard(answer).await;
            }
            sleep(wait).await;
            request = next;
        }
        unreachable!("the last try is not followed by another")
    }

    async fn wait_for_turn(&self, attempt: &Attempt) {
        let Some(bucket) = self.bucket.as_ref().filter(|_| !attempt.is_lease) else { return };
        let started = self.env.instant();
        bucket.take(&self.env).await;
        if let Some(metrics) = &self.metrics {
            metrics.waited.observe(self.env.instant().saturating_duration_since(started));
        }
    }

    fn count(&self, attempt: &Attempt, answer: &Result<Response<Body>, kube::Error>) {
        let code = code_of(answer);
        tracing::debug!(code, method = %attempt.method, path = attempt.path, "retrying a request");
        if let Some(metrics) = &self.metrics {
            metrics.retried(&attempt.method, code);
        }
    }
}

/// The status code of an answer; none if there was no answer.
fn code_of(answer: &Result<Response<Body>, kube::Error>) -> Option<u16> {
    answer.as_ref().ok().map(|answer| answer.status().as_u16())
}

/// A request to send later, if its body can be sent twice.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

#[derive(Clone)]
struct Mannered {
    client: Client,
    manners: Manners,
}

impl Service<Request<Body>> for Mannered {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Mannered { client, manners } = self.clone();
        Box::pin(async move { Ok(manners.send(&client, request).await?) })
    }
}
