//! The page as a browser asks for it, and as strangers do.

mod browser;
mod facts;
mod manager;
mod namespaces;
mod objects;
mod refusals;
mod rivals;
mod strangers;

use setpoint::{Facts, WorkQueue};
use setpoint_apiserver::ApiServer;
use setpoint_dashboard::{Dashboard, DashboardConfig};
use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

use self::browser::Browser;

/// A page on this machine, of facts that the test makes.
struct Page {
    facts: Facts,
    server: ApiServer,
    shutdown: CancellationToken,
    browser: Browser,
    _serving: Task<()>,
}

impl Page {
    async fn open() -> Page {
        Page::with(|config| config).await
    }

    async fn with(set: impl FnOnce(DashboardConfig) -> DashboardConfig) -> Page {
        let (env, server) = (Env::system(), ApiServer::builder().build());
        let facts = Facts::new(env.clone());
        let config = set(DashboardConfig::default().listen("127.0.0.1:0".parse().unwrap()));
        let dashboard = Dashboard::new(&facts, server.client(), env.clone(), config);
        let listening = dashboard.listen().await.unwrap();
        let browser = Browser::new(listening.address());
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let serving = env.spawn(async move { listening.serve(stop).await.unwrap() });
        Page { facts, server, shutdown, browser, _serving: serving }
    }

    /// A queue that tells what its keys do.
    fn queue(&self, name: &str) -> WorkQueue<String> {
        WorkQueue::builder().facts(name, &self.facts).build()
    }
}
