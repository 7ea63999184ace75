//! Clients whose every operation is written down and checked: `crates/setpoint-history`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::real::peers::Peers;
use crate::real::process::Running;
use crate::real::servers::{Members, Reference, Server, free_port};
use crate::workspace::Program;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The server; may be given several times.
    #[arg(long, value_enum, default_values = ["redb"])]
    against: Vec<Against>,
    /// How long, for each server.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// What the clients do [default: $SETPOINT_HISTORY_SEED, or 1]
    #[arg(long)]
    seed: Option<u64>,
    /// How often a server with a disk is killed, in seconds; 0: never. [default: 5, but never kube-apiserver]
    #[arg(long, value_name = "SECONDS")]
    kill_every: Option<u64>,
    /// How many clients read and write.
    #[arg(long, default_value_t = 6)]
    clients: u16,
    /// How many objects: few, so that clients meet.
    #[arg(long, default_value_t = 8)]
    keys: u16,
    /// How long a client rests between two operations at most, in milliseconds.
    #[arg(long, default_value_t = 10)]
    pause: u64,
    /// Use debug builds: quicker to build, slower to run.
    #[arg(long)]
    debug: bool,
    /// Use the binaries that are there.
    #[arg(long)]
    skip_build: bool,
}

/// A server that histories are recorded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    /// `setpoint up --memory`
    Memory,
    /// `setpoint up` on a folder, killed with SIGKILL again and again.
    Redb,
    /// `setpoint up` over etcd: both are killed, and etcd is compacted, again and again.
    Etcd,
    /// `setpoint up` over three members of etcd: in turn one of them is killed, one stands still for a while, the server is
    /// killed, and all are compacted.
    EtcdMembers,
    /// kube-apiserver over etcd, which is compacted again and again: it must pass, which proves the checker.
    KubeApiserver,
}

impl Against {
    /// Whether it takes a server that was built with etcd.
    fn is_over_etcd(&self) -> bool {
        matches!(self, Against::Etcd | Against::EtcdMembers)
    }
}

/// How often a durable server is killed unless told.
const KILL_EVERY: Duration = Duration::from_secs(5);
/// How often etcd is compacted.
const COMPACT_EVERY: Duration = Duration::from_secs(20);

/// How long a member stands still.
const PAUSE: Duration = Duration::from_secs(2);

/// How long the last writes and the checker may take.
const CHECK_LIMIT: Duration = Duration::from_secs(600);

/// How clients work on a server.
pub(crate) struct Plan {
    pub(crate) against: Against,
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
    pub(crate) kill_every: Option<Duration>,
    pub(crate) clients: u16,
    pub(crate) keys: u16,
    /// In milliseconds.
    pub(crate) pause: u64,
}

impl Plan {
    /// So long, and as `cargo xtask load histories` does otherwise.
    pub(crate) fn new(against: Against, lasts: Duration) -> Plan {
        let kill_every =
            matches!(against, Against::Redb | Against::Etcd | Against::EtcdMembers).then_some(KILL_EVERY);
        Plan { against, lasts, seed: 1, kill_every, clients: 6, keys: 8, pause: 10 }
    }

