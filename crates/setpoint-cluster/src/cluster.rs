//! All controllers and nodes together, on one set of caches.

use std::sync::Arc;

use setpoint::controller::Runtime;
use setpoint::kube::Client;
use setpoint::manager::ManagerError;
use setpoint::{Facts, Manager, Metrics};
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::{ApiServer, TokenSigner};
use setpoint_env::{Env, Task};
use tokio_util::sync::CancellationToken;

use crate::caches;
use crate::controllers::{Controllers, Setup};
use crate::node::{NodeConfig, Nodes, SyntheticLog};

/// A running cluster: controllers and nodes beside an API server. It ends when it is stopped or dropped.
pub struct Cluster {
    client: Client,
    env: Env,
    /// The server, if it is in this process.
    server: Option<ApiServer>,
    metrics: Metrics,
    nodes: Nodes,
    shutdown: CancellationToken,
    running: Task<Result<(), ManagerError>>,
}

/// Why a cluster ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A controller or a node failed.
    #[error("the cluster failed")]
    Failed(#[source] ManagerError),
    /// A controller or a node panicked.
    #[error("the cluster panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

/// The settings of a [`Cluster`].
#[must_use = "a builder does nothing until start is called"]
pub struct Builder {
    client: Client,
    env: Env,
    controllers: Controllers,
    nodes: NodeConfig,
    root_ca: Option<String>,
    signer: Option<Arc<CertificateAuthority>>,
    token_signer: Option<TokenSigner>,
    metrics: Metrics,
    facts: Option<Facts>,
}

impl Builder {
    /// The source of time, randomness and tasks; the real ones by default.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = env;
        self
    }

    /// The controllers to run; all by default.
    pub fn controllers(mut self, controllers: Controllers) -> Builder {
        self.controllers = controllers;
        self
    }

    /// The number of simulated nodes; one by default.
    pub fn nodes(mut self, count: usize) -> Builder {
        self.nodes.count = count;
        self
    }

    /// The number of simulated nodes, their capacity, and how long things take on them.
    pub fn node_config(mut self, nodes: NodeConfig) -> Builder {
        self.nodes = nodes;
        self
    }

    /// The certificate of the server's authority, as PEM. It is published to every namespace in `kube-root-ca.crt`.
    pub fn root_ca(mut self, certificate: impl Into<String>) -> Builder {
        self.root_ca = Some(certificate.into());
        self
    }

    /// The authority that signs approved CertificateSigningRequests for Kubernetes' own signers. Without it they stay
    /// unsigned.
    pub fn signer(mut self, authority: CertificateAuthority) -> Builder {
        self.signer = Some(Arc::new(authority));
        self
    }

    /// Signs the tokens of `kubernetes.io/service-account-token` secrets: [`ApiServer::token_signer`], or one with
    /// the key of a server elsewhere. Without it such secrets stay empty.
    pub fn token_signer(mut self, signer: TokenSigner) -> Builder {
        self.token_signer = Some(signer);
        self
    }

    /// The metrics to record to.
    pub fn metrics(mut self, metrics: Metrics) -> Builder {
        self.metrics = metrics;
        self
    }

    /// The stream of facts to report to.
    pub fn facts(mut self, facts: &Facts) -> Builder {
        self.facts = Some(facts.clone());
        self
    }

    /// Starts everything, and returns at once. Call it inside a tokio runtime.
    pub fn start(self) -> Cluster {
        let Builder { client, env, controllers, nodes, root_ca, signer, token_signer, metrics, facts } = self;
        let mut runtime = Runtime::with(client.clone(), env.clone(), metrics.clone());
        if let Some(facts) = &facts {
            runtime = runtime.with_facts(facts);
        }
        let nodes = Nodes::new(client.clone(), env.clone(), nodes);
        let setup = Setup { client: client.clone(), env: env.clone(), root_ca, signer, token_signer };
        let manager = Manager::with(runtime);
        // Before anybody else asks for it.
        let _pods = caches::pods(manager.informers());
        let manager = nodes.add_to(controllers.add_to(manager, &setup));
        let shutdown = manager.shutdown().clone();
        let running = env.spawn(manager.run());
        Cluster { client, env, server: None, metrics, nodes, shutdown, running }
    }
}

impl Cluster {
    /// The settings of a cluster on the API server of `client`.
    pub fn builder(client: Client) -> Builder {
        Builder {
            client,
            env: Env::system(),
            controllers: Controllers::all(),
            nodes: NodeConfig::default(),
            root_ca: None,
            signer: None,
            token_signer: None,
            metrics: Metrics::default(),
            facts: None,
        }
    }

    /// A cluster for a test: an API server, controllers and nodes in this process. Time is tokio's: with paused time
    /// a rollout of minutes takes milliseconds. Generated names, uids and jitter come from a fixed seed.
    pub async fn in_process() -> Result<Cluster, ClusterError> {
        Cluster::in_process_with(|builder| builder).await
    }

    /// Like [`Cluster::in_process`], with other settings.
    pub async fn in_process_with(settings: impl FnOnce(Builder) -> Builder) -> Result<Cluster, ClusterError> {
        let env = Env::seeded(0);
        let server = ApiServer::builder().env(env.clone()).logs(SyntheticLog).build();
        let builder = Cluster::builder(server.client()).env(env).token_signer(server.token_signer());
        let mut cluster = settings(builder).start();
        cluster.server = Some(server);
        Ok(cluster)
    }

    /// A client of the cluster's API server, as an administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The cluster's time and randomness.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The API server, if it is in this process because of [`Cluster::in_process`].
    pub fn server(&self) -> Option<&ApiServer> {
        self.server.as_ref()
    }

    /// The simulated nodes, to stop and restart them.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Stops everything gracefully.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.shutdown.cancel();
        self.ended().await
    }

    /// Waits until the cluster ends, because something failed or it was stopped.
    pub async fn ended(self) -> Result<(), ClusterError> {
        self.running.await.map_err(ClusterError::Panicked)?.map_err(ClusterError::Failed)
    }

    /// Cancel this token to stop the cluster.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
