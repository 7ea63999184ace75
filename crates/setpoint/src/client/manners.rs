//! How a client treats its server: it waits when it is asked to, and does not ask too much.

mod bucket;
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
use self::retry::{Attempt, discard};
use crate::Metrics;
use crate::metrics::Histogram;

/// How often a request is tried again, as in client-go.
const RETRIES: u32 = 10;
const RETRIES_METRIC: &str = "rest_client_request_retries_total";
const LIMITER_METRIC: &str = "rest_client_rate_limiter_duration_seconds";
const LIMITER_BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

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
    metrics: Option<ClientMetrics>,
}

#[derive(Clone, Debug)]
struct ClientMetrics {
    all: Metrics,
    waited: Histogram,
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

    /// Counts requests that were tried again (`rest_client_request_retries_total`), and measures how long requests wait
    /// for their turn (`rest_client_rate_limiter_duration_seconds`).
    pub fn metrics(mut self, metrics: &Metrics) -> Manners {
        let help = "How long requests waited for the limit of requests a second.";
        let waited = metrics.histogram(LIMITER_METRIC, help, &[], LIMITER_BOUNDS);
        self.metrics = Some(ClientMetrics { all: metrics.clone(), waited });
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
            let answer = client.send(request).await;
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
        let code = match answer {
            Ok(answer) => answer.status().as_u16().to_string(),
            Err(_) => "<error>".to_owned(),
        };
        tracing::debug!(code, method = %attempt.method, path = attempt.path, "trying a request again");
        if let Some(metrics) = &self.metrics {
            let labels = [("code", code.as_str()), ("method", attempt.method.as_str())];
            metrics.all.counter(RETRIES_METRIC, "How many requests were tried again.", &labels).inc();
        }
    }
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
