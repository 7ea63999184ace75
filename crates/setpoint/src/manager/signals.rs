//! Ctrl-C and SIGTERM.

use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

pub(super) fn stop_on_signals(env: &Env, shutdown: CancellationToken) -> Task<()> {
    // Heard from now on, not from when the task first runs.
    let signalled = signalled();
    env.spawn(async move {
        signalled.await;
        tracing::info!("received a signal; shutting down");
        shutdown.cancel();
    })
}

#[cfg(unix)]
fn signalled() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let comes = async |signal: std::io::Result<tokio::signal::unix::Signal>| match signal {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    };
    async move {
        tokio::select! {
            biased;
            () = comes(interrupt) => {}
            () = comes(terminate) => {}
        }
    }
}

#[cfg(not(unix))]
async fn signalled() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
