//! The servers under test: `setpoint up`, and kube-apiserver over etcd.

mod members;

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::access;
use super::http::Client;
use super::peers::{ETCD, KUBE_APISERVER, Peers};
use super::process::{Running, poll};
use crate::kubeconfig::Kubeconfig;

pub(crate) use members::Members;

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(90);

/// A running server; dropping it stops its processes and removes its files.
pub(crate) struct Server {
    processes: Vec<Running>,
    kubeconfig: PathBuf,
    /// How to start the main process again, over what it has stored.
    again: Option<Again>,
    // After the processes: fields are dropped in order.
    folder: TempDir,
}

struct Again {
    main: Program,
    /// How to start etcd again, and its `HOST:PORT`.
    etcd: Option<(Program, String)>,
}

/// How to start a process once more.
struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    log: &'static str,
}

impl Program {
    fn of(command: &Command, log: &'static str) -> Self {
        let arguments = command.get_args().map(OsString::from).collect();
        Self { path: command.get_program().to_owned(), arguments, log }
    }

    fn start(&self, folder: &Path) -> Result<Running> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        spawn(command, folder, self.log)
    }
}

impl Server {
    /// `setpoint up --memory` on a port of its choice.
    pub(crate) fn setpoint(binary: &Path) -> Result<Self> {
        let folder = TempDir::new()?;
        let mut server = Self::spawn_setpoint(binary, folder, "127.0.0.1:0")?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same without waiting, for those who measure the wait.
    pub(crate) fn spawn_setpoint(binary: &Path, folder: TempDir, listen: &str) -> Result<Self> {
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(binary);
        fs::write(folder.path().join("tokens.csv"), access::token_file())?;
        command.args([
            "up",
            "--no-controllers",
            "--memory",
            "--listen",
            listen,
            "--token-file",
            "tokens.csv",
        ]);
        command.arg("--kubeconfig").arg(&kubeconfig);
        let process = spawn(command, folder.path(), "setpoint.log")?;
        Ok(Self { processes: vec![process], kubeconfig, again: None, folder })
    }

    /// `setpoint up` on its durable store, without controllers: an API server alone.
    pub(crate) fn durable_setpoint(binary: &Path) -> Result<Self> {
        let mut server = Self::spawn_durable_setpoint(binary)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same without waiting.
    pub(crate) fn spawn_durable_setpoint(binary: &Path) -> Result<Self> {
        Self::spawn_durable_setpoint_on(binary, "127.0.0.1:0")
    }

    /// The same where clients find it again after a restart.
    pub(crate) fn durable_setpoint_on(binary: &Path, listen: &str) -> Result<Self> {
        let mut server = Self::spawn_durable_setpoint_on(binary, listen)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    fn spawn_durable_setpoint_on(binary: &Path, listen: &str) -> Result<Self> {
        let folder = TempDir::new()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(binary);
        command
            .args(["up", "--no-controllers", "--listen", listen, "--data", "data", "--kubeconfig"])
            .arg(&kubeconfig);
        let main = Program::of(&command, "setpoint.log");
        let process = spawn(command, folder.path(), main.log)?;
        let again = Some(Again { main, etcd: None });
        Ok(Self { processes: vec![process], kubeconfig, again, folder })
    }

    /// `setpoint up` as it is without any setting but where to listen: with its controllers and a node. It does not
    /// wait, for those who measure the wait.
    pub(crate) fn spawn_setpoint_with_controllers(binary: &Path, folder: TempDir) -> Result<Self> {
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(binary);
        command.args(["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig);
        let process = spawn(command, folder.path(), "setpoint.log")?;
        Ok(Self { processes: vec![process], kubeconfig, again: None, folder })
    }

    /// `setpoint up` with its controllers and two nodes.
    pub(crate) fn setpoint_cluster(binary: &Path) -> Result<Self> {
        let folder = TempDir::new()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(binary);
        command
            .args(["up", "--memory", "--listen", "127.0.0.1:0", "--nodes", "2", "--kubeconfig"])
            .arg(&kubeconfig);
        let process = spawn(command, folder.path(), "setpoint.log")?;
        let mut server = Self { processes: vec![process], kubeconfig, again: None, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Runs another program beside the server, in its folder, where its kubeconfig is.
    pub(crate) fn run_beside(&mut self, command: Command, log: &str) -> Result<()> {
        self.processes.push(spawn(command, self.folder.path(), log)?);
        Ok(())
    }

    /// Runs our controllers and two nodes against this server, as long as it lives.
    pub(crate) fn add_cluster(&mut self, binary: &Path) -> Result<()> {
        let mut command = Command::new(binary);
        command.args(["cluster", "--nodes", "2", "--kubeconfig"]).arg(&self.kubeconfig);
        let key = self.folder.path().join("sa.key");
        if key.exists() {
            command.arg("--service-account-private-key-file").arg(key);
        }
        self.processes.insert(0, spawn(command, self.folder.path(), "cluster.log")?);
        Ok(())
    }

    /// kube-apiserver over etcd, as a test environment would start them.
    pub(crate) fn kube_apiserver(programs: &Reference) -> Result<Self> {
        let mut server = Self::spawn_kube_apiserver(programs)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same with some controllers of kube-controller-manager.
    pub(crate) fn kube_apiserver_with(
        programs: &Reference,
        manager: &Path,
        controllers: &str,
    ) -> Result<Self> {
        let mut server = Self::kube_apiserver(programs)?;
        let mut command = Command::new(manager);
        command
            .arg("--kubeconfig")
            .arg(&server.kubeconfig)
            .arg(format!("--controllers={controllers}"))
            .args(["--leader-elect=false", "--secure-port=0"]);
        let process = spawn(command, server.folder.path(), "kube-controller-manager.log")?;
        server.processes.push(process);
        Ok(server)
    }

    /// The same with an etcd that syncs what it writes, as in production.
    pub(crate) fn durable_kube_apiserver(programs: &Reference) -> Result<Self> {
        let mut server = Self::spawn_durable_kube_apiserver(programs)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same without waiting.
    pub(crate) fn spawn_durable_kube_apiserver(programs: &Reference) -> Result<Self> {
        Self::spawn_over(programs, &[])
    }

    /// A test environment without waiting until it is ready.
    pub(crate) fn spawn_kube_apiserver(programs: &Reference) -> Result<Self> {
        Self::spawn_over(programs, &["--unsafe-no-fsync"])
    }

    fn spawn_over(programs: &Reference, etcd_options: &[&str]) -> Result<Self> {
        let folder = TempDir::new()?;
        let etcd_url = format!("http://127.0.0.1:{}", free_port()?);
        let etcd = etcd_command(&programs.etcd, etcd_options, &etcd_url)?;
        let etcd_program = Program::of(&etcd, "etcd.log");
        let etcd = spawn(etcd, folder.path(), etcd_program.log)?;
        let mut server = Self::spawn_kube_apiserver_on(programs, folder, &etcd_url)?;
        server.processes.push(etcd);
        if let Some(again) = &mut server.again {
            again.etcd = Some((etcd_program, etcd_url.trim_start_matches("http://").to_owned()));
        }
        Ok(server)
    }

    /// kube-apiserver over an etcd that is there.
    pub(crate) fn kube_apiserver_on(programs: &Reference, etcd_url: &str) -> Result<Self> {
        let mut server = Self::spawn_kube_apiserver_on(programs, TempDir::new()?, etcd_url)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    fn spawn_kube_apiserver_on(programs: &Reference, folder: TempDir, etcd_url: &str) -> Result<Self> {
        let port = free_port()?;
        let credentials = Credentials::write(folder.path())?;
        fs::write(folder.path().join("tokens.csv"), access::token_file())?;
        let mut command = Command::new(&programs.kube_apiserver);
        command
            .arg(format!("--etcd-servers={etcd_url}"))
            .args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC", "--anonymous-auth=false"])
            .arg(format!("--secure-port={port}"))
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://peer.invalid"])
            .arg("--token-auth-file=tokens.csv")
            // As it is set up in every cluster.
            .args([
                "--requestheader-client-ca-file=proxies.crt",
                "--requestheader-allowed-names=front-proxy-client",
            ])
            .args([
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
            ])
            .args([
                "--requestheader-uid-headers=X-Remote-Uid",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            ])
            .args(["--proxy-client-cert-file=proxy.crt", "--proxy-client-key-file=proxy.key"])
            .args(["--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"])
            .args([
                "--client-ca-file=ca.crt",
                "--tls-cert-file=server.crt",
                "--tls-private-key-file=server.key",
            ])
            // There is no controller manager to make service accounts.
            .arg("--disable-admission-plugins=ServiceAccount");
        let again = Again { main: Program::of(&command, "kube-apiserver.log"), etcd: None };
        let process = spawn(command, folder.path(), again.main.log)?;
        let kubeconfig = folder.path().join("kubeconfig");
        credentials.kubeconfig(port).write(&kubeconfig)?;
        Ok(Self { processes: vec![process], kubeconfig, again: Some(again), folder })
    }

    /// `setpoint up` over an etcd of its own that syncs what it writes, where clients find it again after a restart.
    pub(crate) fn setpoint_with_etcd(binary: &Path, programs: &Reference) -> Result<Self> {
        let folder = TempDir::new()?;
        let etcd_url = format!("http://127.0.0.1:{}", free_port()?);
        let etcd = etcd_command(&programs.etcd, &[], &etcd_url)?;
        let etcd_program = Program::of(&etcd, "etcd.log");
        let etcd = spawn(etcd, folder.path(), etcd_program.log)?;
        let address = etcd_url.trim_start_matches("http://").to_owned();
        let mut server = Self::spawn_setpoint_over(binary, folder, &etcd_url, Some((etcd_program, address)))?;
        server.processes.push(etcd);
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same over an etcd of somebody else's.
    pub(crate) fn durable_setpoint_over(binary: &Path, urls: &str) -> Result<Self> {
        let mut server = Self::spawn_setpoint_over(binary, TempDir::new()?, urls, None)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    fn spawn_setpoint_over(
        binary: &Path,
        folder: TempDir,
        urls: &str,
        etcd: Option<(Program, String)>,
    ) -> Result<Self> {
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(binary);
        let listen = format!("127.0.0.1:{}", free_port()?);
        command
            .args(["up", "--no-controllers", "--listen", &listen, "--data", "data", "--etcd", urls])
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let main = Program::of(&command, "setpoint.log");
        let process = spawn(command, folder.path(), main.log)?;
        Ok(Self { processes: vec![process], kubeconfig, again: Some(Again { main, etcd }), folder })
    }

    /// `setpoint up` over an etcd that is there, without controllers, with kube-apiserver's range of addresses.
    pub(crate) fn setpoint_on(binary: &Path, etcd_url: &str) -> Result<Self> {
        let folder = TempDir::new()?;
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(folder.path().join("tokens.csv"), access::token_file())?;
        let mut command = Command::new(binary);
        command
            .args(["up", "--no-controllers", "--listen", "127.0.0.1:0", "--data", "data", "--etcd", etcd_url])
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--token-file", "tokens.csv", "--kubeconfig"])
            .arg(&kubeconfig);
        let main = Program::of(&command, "setpoint.log");
        let process = spawn(command, folder.path(), main.log)?;
        let again = Some(Again { main, etcd: None });
        let mut server = Self { processes: vec![process], kubeconfig, again, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A file that one of its processes has written.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Client::admin(&Kubeconfig::read(&self.kubeconfig)?)
    }

    /// Waits until `/readyz` is answered with 200.
    fn wait_until_ready(&mut self) -> Result<()> {
        let ready = poll(START_LIMIT, || {
            self.still_running()?;
            let answer = self.client().and_then(|client| client.get("/readyz"));
            Ok(answer.ok().filter(|response| response.status == 200).map(drop))
        })?;
        match ready {
            Some(()) => Ok(()),
            None => {
                bail!("the server was not ready in {START_LIMIT:?}; its last words:\n{}", self.last_words())
            }
        }
    }

    /// Whether what is stored outlives the server.
    pub(crate) fn can_restart(&self) -> bool {
        self.again.is_some()
    }

    /// Kills the main process and starts it again, over what it has stored.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let again = self.again.as_ref().context("this server keeps nothing over a restart")?;
        drop(self.processes.remove(0));
        self.processes.insert(0, again.main.start(self.folder.path())?);
        self.wait_until_ready()
    }

    /// Kills every process with SIGKILL, and starts them again without waiting.
    pub(crate) fn crash(&mut self) -> Result<()> {
        let again = self.again.as_ref().context("this server keeps nothing over a restart")?;
        self.processes.clear();
        let etcd = again.etcd.as_ref().map(|(etcd, _)| etcd.start(self.folder.path())).transpose()?;
        self.processes.push(again.main.start(self.folder.path())?);
        self.processes.extend(etcd);
        Ok(())
    }

    /// Gives up the history up to now.
    pub(crate) fn compact(&self) -> Result<()> {
        let again = self.again.as_ref().context("this server keeps nothing over a restart")?;
        let (_, address) = again.etcd.as_ref().context("only etcd is compacted")?;
        compact(address)
    }

    /// An error with the last words of a process that ended.
    pub(crate) fn still_running(&mut self) -> Result<()> {
        for index in 0..self.processes.len() {
            if let Some(status) = self.processes[index].exited()? {
                bail!("a server process ended with {status}; its last words:\n{}", self.last_words());
            }
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let mut text = String::new();
        for name in [
            "setpoint.log",
            "kube-apiserver.log",
            "kube-controller-manager.log",
            "kube-scheduler.log",
            "etcd.log",
        ] {
            let log = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            text.push_str(&lines[lines.len().saturating_sub(8)..].join("\n"));
        }
        text
    }

    /// Resident memory of all its processes, in KiB.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.processes.iter().map(|process| memory(process.id(), "VmRSS:")).sum()
    }

    /// The part of it that is no page of a file, in KiB.
    pub(crate) fn own(&self) -> Result<u64> {
        self.processes.iter().map(|process| memory(process.id(), "RssAnon:")).sum()
    }

    /// Processor time of all its processes so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.processes.iter().map(|process| cpu(process.id())).sum()
    }

    /// Stops the main process with SIGTERM and returns whether it ended well.
    pub(crate) fn terminate(mut self, limit: Duration) -> Result<bool> {
        Ok(self.processes.remove(0).terminate(limit)?.success())
    }
}

/// The binaries of the server that we compare with.
pub(crate) struct Reference {
    kube_apiserver: PathBuf,
    pub(crate) etcd: PathBuf,
}

impl Reference {
    pub(crate) fn get(peers: &Peers) -> Result<Self> {
        Ok(Self { etcd: peers.get(&ETCD)?, kube_apiserver: peers.get(&KUBE_APISERVER)? })
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

pub(crate) fn spawn(mut command: Command, folder: &Path, log: &str) -> Result<Running> {
    let log = File::create(folder.join(log))?;
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Running::start(&mut command)
}

pub(crate) fn etcd_command(binary: &Path, options: &[&str], client: &str) -> Result<Command> {
    let peer = format!("http://127.0.0.1:{}", free_port()?);
    let mut command = Command::new(binary);
    command
        .args(["--data-dir=etcd", "--log-level=error"])
        .args(options)
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"));
    Ok(command)
}

/// Lets an etcd give up its history up to now.
fn compact(address: &str) -> Result<()> {
    let etcd = Client::plain(address);
    // Any key will do: the answer's header has the revision.
    let header = etcd.post("/v3/kv/range", &json!({"key": "AA=="}))?.text()?;
    let header: Value = serde_json::from_str(&header).context("etcd does not answer in JSON")?;
    let revision = header["header"]["revision"].as_str().context("etcd says no revision")?.to_owned();
    let response = etcd.post("/v3/kv/compaction", &json!({"revision": revision, "physical": true}))?;
    let status = response.status;
    ensure!(status == 200, "etcd does not compact: {status} {}", response.text()?);
    Ok(())
}

/// A line of what the kernel says about a process, in KiB.
fn memory(id: u32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).context("memory is read from /proc")?;
    let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
    let number = line.split_whitespace().nth(1).context("no number")?;
    Ok(number.parse()?)
}

/// Processor time of a process so far.
pub(crate) fn cpu(id: u32) -> Result<Duration> {
    /// What the kernel counts in, for every program on Linux.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("processor time needs /proc")?;
    // The name before the last parenthesis may hold anything; user and system time come 11 fields after it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.map(|field| field.parse::<u32>()).sum::<Result<_, _>>()?;
    Ok(TICK * ticks)
}

/// A CA, a server certificate and an admin certificate for kube-apiserver.
struct Credentials {
    ca: String,
    certificate: String,
    key: String,
}

impl Credentials {
    fn write(folder: &Path) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "peer-ca");
        let ca = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = server.signed_by(&server_key, &ca)?;

        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let admin_key = KeyPair::generate()?;
        let admin = admin.signed_by(&admin_key, &ca)?;

        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "peer-proxy-ca");
        let proxies = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut proxy = CertificateParams::default();
        proxy.distinguished_name.push(DnType::CommonName, "front-proxy-client");
        proxy.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let proxy_key = KeyPair::generate()?;
        let proxy = proxy.signed_by(&proxy_key, &proxies)?;

        fs::write(folder.join("proxies.crt"), proxies.pem())?;
        fs::write(folder.join("proxy.crt"), proxy.pem())?;
        fs::write(folder.join("proxy.key"), proxy_key.serialize_pem())?;
        fs::write(folder.join("ca.crt"), ca.pem())?;
        // For a controller manager that signs certificates.
        fs::write(folder.join("ca.key"), ca.key().serialize_pem())?;
        fs::write(folder.join("server.crt"), server.pem())?;
        fs::write(folder.join("server.key"), server_key.serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        fs::write(folder.join("sa.key"), service_accounts.serialize_pem())?;
        fs::write(folder.join("sa.pub"), service_accounts.public_key_pem())?;
        Ok(Self { ca: ca.pem(), certificate: admin.pem(), key: admin_key.serialize_pem() })
    }

    fn kubeconfig(&self, port: u16) -> Kubeconfig {
        Kubeconfig {
            address: format!("127.0.0.1:{port}"),
            ca: self.ca.clone().into_bytes(),
            certificate: self.certificate.clone().into_bytes(),
            key: self.key.clone().into_bytes(),
        }
    }
}
