//! `setpoint cluster`: the controllers and nodes, against any cluster.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use setpoint::kube::{Client, Config};
use setpoint::{ClientConfig, client};
use setpoint_apiserver::{SigningKey, TokenSigner};
use setpoint_cluster::{Builder, Cluster, Controllers};
use setpoint_env::Env;

use crate::logging;
use crate::signals::Signals;

/// Run controllers and simulated nodes against any Kubernetes API server
///
/// These are the controllers that `setpoint up` runs in its own process. They need the rights of a cluster
/// administrator. No controller may run twice: beside a kube-controller-manager use --controllers scheduler, and beside a
/// kube-scheduler as well --controllers "", which leaves simulated nodes only.
///
/// Ctrl-C and SIGTERM stop it gracefully.
#[derive(Args)]
pub(crate) struct ClusterCommand {
    /// The kubeconfig of the cluster [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context to use [default: the current context of the kubeconfig]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    parts: Parts,

    /// The key with which the API server signs service account tokens
    ///
    /// Secrets of the type kubernetes.io/service-account-token get tokens signed with it, and stay empty without it.
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,

    /// What to log to standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: String,
}

/// Which parts of a cluster run.
#[derive(Args)]
pub(crate) struct Parts {
    /// Which controllers to run: a,b runs these two, -c all but this one, * all, "" none
    ///
    /// The suffix "-controller" of a name may be omitted. An unknown name prints all names.
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    controllers: String,

    /// The number of simulated nodes
    ///
    /// Pods on them become ready soon, or as their annotations say: sim.setpoint.dev/fail-after, exit-code, ready-after,
    /// image-pull-error.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
}

/// More nodes than this have no addresses for their pods.
pub(crate) const MOST_NODES: usize = 20_000;

impl Parts {
    /// Checks what was asked for, before anything starts.
    pub(crate) fn check(&self) -> anyhow::Result<Controllers> {
        anyhow::ensure!(
            self.nodes <= MOST_NODES,
            "bad number of nodes {}: --nodes takes {MOST_NODES} at most",
            self.nodes
        );
        Controllers::parse(&self.controllers).with_context(|| {
            format!("bad list {:?}: --controllers takes names, such as deployment,-job", self.controllers)
        })
    }

    /// The same as settings of a cluster.
    pub(crate) fn set(&self, controllers: Controllers, cluster: Builder) -> Builder {
        cluster.controllers(controllers).nodes(self.nodes)
    }
}

impl ClusterCommand {
    /// Runs until a signal stops it.
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        let controllers = self.parts.check()?;
        logging::start(&self.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.context("cannot start threads")?.block_on(self.follow(env, controllers))
    }

    async fn follow(self, env: &Env, controllers: Controllers) -> anyhow::Result<()> {
        let mut signals = Signals::new().context("cannot listen to signals")?;
        let (client, root_ca) = self.connect().await?;
        let version = client
            .apiserver_version()
            .await
            .context("cannot reach the API server (check --kubeconfig and --context)")?;
        let text = format!(
            "running against Kubernetes {}: {controllers}; nodes: {}\n",
            version.git_version, self.parts.nodes
        );
        // It is of use also when nobody reads this.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let mut builder = self.parts.set(controllers, Cluster::builder(client).env(env.clone()));
        if let Some(certificate) = root_ca {
            builder = builder.root_ca(certificate);
        }
        if let Some(signer) = self.token_signer()? {
            builder = builder.token_signer(signer);
        }
        let cluster = builder.start();
        let shutdown = cluster.shutdown().clone();
        let mut ended = std::pin::pin!(cluster.ended());
        tokio::select! {
            _ = signals.next() => shutdown.cancel(),
            ended = &mut ended => return ended.context("the controllers stopped unexpectedly"),
        }
        tokio::select! {
            ended = ended => Ok(ended?),
            code = signals.next() => std::process::exit(code),
        }
    }

    fn token_signer(&self) -> anyhow::Result<Option<TokenSigner>> {
        let Some(path) = &self.service_account_private_key_file else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the key {}", path.display()))?;
        let key = SigningKey::from_pem(&text).with_context(|| path.display().to_string())?;
        Ok(Some(TokenSigner::new(key)))
    }

    /// A client, and the certificate of the server's authority.
    async fn connect(&self) -> anyhow::Result<(Client, Option<String>)> {
        let mut config = ClientConfig::new();
        if let Some(path) = &self.kubeconfig {
            config = config.kubeconfig(path);
        }
        if let Some(context) = &self.context {
            config = config.context(context);
        }
        let config: Config = config.find().await?;
        let root_ca = config.root_cert.as_ref().map(|certificates| pem(certificates));
        Ok((client::build(config)?, root_ca))
    }
}

/// Certificates as PEM.
fn pem(certificates: &[Vec<u8>]) -> String {
    let blocks = certificates
        .iter()
        .map(|certificate| pem::encode(&pem::Pem::new("CERTIFICATE", certificate.clone())));
    blocks.collect()
}
