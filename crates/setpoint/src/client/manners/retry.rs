//! Which requests are tried again, and when.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use http::header::{RETRY_AFTER, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use setpoint_env::Env;
use tokio::time::timeout;

/// How often a read is tried again that got no answer.
const RECONNECTS: u32 = 4;
/// How long to wait before the first of these; twice as long before each other, and up to twice as long by chance.
const FIRST: Duration = Duration::from_millis(100);
/// A server that asks for more has trouble that a caller should hear of.
const LONGEST: Duration = Duration::from_secs(60);
/// How much of an answer that nobody wants is read, so that its connection can be used again, and for how long.
const DISCARDED: usize = 64 << 10;
const DISCARD_LIMIT: Duration = Duration::from_secs(1);

/// What matters of a request when it has failed.
pub(super) struct Attempt {
    pub(super) method: Method,
    pub(super) path: String,
    /// Whether it is about Leases.
    pub(super) is_lease: bool,
    is_stream: bool,
}

impl Attempt {
    pub(super) fn of(request: &Request<Body>) -> Attempt {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
        Attempt {
            method: request.method().clone(),
            path: path.to_owned(),
            is_lease: path.starts_with("/apis/coordination.k8s.io/"),
            is_stream: is_watch || request.headers().contains_key(UPGRADE),
        }
    }

    /// How long to wait before the request is tried again; none if it is not. It has failed `tried` times before.
    pub(super) fn wait(
        &self,
        env: &Env,
        tried: u32,
        answer: &Result<Response<Body>, kube::Error>,
    ) -> Option<Duration> {
        let is_read = self.method == Method::GET;
        match answer {
            Ok(answer) => {
                let is_passing = match answer.status() {
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
                    status => is_read && status.is_server_error(),
                };
                if is_passing { retry_after(answer) } else { None }
            }
            Err(error) => {
                let may = is_read && !self.is_stream && tried < RECONNECTS && is_connection_failure(error);
                may.then(|| env.jitter(FIRST.saturating_mul(1 << tried), 1.0))
            }
        }
    }
}

fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= LONGEST)
}

/// Whether the connection was refused, or went away before there was an answer.
fn is_connection_failure(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
            )
        {
            return true;
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Reads what is left of an answer.
pub(super) async fn discard(answer: Response<Body>) {
    let rest = Limited::new(answer.into_body(), DISCARDED).collect();
    let _ = timeout(DISCARD_LIMIT, rest).await;
}
