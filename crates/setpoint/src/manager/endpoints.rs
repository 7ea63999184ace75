//! What a manager serves: health, metrics, webhooks.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::{Health, text};
use super::metrics_server::Page;
use super::stages::Stages;
use super::{ManagerError, MetricsServer};
use crate::controller::Runtime;
use crate::server::HttpServer;
use crate::webhook::{Certificates, WebhookServer};

async fn listen(address: SocketAddr, what: &str) -> Result<TcpListener, ManagerError> {
    let failed = |source| ManagerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, what, "serving");
    Ok(listener)
}

/// The first stage: health and metrics.
pub(super) async fn serve(
    runtime: &Runtime,
    stages: &mut Stages,
    health: Option<SocketAddr>,
    checks: Health,
    metrics: Option<MetricsServer>,
) -> Result<(), ManagerError> {
    let stopping = stages.begin();
    if let Some(address) = health {
        let listener = listen(address, "health").await?;
        let serving = HttpServer::new(&runtime.env).serve(listener, stopping.clone(), move |request| {
            let (checks, uri) = (checks.clone(), request.uri().clone());
            async move {
                checks
                    .answer(&uri)
                    .await
                    .unwrap_or_else(|| text(http::StatusCode::NOT_FOUND, "there are /healthz and /readyz\n"))
            }
        });
        let serving = runtime.env.spawn(serving);
        stages.run(Box::pin(async { serving.await.map_err(ManagerError::Panicked) }));
    }
    if let Some(server) = metrics {
        let listener = listen(server.address, "metrics").await?;
        let page = server.page(runtime.metrics.clone(), runtime.client.clone(), runtime.env.clone());
        let serving = serve_metrics(runtime.env.clone(), listener, server.shown()?, page, stopping);
        let serving = runtime.env.spawn(serving);
        stages.run(Box::pin(async { serving.await.map_err(ManagerError::Panicked)? }));
    }
    Ok(())
}

/// The certificate may take its time: nothing else waits for it.
async fn serve_metrics(
    env: Env,
    listener: TcpListener,
    certificates: Option<Certificates>,
    page: Page,
    stopping: CancellationToken,
) -> Result<(), ManagerError> {
    let started = match certificates {
        Some(certificates) => match stopping.run_until_cancelled(certificates.start(&env)).await {
            Some(started) => Some(started?),
            None => return Ok(()),
        },
        None => None,
    };
    // The certificate is followed as long as it is shown.
    let (tls, _reloading) = started.unzip();
    let answer = move |request: Request<Incoming>| {
        let (page, (head, _)) = (page.clone(), request.into_parts());
        async move { page.answer(head.uri.path(), &head.headers).await }
    };
    HttpServer::new(&env).tls(tls).serve(listener, stopping, answer).await;
    Ok(())
}

pub(super) async fn serve_webhooks(
    runtime: &Runtime,
    address: SocketAddr,
    server: WebhookServer,
    stopping: CancellationToken,
) -> Result<BoxFuture<'static, Result<(), ManagerError>>, ManagerError> {
    let listener = listen(address, "webhooks").await?;
    let server = server.env(runtime.env.clone()).metrics(&runtime.metrics);
    let serving = runtime.env.spawn(server.serve(listener, stopping));
    Ok(Box::pin(async move { Ok(serving.await.map_err(ManagerError::Panicked)??) }))
}
