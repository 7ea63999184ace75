//! This program under the name `kube-apiserver`: what test environments start.

mod flags;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use setpoint_apiserver::audit::{AuditLog, Policy};
use setpoint_apiserver::pki::{self, CertificateAuthority, Identity, Pem};
use setpoint_apiserver::{ApiServer, Authorization, PublicKey, ServiceAccountTokens, SigningKey, TokenFile};
use setpoint_cluster::node::SyntheticLog;
use setpoint_cluster::{Cluster, Controllers};
use setpoint_env::Env;
use tokio::net::TcpListener;

use self::flags::Flags;
pub(crate) use self::flags::unusable;
use crate::cluster::MOST_NODES;
use crate::etcd::{self, Store};
use crate::parent::Parent;
use crate::serving::{Serving, StoreFailed, workers};
use crate::signals::Signals;
use crate::{logging, open_files};

/// Runs it with the arguments of the process.
#[expect(clippy::print_stderr, reason = "whoever started it reads why it ended")]
pub(crate) fn main(env: &Env) -> ExitCode {
    match run(env) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kube-apiserver (setpoint): {error:#}");
            if error.is::<StoreFailed>() { ExitCode::from(StoreFailed::CODE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(env: &Env) -> anyhow::Result<()> {
    let flags = Flags::of_process()?;
    logging::start(match flags.number("v")?.unwrap_or(0) {
        0 | 1 => "warn",
        2 | 3 => "info",
        4 | 5 => "debug",
        _ => "trace",
    })?;
    flags.warn();
    open_files::raise_limit();
    // As early as can be, so that its end is not missed.
    let parent = Parent::now();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()
        .context("cannot start threads")?
        .block_on(serve(env, &flags, parent))
}

async fn serve(env: &Env, flags: &Flags, parent: Parent) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?.or_end_of(parent);
    let address = SocketAddr::new(
        flags.parsed::<IpAddr>("bind-address")?.unwrap_or(IpAddr::from([0, 0, 0, 0])),
        flags.parsed("secure-port")?.unwrap_or(6443),
    );
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    let beside = Beside::of_environment()?;

    let (identity, root_ca) = serving_certificate(env, flags, address)?;
    let authorities = match flags.text("client-ca-file") {
        Some(path) => pki::certificates(&read(path)?).with_context(|| path.to_owned())?,
        None => Vec::new(),
    };
    let tls = pki::server_config(env, &identity, &authorities)?;
    // Whatever is wrong with the flags is told before anybody waits.
    let mut builder = builder(env, flags, address)?;
    let Store { folder, is_synced } = store(flags).await?;
    if !is_synced {
        builder = builder.unsynced();
    }
    if beside.is_some() {
        builder = builder.logs(SyntheticLog);
    }
    let folder = folder.join("setpoint");
    let server = builder.open(&folder).await.with_context(|| folder.display().to_string())?;
    let serving = Serving::start(env, &server, listener, tls);
    let cluster = beside.map(|Beside { controllers, nodes }| {
        let cluster = Cluster::builder(server.client()).env(env.clone());
        cluster.root_ca(&root_ca).controllers(controllers).nodes(nodes).start()
    });
    serving.until(&mut signals, cluster, || {}).await
}

/// Where the objects are: the etcd says it.
async fn store(flags: &Flags) -> anyhow::Result<Store> {
    let servers = flags.list("etcd-servers");
    let server = servers.first().context("--etcd-servers must be specified")?;
    let limit = flags.duration("storage-initialization-timeout")?.unwrap_or(Duration::from_secs(60));
    match tokio::time::timeout(limit, etcd::find(server)).await {
        Ok(found) => found,
        Err(_) => bail!("the etcd at {server} did not answer within {limit:?}"),
    }
}

/// What runs beside the server.
struct Beside {
    controllers: Controllers,
    nodes: usize,
}

impl Beside {
    /// `SETPOINT_CONTROLLERS` and `SETPOINT_NODES`. Nothing unless asked: suites rely on that.
    fn of_environment() -> anyhow::Result<Option<Beside>> {
        const CONTROLLERS: &str = "SETPOINT_CONTROLLERS";
        const NODES: &str = "SETPOINT_NODES";
        let given = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (list, nodes) = (given(CONTROLLERS), given(NODES));
        if list.is_none() && nodes.is_none() {
            return Ok(None);
        }
        let controllers = match list {
            Some(list) => Controllers::parse(&list).with_context(|| format!("{CONTROLLERS}={list}"))?,
            None => Controllers::none(),
        };
        let nodes = match nodes {
            Some(text) => text.parse().with_context(|| format!("{NODES}={text}: not a number"))?,
            // Pods that are scheduled need a place.
            None => usize::from(controllers.contains("scheduler")),
        };
        ensure!(nodes <= MOST_NODES, "{NODES}={nodes}: {MOST_NODES} at most");
        Ok(Some(Beside { controllers, nodes }))
    }
}

fn builder(env: &Env, flags: &Flags, address: SocketAddr) -> anyhow::Result<setpoint_apiserver::Builder> {
    let authorization = authorization(flags)?;
    let is_anonymous_allowed = flags.switch("anonymous-auth")?.unwrap_or(true);
    if is_anonymous_allowed && authorization == Authorization::AlwaysAllow {
        tracing::warn!("with the authorization mode AlwaysAllow requests without credentials are refused");
    }
    let mut builder = ApiServer::builder()
        .env(env.clone())
        .anonymous(is_anonymous_allowed)
        .authorization(authorization)
        .service_accounts(flags.has_plugin("ServiceAccount"))
        .service_account_tokens(tokens(flags, address)?);
    if let Some(path) = flags.text("token-auth-file") {
        builder = builder.tokens(TokenFile::read(Path::new(path))?);
    }
    if let Some(path) = flags.text("audit-log-path") {
        let mut log = AuditLog::new(path);
        if let Some(policy) = flags.text("audit-policy-file") {
            log = log.policy(Policy::read(Path::new(policy))?);
        }
        builder = builder.audit(log).with_context(|| format!("cannot write the audit log {path}"))?;
    }
    Ok(builder)
}

fn authorization(flags: &Flags) -> anyhow::Result<Authorization> {
    let modes = flags.list("authorization-mode");
    for mode in &modes {
        match mode.as_str() {
            "RBAC" | "AlwaysAllow" | "AlwaysDeny" => {}
            "Node" | "ABAC" | "Webhook" => {
                tracing::warn!(mode, "this authorization mode is not there and decides nothing");
            }
            _ => bail!("--authorization-mode: {mode:?} is not a valid mode"),
        }
    }
    let has = |mode: &str| modes.iter().any(|given| given == mode);
    Ok(if has("AlwaysAllow") || modes.is_empty() {
        Authorization::AlwaysAllow
    } else if has("RBAC") {
        Authorization::Rbac
    } else {
        Authorization::AlwaysDeny
    })
}

fn tokens(flags: &Flags, address: SocketAddr) -> anyhow::Result<ServiceAccountTokens> {
    let mut tokens = ServiceAccountTokens::new().audiences(flags.list("api-audiences"));
    let issuers = flags.list("service-account-issuer");
    tokens = if issuers.is_empty() {
        tokens.issuers([format!("https://{address}/")])
    } else {
        tokens.issuers(issuers)
    };
    if let Some(path) = flags.text("service-account-signing-key-file") {
        tokens = tokens.signing_key(SigningKey::from_pem(&read(path)?).with_context(|| path.to_owned())?);
    }
    for path in flags.list("service-account-key-file") {
        tokens = tokens.verifying_keys(PublicKey::all_from_pem(&read(&path)?).context(path)?);
    }
    Ok(tokens)
}

/// The certificate that is shown, and that which clients have to trust for it: from files if there are any, else new ones
/// that are kept in the folder of certificates.
fn serving_certificate(env: &Env, flags: &Flags, address: SocketAddr) -> anyhow::Result<(Identity, String)> {
    let folder = PathBuf::from(flags.text("cert-dir").unwrap_or("/var/run/kubernetes"));
    let given = (flags.text("tls-cert-file"), flags.text("tls-private-key-file"));
    let (certificate, key) = match given {
        (Some(certificate), Some(key)) => (PathBuf::from(certificate), PathBuf::from(key)),
        (None, None) => (folder.join("apiserver.crt"), folder.join("apiserver.key")),
        _ => bail!("--tls-cert-file and --tls-private-key-file go together"),
    };
    if given.0.is_none() && !(certificate.exists() && key.exists()) {
        let authority = CertificateAuthority::generate(env)?;
        let mut names = vec![address.ip().to_string()];
        names.extend(flags.text("advertise-address").map(str::to_owned));
        names.extend(flags.text("external-hostname").map(str::to_owned));
        names.retain(|name| name.parse::<IpAddr>().map_or(true, |ip| !ip.is_unspecified()));
        let pem = authority.issue_server(names)?.to_pem();
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        write(&certificate, &format!("{}{}", pem.certificate, authority.certificate_pem()), 0o644)?;
        write(&key, &pem.key, 0o600)?;
    }
    let pem = Pem { certificate: read(&certificate)?, key: read(&key)? };
    let chain = pki::certificates(&pem.certificate).with_context(|| certificate.display().to_string())?;
    let root_ca = chain.last().map(|last| pem::encode(&pem::Pem::new("CERTIFICATE", last.to_vec())));
    let identity = Identity::from_pem(pem).with_context(|| certificate.display().to_string())?;
    Ok((identity, root_ca.unwrap_or_default()))
}

fn read(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| path.display().to_string())
}
