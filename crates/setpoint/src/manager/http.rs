//! `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use setpoint_env::{Env, Task};
use tokio::net::{TcpListener, TcpStream};

use crate::leader_election::LeaderElection;
use crate::{Metrics, SharedInformerFactory};

/// Probes and scrapers need few connections; more wait.
const MOST_CONNECTIONS: usize = 64;
const HEAD_TIME: Duration = Duration::from_secs(10);
/// A leader that is this far past its lease and has not noticed is stuck, and should be restarted.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct Pages {
    pub(super) metrics: Metrics,
    pub(super) is_ready: Arc<AtomicBool>,
    pub(super) informers: SharedInformerFactory,
    pub(super) election: Option<Arc<LeaderElection>>,
}

impl Pages {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/healthz" | "/livez" => match self.election.as_ref().map(|e| e.check_health(LEASE_TOLERANCE)) {
                Some(Err(stuck)) => page(StatusCode::INTERNAL_SERVER_ERROR, format!("{stuck}\n")),
                _ => page(StatusCode::OK, "ok"),
            },
            "/readyz" if !self.is_ready.load(Ordering::Relaxed) => {
                page(StatusCode::SERVICE_UNAVAILABLE, "the caches have not synced yet\n")
            }
            "/readyz" => match self.informers.unhealthy().as_slice() {
                [] => page(StatusCode::OK, "ok"),
                kinds => {
                    let text = format!("these caches are restarting after a panic: {}\n", kinds.join(", "));
                    page(StatusCode::SERVICE_UNAVAILABLE, text)
                }
            },
            "/metrics" => page(StatusCode::OK, self.metrics.render()),
            _ => page(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
        }
    }
}

fn page(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let text = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// Serves until it is dropped.
pub(super) async fn serve(env: Env, listener: TcpListener, pages: Pages) {
    let mut open: FuturesUnordered<Task<()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = open.next() => {}
            accepted = listener.accept(), if open.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => open.push(env.spawn(serve_one(stream, pages.clone()))),
                // Too many open files, most likely: it passes.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

async fn serve_one(stream: TcpStream, pages: Pages) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = pages.answer(request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::store::testing::Trapped;
    use crate::{InformerBuilder, MapStore};

    #[tokio::test(start_paused = true)]
    async fn readyz_shows_a_cache_that_restarts_after_a_panic() {
        let client = setpoint_apiserver::ApiServer::builder().build().client();
        let informers = SharedInformerFactory::new(client.clone()).env(Env::seeded(1));
        let trap = Arc::new(AtomicUsize::new(0));
        let store = Trapped(MapStore::default(), trap.clone());
        let maps = informers.informer_with(|builder: InformerBuilder<ConfigMap>| builder.store(store));
        let pages = Pages {
            metrics: Metrics::default(),
            is_ready: Arc::new(AtomicBool::new(true)),
            informers: informers.clone(),
            election: None,
        };
        informers.start();
        maps.wait_for_sync().await;
        assert_eq!(pages.answer("/readyz").status(), StatusCode::OK);
        trap.store(1, Ordering::Relaxed);
        let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).unwrap();
        kube::Api::namespaced(client, "default")
            .create(&kube::api::PostParams::default(), &map)
            .await
            .unwrap();
        while maps.is_healthy() {
            tokio::task::yield_now().await;
        }
        assert_eq!(informers.unhealthy(), ["configmaps"]);
        assert_eq!(pages.answer("/readyz").status(), StatusCode::SERVICE_UNAVAILABLE);
        maps.wait_for_sync().await;
        assert_eq!(pages.answer("/readyz").status(), StatusCode::OK);
        assert!(maps.lister().namespace("default").get("a").is_some());
    }
}
