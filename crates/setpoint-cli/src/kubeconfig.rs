//! `setpoint kubeconfig`: a kubeconfig for a user with fewer rights.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::Config;
use setpoint::{ClientConfig, client};
use setpoint_apiserver::User;
use setpoint_apiserver::kubeconfig::Kubeconfig;
use setpoint_apiserver::pki;
use setpoint_env::Env;

/// Tokens in a file last as long as certificates do.
const LIFETIME: i64 = 365 * 24 * 60 * 60;

/// Write a kubeconfig for a user who may do what RBAC allows
///
/// A user gets a certificate from the certificate authority in the folder of --data. A service account gets a token from
/// the running server, which is invalid once the service account is deleted. Both are valid for a year. Grant them rights with
/// `kubectl create rolebinding …` as the administrator.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("who").required(true).args(["user", "service_account"])))]
pub(crate) struct KubeconfigCommand {
    /// The name of the user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A group of the user; may be repeated
    #[arg(long = "group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,

    /// An existing service account
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service_account: Option<String>,

    /// The data folder of `setpoint up`
    #[arg(long, value_name = "DIR", default_value = "./.setpoint")]
    data: PathBuf,

    /// The URL of the server [default: that of the running server]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// The kubeconfig to write, which only its owner can read [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl KubeconfigCommand {
    /// Writes it.
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        if !self.data.join("pki/ca.crt").exists() {
            bail!(
                "there is no certificate authority in {}; start a server with setpoint up --data, or name its folder \
                 with --data DIR",
                self.data.display()
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let running = runtime.block_on(self.running())?;
        let url = match (&self.server, &running) {
            (Some(url), _) => url.clone(),
            (None, Some(running)) => running.cluster_url.to_string().trim_end_matches('/').to_owned(),
            (None, None) => return Err(self.not_running()),
        };
        let authority = pki::Folder::open(env, &self.data.join("pki"))?.into_authority();
        let kubeconfig = if let Some(account) = &self.service_account {
            let running = running.ok_or_else(|| self.not_running())?;
            Kubeconfig::with_token(&url, &authority, &runtime.block_on(token(running, account))?)
        } else {
            let name = self.user.as_deref().unwrap_or_default();
            let user = User::new(name, self.groups.iter().map(String::as_str));
            Kubeconfig::new(&url, &authority, &authority.issue_client(&user)?)
        };
        match &self.output {
            Some(path) => kubeconfig.write(path).map_err(|error| {
                anyhow!("{:#}; choose another place with --output FILE", anyhow::Error::new(error))
            }),
            None => std::io::stdout().write_all(kubeconfig.as_yaml().as_bytes()).context("cannot write"),
        }
    }

    fn admin_path(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    fn not_running(&self) -> anyhow::Error {
        anyhow!(
            "no server runs with the folder {}; start it with setpoint up --data, or say where it will be with \
             --server URL (which is enough for --user)",
            self.data.display()
        )
    }

    /// The kubeconfig of the administrator, which is there while the server runs.
    async fn running(&self) -> anyhow::Result<Option<Config>> {
        let path = self.admin_path();
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(ClientConfig::new().kubeconfig(path).find().await?))
    }
}

/// Asks the running server for a token.
async fn token(admin: Config, account: &str) -> anyhow::Result<String> {
    let (namespace, name) = account
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        .with_context(|| {
            format!("bad service account {account:?}: --service-account takes NAMESPACE/NAME")
        })?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client::build(admin)?, namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(LIFETIME), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let answer = answer.map_err(|error| match error {
        kube::Error::Api(status) => anyhow!("the server issued no token: {}", status.message),
        other => anyhow!(other).context("cannot request a token from the server"),
    })?;
    answer.status.and_then(|status| status.token).context("the server's response has no token")
}
