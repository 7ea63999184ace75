//! What a manager serves: health, metrics, webhooks.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::{Health, text};
use super::stages::Stages;
use super::{ManagerError, MetricsServer};
use crate::controller::Runtime;
use crate::server::HttpServer;
use crate::webhook::WebhookServer;

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
        let tls = match server.shown()? {
            Some(certificates) => Some(certificates.start(&runtime.env).await?),
            None => None,
        };
        let (tls, reloading) = tls.unzip();
        let page = server.page(runtime.metrics.clone(), runtime.client.clone(), runtime.env.clone());
        let serving = HttpServer::new(&runtime.env).tls(tls).serve(listener, stopping, move |request| {
            let (page, (head, _)) = (page.clone(), request.into_parts());
            async move { page.answer(head.uri.path(), &head.headers).await }
        });
        let serving = runtime.env.spawn(serving);
        stages.run(Box::pin(async {
            // The certificate is followed as long as it is shown.
            let _reloading = reloading;
            serving.await.map_err(ManagerError::Panicked)
        }));
    }
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
