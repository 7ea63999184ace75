//! Where controllers run.

use kube::Client;
use setpoint_env::Env;
use tokio_util::sync::CancellationToken;

use crate::facts::Facts;
use crate::{Metrics, SharedInformerFactory};

/// Where controllers run: a client, shared caches, time, metrics, and the word to stop. Clones are the same.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) client: Client,
    pub(crate) factory: SharedInformerFactory,
    pub(crate) env: Env,
    pub(crate) metrics: Metrics,
    pub(crate) facts: Facts,
    pub(crate) shutdown: CancellationToken,
}

impl Runtime {
    /// A runtime of its own caches, on the real clock.
    pub fn new(client: Client) -> Runtime {
        Runtime::with(client, Env::system(), Metrics::default())
    }

    /// A runtime with another clock, and metrics of yours.
    pub fn with(client: Client, env: Env, metrics: Metrics) -> Runtime {
        let facts = Facts::new(env.clone());
        let factory = SharedInformerFactory::new(client.clone()).env(env.clone()).metrics(metrics.clone());
        let factory = factory.with_facts(&facts);
        Runtime { client, factory, env, metrics, facts, shutdown: CancellationToken::new() }
    }

    /// The same, where what happens is told through `facts`, which others may share: one listener hears of them all. Say
    /// it before [`Runtime::factory`], whose settings it keeps.
    #[must_use]
    pub fn with_facts(mut self, facts: &Facts) -> Runtime {
        self.facts = facts.clone();
        self.factory = self.factory.with_facts(facts);
        self
    }

    /// The same with caches of these settings: namespaces, resync.
    #[must_use]
    pub fn factory(mut self, set: impl FnOnce(SharedInformerFactory) -> SharedInformerFactory) -> Runtime {
        self.factory = set(self.factory);
        self
    }

    /// The shared caches.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.factory
    }

    /// Cancel it to stop everything that runs here.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// What is measured here.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What happens here, for those who [subscribe](Facts::subscribe).
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}
