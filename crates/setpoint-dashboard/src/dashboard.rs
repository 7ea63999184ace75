//! A dashboard: it listens to facts from the moment it is made, and serves them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use setpoint::Facts;
use setpoint::server::HttpServer;
use setpoint::webhook::{CertificateError, Certificates};
use setpoint_env::{Env, TaskHealth};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::{DashboardConfig, routes};

/// A browser opens six at most; more than these wait.
const MOST_CONNECTIONS: usize = 128;
const MOST_STREAMS: u32 = 64;

/// A page about everything that tells through some [`Facts`]. It listens from the moment it is made.
pub struct Dashboard {
    app: App,
    address: SocketAddr,
    certificates: Option<Certificates>,
}

/// A dashboard that has its address.
pub struct Listening {
    dashboard: Dashboard,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a dashboard does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// It cannot listen there.
    #[error("the dashboard cannot listen on {address}; choose another address")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Others could read it on the wire.
    #[error("the dashboard needs a certificate on {0}, which others can reach; or listen on 127.0.0.1")]
    NoCertificate(SocketAddr),
    /// Others could play with it.
    #[error("the page of the demo must not listen on {0}, which others can reach; listen on 127.0.0.1")]
    Play(SocketAddr),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl Dashboard {
    /// A dashboard of these facts. Objects are read with `client`.
    pub fn new(facts: &Facts, client: Client, env: Env, config: DashboardConfig) -> Dashboard {
        let (address, certificates) = (config.address, config.certificates.clone());
        Dashboard { app: App::new(facts, client, env, config), address, certificates }
    }

    /// Takes its address.
    pub async fn listen(self) -> Result<Listening, DashboardError> {
        let address = self.address;
        let is_reachable = !address.ip().is_loopback();
        if is_reachable && self.certificates.is_none() {
            return Err(DashboardError::NoCertificate(address));
        }
        if is_reachable && self.app.stage.is_some() {
            return Err(DashboardError::Play(address));
        }
        let failed = |source| DashboardError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Listening { dashboard: self, listener, address })
    }
}

impl Listening {
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        let scheme = if self.dashboard.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// Serves until `shutdown` is cancelled.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), DashboardError> {
        let Listening { dashboard: Dashboard { mut app, certificates, .. }, listener, .. } = self;
        let env = app.env.clone();
        let tls = match &certificates {
            Some(certificates) => match shutdown.run_until_cancelled(certificates.start(&env)).await {
                Some(started) => Some(started?),
                None => return Ok(()),
            },
            None => None,
        };
        let (tls, _reloading) = tls.unzip();
        app.shutdown = shutdown.clone();
        let app = Arc::new(app);
        let _recording = app.recorder.start(&env, &app.facts);
        let _idling = env.supervise(&TaskHealth::new("the caches of the dashboard"), {
            let app = app.clone();
            move || {
                let app = app.clone();
                async move { app.objects.stop_when_idle().await }
            }
        });
        let _finding = env.supervise(&TaskHealth::new("the owners that the dashboard looks for"), {
            let app = app.clone();
            move || {
                let app = app.clone();
                async move { app.objects.find_owners(&app.recorder).await }
            }
        });
        let server = HttpServer::new(&env).tls(tls).limits(MOST_CONNECTIONS, MOST_STREAMS);
        server.serve(listener, shutdown, move |request| routes::answer(app.clone(), request)).await;
        Ok(())
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("address", &self.address).finish_non_exhaustive()
    }
}
