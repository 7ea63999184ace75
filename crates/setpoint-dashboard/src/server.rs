//! Connections, with limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use setpoint_env::{Env, Task};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::routes;

/// A browser opens six at most; more than these wait.
const MOST_CONNECTIONS: usize = 128;
/// How long a handshake, and the head of a request, may take.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long answers may take at the end.
const END_TIME: Duration = Duration::from_secs(2);

/// Serves until `shutdown`.
pub(crate) async fn serve(
    env: &Env,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    app: Arc<App>,
    shutdown: CancellationToken,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let mut open: FuturesUnordered<Task<()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = open.next() => {}
            accepted = listener.accept(), if open.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => open.push(env.spawn(serve_one(stream, acceptor.clone(), app.clone()))),
                // Too many open files, most likely: it passes.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    let rest = async { while open.next().await.is_some() {} };
    if tokio::time::timeout(END_TIME, rest).await.is_err() {
        tracing::debug!("answers of the dashboard were cut off at the end");
    }
}

async fn serve_one(stream: TcpStream, acceptor: Option<TlsAcceptor>, app: Arc<App>) {
    // Small events are to arrive at once.
    let _unsupported = stream.set_nodelay(true);
    match acceptor {
        None => answer(stream, app).await,
        Some(acceptor) => match tokio::time::timeout(HEAD_TIME, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => answer(stream, app).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        },
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, app: Arc<App>) {
    let shutdown = app.shutdown.clone();
    let service = service_fn(move |request| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(routes::answer(app, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(64);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the dashboard ended early");
    }
}
