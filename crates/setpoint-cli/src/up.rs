//! `setpoint up`: the API server as a process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use setpoint::Facts;
use setpoint::webhook::Certificates;
use setpoint_apiserver::kubeconfig::{self, Kubeconfig};
use setpoint_apiserver::pki::{self, CertificateAuthority, Identity};
use setpoint_apiserver::{ApiServer, Authorization, Builder, ServiceIpRanges, User};
use setpoint_cluster::node::SyntheticLog;
use setpoint_cluster::{Cluster, Controllers};
use setpoint_dashboard::{Dashboard, DashboardConfig};
use setpoint_env::{Env, Task};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Parts;
use crate::etcd_cluster::EtcdCluster;
use crate::kube_apiserver::{Defaults, Flags, ProxyClient, Settings};
use crate::listen::{self, Listen};
use crate::service_address::ServiceAddress;
use crate::serving::{Serving, workers};
use crate::signals::Signals;
use crate::{dashboard, logging, open_files};

/// Run a Kubernetes API server, for kubectl and any other client
///
/// The built-in controllers and a simulated node run in the same process: Deployments roll out and pods become ready, but no
/// container runs.
///
/// All objects are stored in the folder of --data. Acknowledged writes survive a crash of the process. The server's certificate
/// authority is stored there too, and is the same after a restart.
///
/// The kubeconfig of an administrator is written once the server is ready, and removed when the server stops,
/// unless it was changed in the meantime. Other users may do what RBAC allows; requests without a client
/// certificate or a token are refused. `setpoint kubeconfig` writes kubeconfigs for other users.
///
/// Ctrl-C and SIGTERM stop it gracefully; a second one stops it at once. If the disk fails, it exits with code 74: acknowledged
/// writes are safe, and the message says what to do.
#[derive(Args)]
pub(crate) struct Up {
    /// The address to listen on: HOST:PORT, or :PORT for this machine only
    ///
    /// Port 0 picks a free port. With 0.0.0.0:6443 other machines can connect.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443")]
    listen: String,

    /// The folder for objects and certificates
    ///
    /// It is created if it does not exist, and only its owner can read it. Only one server at a time can use it.
    #[arg(long, value_name = "DIR", default_value = "./.setpoint", conflicts_with = "memory")]
    data: PathBuf,

    /// Keep all objects in memory; they are lost when the server stops
    #[arg(long)]
    memory: bool,

    #[command(flatten)]
    etcd: EtcdCluster,

    /// The path of the kubeconfig to write [default: kubeconfig in the folder of --data]
    ///
    /// Only its owner can read it. A kubeconfig with other clusters is never overwritten.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Run only the API server: no controllers, no nodes
    #[arg(long, conflicts_with_all = ["controllers", "nodes"])]
    no_controllers: bool,

    #[command(flatten)]
    parts: Parts,

    /// Serve a dashboard that shows controllers and objects live
    ///
    /// IP:PORT or :PORT. On an address that other machines can reach, it is served with the server's certificate, and needs the
    /// token of a user who may get the non-resource URL /dashboard.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = dashboard::ADDRESS)]
    dashboard: Option<String>,

    /// The address of a service that this server calls: NAMESPACE/NAME[:PORT]=HOST:PORT
    ///
    /// For webhooks and APIServices whose servers run on this machine, outside of any cluster. May be repeated.
    #[arg(long, value_name = "SERVICE=ADDR")]
    service_address: Vec<ServiceAddress>,

    /// What to log to standard error: error, warn, info, debug or trace
    ///
    /// Levels by target: warn,setpoint_apiserver=debug
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: String,

    #[command(flatten)]
    flags: Flags,
}

/// The controller that gives each namespace its account `default`.
const ACCOUNTS: &str = "serviceaccount-controller";

/// Who the server and its administrator are.
struct Credentials {
    authority: CertificateAuthority,
    server: Identity,
    admin: Identity,
}

/// Where certificates come from.
enum Pki {
    New(CertificateAuthority),
    Kept(pki::Folder),
}

