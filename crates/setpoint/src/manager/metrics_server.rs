//! `/metrics`: for everybody on this machine, for those with a token elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::Full;
use kube::Client;
use setpoint_env::Env;

use super::health::text;
use crate::Metrics;
use crate::metrics::MEDIA_TYPE;
use crate::server::{Refused, Reviewer, bearer};
use crate::webhook::{CertificateError, Certificates};

/// Where `/metrics` is served, and to whom.
///
/// An address of this machine alone (127.0.0.1, ::1) serves plain HTTP to everybody. On any other it is HTTPS, and whoever
/// asks shows a bearer token: the API server says whose it is (TokenReview) and whether they may `get` the non-resource URL
/// `/metrics` (SubjectAccessReview). For that the service account needs the ClusterRole `system:auth-delegator`.
///
/// ```
/// use setpoint::manager::MetricsServer;
///
/// let local = MetricsServer::at("127.0.0.1:8080".parse()?);
/// let protected = MetricsServer::at("0.0.0.0:8443".parse()?);
/// assert!(!local.is_protected() && protected.is_protected());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MetricsServer {
    pub(super) address: SocketAddr,
    pub(super) certificates: Option<Certificates>,
    is_open: bool,
}

impl MetricsServer {
    /// Serves there. Port 0 picks one.
    pub fn at(address: SocketAddr) -> MetricsServer {
        MetricsServer { address, certificates: None, is_open: address.ip().is_loopback() }
    }

    /// Serves HTTPS with this certificate. Where TLS is needed and none is given, one is made at the start and signed by
    /// itself.
    pub fn certificates(mut self, certificates: impl Into<Certificates>) -> MetricsServer {
        self.certificates = Some(certificates.into());
        self
    }

    /// Lets everybody in who can reach it; over plain HTTP, unless there is a certificate.
    pub fn open(mut self) -> MetricsServer {
        self.is_open = true;
        self
    }

    /// Whether those who ask need a token.
    pub fn is_protected(&self) -> bool {
        !self.is_open
    }

    /// The certificate that is shown; none for plain HTTP.
    pub(super) fn shown(&self) -> Result<Option<Certificates>, CertificateError> {
        match (&self.certificates, self.is_open) {
            (Some(certificates), _) => Ok(Some(certificates.clone())),
            (None, true) => Ok(None),
            (None, false) => {
                Certificates::self_signed([self.address.ip().to_string(), "localhost".to_owned()])
                    .map(|(certificates, _)| Some(certificates))
            }
        }
    }

    pub(super) fn page(&self, metrics: Metrics, client: Client, env: Env) -> Page {
        let reviewer = self.is_protected().then(|| Arc::new(Reviewer::new(client, env, "/metrics")));
        Page { metrics, reviewer }
    }
}

impl From<SocketAddr> for MetricsServer {
    fn from(address: SocketAddr) -> MetricsServer {
        MetricsServer::at(address)
    }
}

/// The page itself.
#[derive(Clone)]
pub(super) struct Page {
    metrics: Metrics,
    reviewer: Option<Arc<Reviewer>>,
}

impl Page {
    pub(super) async fn answer(&self, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if path != "/metrics" {
            return text(StatusCode::NOT_FOUND, "there is /metrics\n");
        }
        match self.admit(headers).await {
            Ok(()) => {
                let mut page = text(StatusCode::OK, self.metrics.render());
                let kind = header::HeaderValue::from_static(MEDIA_TYPE);
                page.headers_mut().insert(header::CONTENT_TYPE, kind);
                page
            }
            Err(Refused(code, why)) => text(code, format!("{why}\n")),
        }
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let Some(reviewer) = &self.reviewer else { return Ok(()) };
        let Some(token) = bearer(headers) else {
            return Err(Refused(StatusCode::UNAUTHORIZED, "show a bearer token".to_owned()));
        };
        reviewer.review(token).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    use kube::api::{Api, PostParams};
    use serde_json::json;
    use setpoint_apiserver::{ApiServer, Authorization};

    use super::*;

    async fn token(client: &Client, name: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let made = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token.unwrap()
    }

    async fn allow_metrics(client: &Client, name: &str) {
        let role = json!({"metadata": {"name": name}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }))
        .unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    }

    #[tokio::test]
    async fn on_an_address_that_others_reach_a_token_with_the_right_is_needed() {
        let server = ApiServer::builder().authorization(Authorization::Rbac).build();
        let client = server.client();
        let (scraper, other) = (token(&client, "scraper").await, token(&client, "other").await);
        allow_metrics(&client, "scraper").await;
        let reachable = MetricsServer::at("0.0.0.0:0".parse().unwrap());
        assert!(reachable.shown().unwrap().is_some(), "it has a certificate");
        let page = reachable.page(Metrics::default(), client, Env::system());
        let code = async |token: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(token) = token {
                headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
            }
            page.answer("/metrics", &headers).await.status().as_u16()
        };
        assert_eq!(code(None).await, 401);
        assert_eq!(code(Some("no-token")).await, 401);
        assert_eq!(code(Some(&other)).await, 403);
        assert_eq!(code(Some(&scraper)).await, 200);
    }

    #[tokio::test]
    async fn on_this_machine_and_where_it_is_open_everybody_is_let_in() {
        let client = ApiServer::builder().build().client();
        for server in [
            MetricsServer::at("127.0.0.1:0".parse().unwrap()),
            MetricsServer::at("[::1]:0".parse().unwrap()),
            MetricsServer::at("0.0.0.0:0".parse().unwrap()).open(),
        ] {
            assert!(server.shown().unwrap().is_none(), "plain HTTP");
            let page = server.page(Metrics::default(), client.clone(), Env::system());
            assert_eq!(page.answer("/metrics", &HeaderMap::new()).await.status(), StatusCode::OK);
            assert_eq!(page.answer("/other", &HeaderMap::new()).await.status(), StatusCode::NOT_FOUND);
        }
    }
}
