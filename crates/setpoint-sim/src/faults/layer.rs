//! The `tower` layer between a client and a server.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use setpoint_env::Process;
use tokio::time::sleep;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::interfere::Made;
use super::observer::Observer;
use super::stream::ResponseStream;
use super::{Effect, Faults, Rule};
use crate::connection_error::ConnectionError;
use crate::request::RequestInfo;
use crate::trace::Call;

/// The body of an answer that has come through the layer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Puts [`Faults`] between one named client and a server: see [`Faults::layer`].
///
/// It fits before every HTTP service whose bodies are `Bytes`: the in-process API server, or a hyper client of
/// a real one. Bodies of answers are streamed through.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    faults: Faults,
    client: Arc<str>,
    mode: Mode,
    process: Option<Process>,
}

tokio::task_local! {
    /// The request that the server works on.
    static WORK: Call;
}

/// The client whose write to this object the server works on, while it commits. What the server writes besides is its own,
/// such as the roles that it makes before it answers the first who reads them.
pub(crate) fn caller(group: &str, resource: &str, path: &str) -> Option<Arc<str>> {
    let client = WORK.try_with(|call| {
        let RequestInfo { verb, group: asked_group, resource: asked, namespace, name, .. } = &*call.request;
        let is_there = namespace.is_empty() || path.split('/').next() == Some(namespace);
        // Without a name, it is generated, or many are meant.
        let is_it = name.is_empty() || path.rsplit('/').next() == Some(name);
        let is_asked = asked_group == group && asked == resource && is_there && is_it;
        (verb.is_write() && is_asked).then(|| Arc::clone(&call.client))
    });
    client.ok().flatten()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Faulty,
    Direct,
}

impl FaultLayer {
    pub(crate) fn new(faults: Faults, client: &str, mode: Mode) -> FaultLayer {
        FaultLayer { faults, client: client.into(), mode, process: None }
    }

    /// The same for one process of the client, which faults may crash and pause.
    #[must_use]
    pub fn process(mut self, process: &Process) -> FaultLayer {
        self.process = Some(process.clone());
        self
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { layer: self.clone(), inner }
    }
}

/// A server as seen through a [`FaultLayer`].
#[derive(Clone, Debug)]
pub struct FaultService<S> {
    layer: FaultLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for FaultService<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    /// Always ready: the server's own readiness is waited for once the request reaches it.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let FaultLayer { faults, client, mode, process } = self.layer.clone();
        let inner = self.inner.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            if let Some(process) = &process
                && !faults.inner.fates.may_send(process)
            {
                // It is dead, or dies here.
                return pending().await;
            }
            if let Some(process) = &process
                && !faults.inner.paces.may_send(&client, faults.now())
            {
                return die(Some(process)).await;
            }
            let info = RequestInfo::parse(&parts.method, &parts.uri, &body);
            if let Some(uri) = faults.old(&client, &info) {
                parts.uri = uri;
            }
            let call = faults.begin(&client, info, &body);
            let observer = Observer::new(faults.inner.recorder.clone(), call.clone());
            let (work, made, hand) = (call.clone(), Made::by(&call.request, &parts, &body), faults.hand());
            let making = made.clone();
            let server = async move |request| {
                let answer = WORK.scope(work, serve(inner, request)).await;
                if let (Ok(answer), Some(made), Some(hand)) = (&answer, making, hand)
                    && answer.status() == StatusCode::CREATED
                {
                    hand.remember(made);
                }
                answer
            };
            let request = Request::from_parts(parts, Full::new(body));
            let answer = match mode {
                Mode::Direct => server(request).await,
                Mode::Faulty => {
                    connect(&faults, &call, process.as_ref(), made.as_ref(), server, request).await
                }
            };
            observer.answer(answer)
        })
    }
}

/// Calls the server.
async fn serve<S, R>(inner: S, request: Request<Full<Bytes>>) -> Result<Response<Body>, BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let response = inner.oneshot(request).await.map_err(Into::into)?;
    Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
}