impl Pki {
    /// As whom the server speaks to those of APIServices: by an authority of its own, which vouches for nobody else.
    fn proxy(&self, env: &Env) -> anyhow::Result<ProxyClient> {
        let user = User::new(ProxyClient::NAME, [""; 0]);
        let (identity, authority) = match self {
            Pki::New(_) => {
                let authority = CertificateAuthority::generate(env)?;
                (authority.issue_client(&user)?, authority)
            }
            Pki::Kept(folder) => {
                let folder = pki::Folder::open(env, &folder.path().join("front-proxy"))?;
                (folder.client("client", &user)?, folder.into_authority())
            }
        };
        Ok(ProxyClient { identity, authority: authority.certificate_der().clone() })
    }

    fn authority(&self) -> &CertificateAuthority {
        match self {
            Pki::New(authority) => authority,
            Pki::Kept(folder) => folder.authority(),
        }
    }

    /// The authority, and the certificates of the server and of an administrator.
    fn credentials(self, names: Vec<String>) -> anyhow::Result<Credentials> {
        let user = User::admin();
        let (server, admin) = match &self {
            Pki::New(authority) => (authority.issue_server(names)?, authority.issue_client(&user)?),
            Pki::Kept(folder) => (folder.server(names)?, folder.client("admin", &user)?),
        };
        let authority = match self {
            Pki::New(authority) => authority,
            Pki::Kept(folder) => folder.into_authority(),
        };
        Ok(Credentials { authority, server, admin })
    }
}

