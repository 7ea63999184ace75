//! Ctrl-C and SIGTERM.

use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

pub(super) fn stop_on_signals(env: &Env, shutdown: CancellationToken) -> Task<()> {
    env.spawn(async move {
        let interrupt = async { tokio::signal::ctrl_c().await.is_ok() };
        tokio::select! {
            biased;
            true = interrupt => {}
            () = terminated() => {}
        }
        tracing::info!("received a signal; shutting down");
        shutdown.cancel();
    })
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
