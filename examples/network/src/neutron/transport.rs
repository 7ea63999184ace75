//! How requests get to Neutron.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

/// Why a request got no answer.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// What carries requests: HTTP in a program, a function in a test.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, TransportError>;

/// Much longer than any page of a list.
const LARGEST_ANSWER: usize = 16 << 20;

/// HTTP and HTTPS, over the same stack as `kube`. An authority of one's own is given in PEM.
pub fn https(authority: Option<&[u8]>) -> Result<Transport, TransportError> {
    let mut config = kube::Config::new(http::Uri::from_static("https://neutron.invalid"));
    config.root_cert = authority.map(certificates).transpose()?;
    let connector = config.rustls_https_connector()?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    Ok(of_service(service_fn(move |request: Request<Bytes>| {
        let sent = client.request(request.map(Full::new));
        async move {
            let (parts, body) = sent.await?.into_parts();
            let bytes = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, TransportError>(Response::from_parts(parts, bytes))
        }
    })))
}

/// A transport of any service.
pub fn of_service<S>(service: S) -> Transport
where
    S: Service<Request<Bytes>, Response = Response<Bytes>, Error = TransportError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service)
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, TransportError> {
    let found = pem::parse_many(pem)?.into_iter().filter(|block| block.tag() == "CERTIFICATE");
    let found: Vec<Vec<u8>> = found.map(|block| block.into_contents()).collect();
    if found.is_empty() { Err("there is no certificate in it".into()) } else { Ok(found) }
}
