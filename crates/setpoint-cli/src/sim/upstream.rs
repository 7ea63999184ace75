//! The way to the real server.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use tower::Service;

/// Sends requests on with the user's credentials.
#[derive(Clone)]
pub(super) struct Upstream {
    client: Client,
}

impl Upstream {
    pub(super) fn new(client: Client) -> Upstream {
        Upstream { client }
    }
}

/// What is about one connection, or says who somebody is, stays on its side. Compressed answers could not be read.
const OWN: [header::HeaderName; 9] = [
    header::AUTHORIZATION,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

fn without_own(headers: &mut HeaderMap) {
    for name in OWN {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

impl Service<Request<Full<Bytes>>> for Upstream {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let client = self.client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let mut request = Request::from_parts(parts, Body::from(body));
            without_own(request.headers_mut());
            // Over h2 the client has said where it thinks that the server is.
            let path = request.uri().path_and_query().cloned();
            if let Some(path) = path {
                *request.uri_mut() = path.into();
            }
            *request.version_mut() = http::Version::HTTP_11;
            let mut response = client.send(request).await?;
            let length = response.headers().get(header::CONTENT_LENGTH).cloned();
            without_own(response.headers_mut());
            if let Some(length) = length {
                response.headers_mut().insert(header::CONTENT_LENGTH, length);
            }
            Ok(response)
        }
        .boxed()
    }
}
