//! This program under the name `kube-apiserver`: what test environments start.

mod flags;
mod known;
mod settings;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use setpoint_apiserver::pki::{self, CertificateAuthority, Identity, Pem};
use setpoint_apiserver::{ApiServer, Authorization, Builder};
use setpoint_cluster::node::SyntheticLog;
use setpoint_cluster::{Cluster, Controllers};
use setpoint_env::Env;
use tokio::net::TcpListener;

pub(crate) use self::flags::{Flags, unusable};
pub(crate) use self::settings::{Defaults, ProxyClient, Settings};
use crate::cluster::MOST_NODES;
use crate::etcd::{self, Store};
use crate::etcd_cluster::EtcdCluster;
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
            eprintln!("kube-apiserver (setpoint): {}", setpoint::in_words(error.as_ref()));
            if error.is::<StoreFailed>() { ExitCode::from(StoreFailed::CODE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(env: &Env) -> anyhow::Result<()> {
    // As early as can be, so that its end is not missed.
    let parent = Parent::now();
    let flags = Flags::of_process()?;
    logging::start(match flags.number("v")?.unwrap_or(0) {
        0 | 1 => "warn",
        2 | 3 => "info",
        4 | 5 => "debug",
        _ => "trace",
    })?;
    flags.warn();
    open_files::raise_limit();
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
    // Whatever is wrong with the flags is told before anybody waits.
    let Settings { mut builder, trusted } =
        flags.apply(ApiServer::builder().env(env.clone()), defaults(address)?)?;
    let tls = pki::server_config(env, &identity, &trusted)?;
    if beside.is_some() {
        builder = builder.logs(SyntheticLog);
    }
    let server = tokio::select! {
        opened = open(flags, builder) => opened?,
        // Nobody waits for what has not begun.
        _ = signals.next() => return Ok(()),
    };
    let serving = Serving::start(env, &server, listener, tls);
    let cluster = beside.map(|Beside { controllers, nodes }| {
        let cluster = Cluster::builder(server.client()).env(env.clone()).token_signer(server.token_signer());
        cluster.root_ca(&root_ca).controllers(controllers).nodes(nodes).start()
    });
    serving.until(&mut signals, cluster, || {}).await
}

/// A server on the objects that the etcd has, or whose folder it names.
async fn open(flags: &Flags, builder: Builder) -> anyhow::Result<ApiServer> {
    let servers = flags.list("etcd-servers");
    let server = servers.first().context("--etcd-servers must be specified")?;
    let limit = flags.duration("storage-initialization-timeout")?.unwrap_or(Duration::from_secs(60));
    let found = match tokio::time::timeout(limit, etcd::find(server)).await {
        Ok(found) => found?,
        Err(_) => bail!("the etcd at {server} did not answer within {limit:?}"),
    };
    let Some(Store { folder, is_synced }) = found else {
        let file = |name| flags.text(name).map(PathBuf::from);
        let cluster = EtcdCluster {
            ca: file("etcd-cafile"),
            certificate: file("etcd-certfile"),
            key: file("etcd-keyfile"),
            prefix: flags.text("etcd-prefix").map(str::to_owned),
            urls: servers,
            user: None,
        };
        return cluster.connect(builder).await;
    };
    let folder = folder.join("setpoint");
    let builder = if is_synced { builder } else { builder.unsynced() };
    builder.open(&folder).await.with_context(|| folder.display().to_string())
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

/// What kube-apiserver does where nothing is given.
fn defaults(address: SocketAddr) -> anyhow::Result<Defaults> {
    Ok(Defaults {
        authorization: Authorization::AlwaysAllow,
        is_anonymous_allowed: true,
        has_accounts: true,
        ranges: "10.0.0.0/24".parse()?,
        issuer: Some(format!("https://{address}/")),
        authorities: Vec::new(),
        proxy: None,
    })
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
