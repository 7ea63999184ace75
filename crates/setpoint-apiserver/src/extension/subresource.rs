//! Paths below an object that the author answers: logs that are followed, documents, connections of another protocol.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use tower::BoxError;

use super::{Asked, Failure};

/// A body that comes piece by piece.
pub type StreamedBody = UnsyncBoxBody<Bytes, io::Error>;

type Answer = Response<StreamedBody>;
type Serve = dyn Fn(Call) -> BoxFuture<'static, Result<Answer, Failure>> + Send + Sync;

/// A path below the objects of a kind, as `pods/log` is one.
///
/// ```
/// use bytes::Bytes;
/// use futures::stream;
/// use http::Response;
/// use http_body::Frame;
/// use http_body_util::StreamBody;
/// use setpoint_apiserver::extension::{Call, Failure, Subresource};
///
/// Subresource::new("log", |call: Call| async move {
///     let lines = [format!("{} says hello\n", call.name)];
///     let frames = lines.map(|line| Ok::<_, std::io::Error>(Frame::data(Bytes::from(line))));
///     Ok::<_, Failure>(Response::new(StreamBody::new(stream::iter(frames))))
/// });
/// ```
pub struct Subresource {
    pub(super) name: String,
    pub(super) kind: Option<String>,
    methods: Vec<Method>,
    serve: Box<Serve>,
}

impl std::fmt::Debug for Subresource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subresource").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A request for a subresource. That its user may do so is known; whether there is such an object is not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call {
    /// Who asks, and in which namespace.
    pub asked: Asked,
    /// The name of the object.
    pub name: String,
    /// Method, query and headers.
    pub parts: Parts,
    /// What the client sends, as it comes.
    pub body: StreamedBody,
}

impl Call {
    pub(crate) fn new(asked: Asked, name: String, parts: Parts, body: StreamedBody) -> Call {
        Call { asked, name, parts, body }
    }

    /// The connection itself, once it was answered with `101 Switching Protocols`: for what is not HTTP. None if the client
    /// does not ask for it, or its connection cannot do it.
    pub fn upgrade(&mut self) -> Option<OnUpgrade> {
        self.parts.extensions.remove()
    }
}

impl Subresource {
    /// One that answers `GET`.
    pub fn new<F, R, B>(name: impl Into<String>, serve: F) -> Subresource
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let serve = move |call| -> BoxFuture<'static, Result<Answer, Failure>> {
            let answer = serve(call);
            Box::pin(
                async move { Ok(answer.await?.map(|body| body.map_err(io::Error::other).boxed_unsync())) },
            )
        };
        Subresource { name: name.into(), kind: None, methods: vec![Method::GET], serve: Box::new(serve) }
    }

    /// The kind that discovery tells; that of the objects unless set.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Subresource {
        self.kind = Some(kind.into());
        self
    }

    /// The methods that it answers; `GET` unless set.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Subresource {
        self.methods = methods.into_iter().collect();
        self
    }

    pub(crate) fn takes(&self, method: &Method) -> bool {
        // HEAD is a GET whose body is not sent.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.methods.contains(method)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind_or<'a>(&'a self, own: &'a str) -> &'a str {
        self.kind.as_deref().unwrap_or(own)
    }

    /// Its verbs, as discovery names them.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        let verb = |method: &Method| match *method {
            Method::POST => Some("create"),
            Method::PUT => Some("update"),
            Method::PATCH => Some("patch"),
            Method::DELETE => Some("delete"),
            Method::GET => Some("get"),
            _ => None,
        };
        self.methods.iter().filter_map(verb).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn serve(&self, call: Call) -> BoxFuture<'static, Result<Answer, Failure>> {
        (self.serve)(call)
    }
}