/// Sends a request over a connection that lives no longer than the server.
async fn connect(
    faults: &Faults,
    call: &Call,
    process: Option<&Process>,
    made: Option<&Made>,
    server: impl AsyncFnOnce(Request<Full<Bytes>>) -> Result<Response<Body>, BoxError>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Body>, BoxError> {
    let mut connection = faults.inner.link.connect()?;
    let rules = faults.arm(call);
    let response = tokio::select! {
        biased;
        () = connection.broken() => Err(ConnectionError::reset().into()),
        response = exchange(faults, call, process, made, &rules, server, request) => response,
    }?;
    Ok(ResponseStream::wrap(response, faults.clone(), call.clone(), connection, rules))
}

/// What happens to a request and to the head of its answer.
async fn exchange(
    faults: &Faults,
    call: &Call,
    process: Option<&Process>,
    made: Option<&Made>,
    rules: &[Rule],
    server: impl AsyncFnOnce(Request<Full<Bytes>>) -> Result<Response<Body>, BoxError>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Body>, BoxError> {
    if let Some(answer) = before(faults, call, process, made, rules).await? {
        return Ok(whole(answer));
    }
    let response = server(request).await?;
    let answer = after(faults, call, process, rules, response.status().as_u16()).await?;
    Ok(answer.map_or(response, whole))
}

/// The faults before the server sees the request; an answer is one in the server's place.
async fn before(
    faults: &Faults,
    call: &Call,
    process: Option<&Process>,
    made: Option<&Made>,
    rules: &[Rule],
) -> Result<Option<Response<Bytes>>, BoxError> {
    if faults.is_cut_off(call) {
        return Err(ConnectionError::reset().into());
    }
    let fires = |rule| faults.fire(rule, call, None);
    for rule in rules {
        match rule.effect() {
            Effect::DelayRequest(time) if fires(rule) => sleep(*time).await,
            Effect::RefuseConnection if fires(rule) => return Err(ConnectionError::refused().into()),
            Effect::DropRequest if fires(rule) => return Err(ConnectionError::reset().into()),
            Effect::Refuse(refusal) if fires(rule) => return Ok(Some(refusal.response(&call.request))),
            Effect::Answer { status, content_type, body } if fires(rule) => {
                let answer = Response::builder().status(*status).header(header::CONTENT_TYPE, content_type);
                return Ok(Some(answer.body(body.clone())?));
            }
            Effect::CrashBefore if process.is_some() && fires(rule) => return die(process).await,
            Effect::Interfere(interference) if fires(rule) => {
                faults.interfere(interference, &call.request, made).await;
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The end of a process: nobody hears of its request any more.
async fn die<T>(process: Option<&Process>) -> T {
    process.into_iter().for_each(Process::kill);
    pending().await
}

/// The faults after the server has acted; an answer is one in the place of the server's.
async fn after(
    faults: &Faults,
    call: &Call,
    process: Option<&Process>,
    rules: &[Rule],
    status: u16,
) -> Result<Option<Response<Bytes>>, BoxError> {
    let fires = |rule| faults.fire(rule, call, Some(status));
    for rule in rules {
        match rule.effect() {
            Effect::DelayResponse(time) if fires(rule) => sleep(*time).await,
            Effect::LoseResponse if fires(rule) => return Err(ConnectionError::reset().into()),
            Effect::BadGateway if fires(rule) => {
                let answer = Response::builder().status(502).header(header::CONTENT_TYPE, "text/plain");
                return Ok(Some(answer.body(Bytes::from_static(b"bad gateway\n"))?));
            }
            Effect::TimeOut(time) if fires(rule) => {
                sleep(*time).await;
                return Err(ConnectionError::timed_out().into());
            }
            Effect::Silence if fires(rule) => pending().await,
            Effect::CrashAfterCommit if process.is_some() && fires(rule) => return die(process).await,
            Effect::CrashAfterAnswer if fires(rule) => {
                process.into_iter().for_each(|process| faults.inner.fates.doom(process));
            }
            Effect::PauseAfterAnswer(time) if fires(rule) => {
                process.into_iter().for_each(|process| faults.inner.fates.pause(process, *time));
            }
            Effect::LoseLease if fires(rule) => faults.cut_off_lease(&call.client),
            Effect::RestartServer if fires(rule) => {
                faults.stop_server();
                faults.start_server();
            }
            _ => {}
        }
    }
    Ok(None)
}

/// An answer that is all there.
fn whole(answer: Response<Bytes>) -> Response<Body> {
    answer.map(|body| Full::new(body).map_err(infallible).boxed_unsync())
}

fn infallible(never: Infallible) -> BoxError {
    match never {}
}