    /// Lets clients work on a server of their own; what the checker says.
    pub(crate) fn run(&self, binary: &Path, program: &Path, peers: &Peers) -> Result<String> {
        let mut members = match self.against {
            Against::EtcdMembers => Some(Members::start(&Reference::get(peers)?.etcd)?),
            _ => None,
        };
        let mut server = match self.against {
            Against::EtcdMembers => {
                let urls = members.as_ref().map(Members::urls).unwrap_or_default();
                Server::durable_setpoint_over(binary, &urls)?
            }
            Against::Memory => Server::setpoint(binary)?,
            Against::Redb => Server::durable_setpoint_on(binary, &format!("127.0.0.1:{}", free_port()?))?,
            Against::Etcd => Server::setpoint_with_etcd(binary, &Reference::get(peers)?)?,
            Against::KubeApiserver => Server::durable_kube_apiserver(&Reference::get(peers)?)?,
        };
        let output = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(program);
        command
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["--seconds", &self.lasts.as_secs().to_string(), "--seed", &self.seed.to_string()])
            .args(["--clients", &self.clients.to_string(), "--keys", &self.keys.to_string()])
            .args(["--pause", &self.pause.to_string()])
            .args(self.is_left_alone().then_some("--all-answered"))
            .stdout(output.reopen()?)
            .stderr(output.reopen()?);
        let mut clients = Running::start(&mut command)?;
        let troubles = self.trouble(&mut server, members.as_mut(), &mut clients)?;
        let status = clients.wait(CHECK_LIMIT).context("the checker does not come to an end")?;
        let said = fs::read_to_string(output.path())?;
        ensure!(status.success(), "{troubles}\n{said}");
        Ok(format!("{troubles}\n{}", said.trim()))
    }

    /// Whether a server is neither killed nor compacted, and has nothing behind it that could fail.
    fn is_left_alone(&self) -> bool {
        self.against == Against::Memory && self.kill_every.is_none()
    }

    /// Kills or compacts the server while the clients work; how often.
    fn trouble(
        &self,
        server: &mut Server,
        mut members: Option<&mut Members>,
        clients: &mut Running,
    ) -> Result<String> {
        let (mut troubles, mut pauses, mut compactions) = (0, 0, 0);
        let (begun, mut troubled, mut compacted) = (Instant::now(), Instant::now(), Instant::now());
        // At the end every object is written a last time: the server is left alone then.
        while begun.elapsed() < self.lasts && clients.exited()?.is_none() {
            thread::sleep(Duration::from_millis(100));
            if self.kill_every.is_some_and(|every| troubled.elapsed() >= every) {
                match members.as_mut() {
                    // One at a time, so that two of them agree.
                    Some(members) if troubles % 3 == 0 => members.crash(troubles / 3)?,
                    Some(members) if troubles % 3 == 1 => {
                        members.pause(troubles / 3 + 1, PAUSE)?;
                        pauses += 1;
                    }
                    _ => server.crash()?,
                }
                (troubles, troubled) = (troubles + 1, Instant::now());
            }
            if matches!(self.against, Against::Etcd | Against::EtcdMembers | Against::KubeApiserver)
                && compacted.elapsed() >= COMPACT_EVERY
            {
                // An etcd that was just killed is not back yet: the next time, then.
                let outcome = members.as_ref().map_or_else(|| server.compact(), |members| members.compact());
                compactions += usize::from(outcome.is_ok());
                compacted = Instant::now();
            }
        }
        Ok(format!(
            "{:?} for {} s: {} kills, {pauses} pauses, {compactions} compactions",
            self.against,
            self.lasts.as_secs(),
            troubles - pauses,
        ))
    }
}

/// Runs it.
pub(crate) fn run(options: &Options, binary: Option<&Path>) -> Result<()> {
    let profile = if options.debug { "dev" } else { "release" };
    let binary = match binary {
        Some(binary) => binary.canonicalize()?,
        None => setpoint(
            profile,
            options.against.iter().any(Against::is_over_etcd) && no_etcd().is_none(),
            options.skip_build,
        )?,
    };
    let program = program(profile, options.skip_build)?;
    let environment = std::env::var("SETPOINT_HISTORY_SEED").ok().and_then(|seed| seed.parse().ok());
    let peers = Peers::new(!options.skip_build)?;
    for against in &options.against {
        let mut plan = Plan {
            seed: options.seed.or(environment).unwrap_or(1),
            clients: options.clients,
            keys: options.keys,
            pause: options.pause,
            ..Plan::new(*against, Duration::from_secs(60 * options.minutes.max(1)))
        };
        if let Some(seconds) = options.kill_every {
            ensure!(*against != Against::Memory, "a server in memory forgets everything when it is killed");
            plan.kill_every = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        if against.is_over_etcd()
            && let Some(why) = no_etcd()
        {
            println!("{against:?}: skipped: {why}");
            continue;
        }
        println!("{}", plan.run(&binary, &program, &peers)?);
    }
    Ok(())
}

/// The server, with etcd if it is to have it: that takes protoc to build.
pub(crate) fn setpoint(profile: &str, has_etcd: bool, skip_build: bool) -> Result<PathBuf> {
    let arguments: &[&str] = if has_etcd { &["--features", "etcd"] } else { &[] };
    Program { package: "setpoint-cli", name: "setpoint", profile, arguments }.get(skip_build)
}

/// Why no server with etcd can be built here, if so.
pub(crate) fn no_etcd() -> Option<&'static str> {
    let protoc = std::env::var_os("PROTOC").unwrap_or_else(|| "protoc".into());
    let starts = Command::new(protoc).arg("--version").output().is_ok_and(|output| output.status.success());
    (!starts).then_some("the engine etcd is built with protoc, which is not on this machine")
}

/// The program that records and checks.
pub(crate) fn program(profile: &str, skip_build: bool) -> Result<PathBuf> {
    let (package, name) = ("setpoint-history", "setpoint-history");
    Program { package, name, profile, arguments: &[] }.get(skip_build)
}