impl Up {
    /// Runs the server until a signal stops it.
    pub(crate) fn run(self, env: &Env, started: Instant) -> anyhow::Result<()> {
        let listen = Listen::parse(&self.listen)?;
        let controllers = self.parts.check()?;
        logging::start(&self.log)?;
        open_files::raise_limit();
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers())
            .enable_all()
            .build()
            .context("cannot start threads")?
            .block_on(self.serve(env, &listen, controllers, started))
    }

    async fn serve(
        self,
        env: &Env,
        listen: &Listen,
        controllers: Controllers,
        started: Instant,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::new().context("cannot listen to signals")?;
        let listener = listen.bind().await?;
        let address = listener.local_addr()?;
        let pki = self.pki(env)?;
        let Settings { builder, trusted } = self.settings(env, &controllers, &pki)?;
        let server = self.server(builder).await?;
        // Only now, so that a second server that finds its port or its folder in use leaves the file of the
        // first alone.
        let path = self.kubeconfig_path();
        kubeconfig::remove_stale(&path).map_err(with_advice)?;

        let url = listen::url_of(address);
        let Credentials { authority, server: identity, admin } =
            pki.credentials(listen.server_names(address))?;
        let tls = pki::server_config(env, &identity, &trusted)?;
        let kubeconfig = Kubeconfig::new(&url, &authority, &admin);
        let serving = Serving::start(env, &server, listener, tls);
        // The listener is open and the server has its first objects: whoever connects now is answered.
        kubeconfig.write(&path).map_err(with_advice)?;
        self.announce(&url, &path, env.instant().saturating_duration_since(started));
        let facts = Facts::new(env.clone());
        let page = self.page(env, &server, &facts, &identity).await?;
        let signer = CertificateAuthority::from_pem(env, authority.to_pem())?;
        let cluster = (!self.no_controllers).then(|| {
            let cluster = Cluster::builder(server.client()).env(env.clone());
            let cluster = cluster.root_ca(authority.certificate_pem()).signer(signer).facts(&facts);
            let cluster = cluster.token_signer(server.token_signer());
            self.parts.set(controllers, cluster).start()
        });
        let mut removed = Ok(false);
        let remove = || removed = kubeconfig.remove_if_unchanged(&path).map_err(with_advice);
        serving.until(&mut signals, cluster, remove).await?;
        drop(page);
        removed.map(drop)
    }

    /// Serves the page, if it is wanted, as long as the task lives.
    async fn page(
        &self,
        env: &Env,
        server: &ApiServer,
        facts: &Facts,
        identity: &Identity,
    ) -> anyhow::Result<Option<Task<()>>> {
        let Some(address) = &self.dashboard else { return Ok(None) };
        let address = dashboard::parse(address)?;
        let mut config = DashboardConfig::default().listen(address).all_kinds();
        if !address.ip().is_loopback() {
            let pki::Pem { certificate, key } = identity.to_pem();
            config = config.certificates(Certificates::pem(certificate, key));
        }
        let page = Dashboard::new(facts, server.client(), env.clone(), config);
        let listening = page.listen().await.map_err(dashboard::with_advice)?;
        // The server is of use also when nobody reads this.
        let _ = writeln!(std::io::stdout(), "dashboard   {}", listening.url());
        let serving = env.spawn(listening.serve(CancellationToken::new()));
        Ok(Some(env.spawn(async move {
            let ended = serving.await;
            let why: &dyn std::fmt::Display = match &ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(panic) => panic,
            };
            tracing::error!(error = %why, "the dashboard has ended");
        })))
    }

    /// Everything but where the objects are.
    fn settings(&self, env: &Env, controllers: &Controllers, pki: &Pki) -> anyhow::Result<Settings> {
        let mut builder = ApiServer::builder().env(env.clone());
        for ServiceAddress { namespace, name, port, address } in &self.service_address {
            builder = builder.service_address(namespace, name, *port, *address);
        }
        if !self.no_controllers {
            builder = builder.logs(SyntheticLog);
        }
        let defaults = Defaults {
            authorization: Authorization::Rbac,
            is_anonymous_allowed: false,
            // Pods need accounts only where a controller makes them.
            has_accounts: !self.no_controllers && controllers.contains(ACCOUNTS),
            ranges: ServiceIpRanges::default(),
            issuer: None,
            authorities: vec![pki.authority().certificate_der().clone()],
            proxy: Some(pki.proxy(env)?),
        };
        self.flags.apply(builder, defaults)
    }

    async fn server(&self, builder: Builder) -> anyhow::Result<ApiServer> {
        if self.memory {
            return Ok(builder.build());
        }
        if self.etcd.is_given() {
            let builder =
                builder.signing_key_in(&self.data).map_err(|error| with_other_folder(error.into()))?;
            return self.etcd.connect(builder).await;
        }
        let opened = builder.open(&self.data).await;
        opened.map_err(|error| with_other_folder(error.into()))
    }

    fn pki(&self, env: &Env) -> anyhow::Result<Pki> {
        if self.memory {
            return Ok(Pki::New(CertificateAuthority::generate(env)?));
        }
        let opened = pki::Folder::open(env, &self.data.join("pki"));
        Ok(Pki::Kept(opened.map_err(|error| with_other_folder(error.into()))?))
    }

    fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfig.clone().unwrap_or_else(|| self.data.join("kubeconfig"))
    }

    /// Tells where everything is.
    fn announce(&self, url: &str, kubeconfig: &Path, took: Duration) {
        let shown = |path: &Path| shell_word(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let path = shown(kubeconfig);
        let storage = if self.memory {
            "memory; everything is gone when the server stops".to_owned()
        } else if self.etcd.is_given() {
            format!("etcd at {}", self.etcd.urls.join(","))
        } else {
            shown(&self.data)
        };
        let text = format!(
            "server      {url}\n\
             kubeconfig  {path}\n\
             storage     {storage}\n\
             \n\
             \x20 export KUBECONFIG={path}\n\
             \x20 kubectl get namespaces\n\
             \n\
             ready in {} ms\n",
            took.as_micros().div_ceil(1000)
        );
        // The server is of use also when nobody reads this.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

fn with_other_folder(error: anyhow::Error) -> anyhow::Error {
    anyhow!("{}; or choose another folder with --data DIR", setpoint::in_words(error.as_ref()))
}

fn with_advice(error: kubeconfig::Error) -> anyhow::Error {
    anyhow!("{:#}; choose another place with --kubeconfig PATH", anyhow::Error::new(error))
}

/// A path as a shell reads it.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_if_a_shell_would_misread_it() {
        assert_eq!(shell_word(Path::new("/a/.setpoint/kubeconfig")), "/a/.setpoint/kubeconfig");
        assert_eq!(shell_word(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
