//! `setpoint sim proxy`: one run.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use setpoint::ClientConfig;
use setpoint_apiserver::kubeconfig::Kubeconfig;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::Env;
use setpoint_sim::{FaultKind, Faults, Rule, Script, Swarm};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::child::{Child, Ended};
use super::front::{Current, Front};
use super::log::Log;
use super::upstream::Upstream;
use crate::listen::{Listen, url_of};
use crate::signals::Signals;

/// When faults end if something is checked then, unless told.
const HEAL_AFTER: Duration = Duration::from_secs(30);
/// The file in a folder of its own.
const KUBECONFIG: &str = "kubeconfig";
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long one try of a check may take.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// Inject faults between a controller and an API server
///
/// The proxy listens on this machine over TLS, writes a kubeconfig for the controller, and passes every request on to the
/// server of --kubeconfig with that user's credentials. It loses responses, refuses requests, cuts and holds watches, and
/// kills the controller at exact points, as a script says or a seed chooses.
///
/// Give the command of the controller after `--`: it is started with KUBECONFIG set to the proxy's kubeconfig, and each
/// `{kubeconfig}` among its arguments is replaced with that path. When a fault kills it, it is started again. Without a
/// command, start the controller yourself.
///
/// The run ends after --for, when --check has succeeded, when the command exits with success (then all faults end, and
/// --check runs), or with Ctrl-C. Then a summary is printed. The exit code is non-zero if a fault of the script was never
/// injected, if the check failed, or if the command kept exiting by itself.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP.as_str())]
pub(crate) struct Proxy {
    /// The kubeconfig of the server [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The context to use [default: the current context of the kubeconfig]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// A file with one fault per line; see below
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,

    /// One fault; may be repeated: --fault 'on 2nd create pods: crash after commit'
    #[arg(long, value_name = "LINE")]
    fault: Vec<String>,

    /// Inject random faults, chosen by this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// With --seed: the probability of each kind of fault, for each request that it can affect
    #[arg(long, value_name = "0…1", default_value_t = 0.02, requires = "seed")]
    chance: f64,

    /// The address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,

    /// The kubeconfig to write for the controller [default: a temporary file]
    #[arg(long, value_name = "PATH")]
    write_kubeconfig: Option<PathBuf>,

    /// The file to log every request and fault to [default: only faults, to standard error]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// When all faults end, and held watches continue [default: never; 30s with --check]
    #[arg(long, value_name = "TIME", value_parser = time)]
    heal_after: Option<Duration>,

    /// How long the proxy runs [default: no limit]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    length: Option<Duration>,

    /// A shell command that exits with 0 if the cluster is as expected
    ///
    /// It is repeated until it succeeds, once all faults have ended. Its KUBECONFIG connects to the server directly, with
    /// the context of --context.
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,

    /// How long --check is repeated before the run fails
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    check_within: Duration,

    /// How long to wait until a killed command is started again
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    down: Duration,

    /// The command of the controller, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

static AFTER_HELP: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "Faults:\n\n{}\n\nExamples:\n\n  setpoint sim proxy --kubeconfig .setpoint/kubeconfig --seed 1 --for 5m -- ./my-operator\n  \
         setpoint sim proxy --fault 'on 1st create deployments.apps: crash after commit' \\\n    --check 'kubectl rollout status \
         deployment/web' -- ./my-operator --kubeconfig {{kubeconfig}}",
        Script::HELP
    )
});

/// `500ms`, `30s`, `5m`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = digits.parse::<f64>().unwrap_or(f64::NAN) * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a time is written as 500ms, 30s or 5m".to_owned())
}

/// What has come of a run.
struct Outcome {
    checked: Option<Checked>,
    ended: Option<Ended>,
}

/// What has come of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Checked {
    Well,
    /// It was tried for as long as it may take.
    Late,
    /// It was tried until --for was over.
    CutOff,
    /// Somebody ended it all before.
    NotRun,
}

impl Proxy {
    /// Runs until it is over.
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        let script = self.script()?;
        ensure!((0.0..=1.0).contains(&self.chance), "bad chance {}: --chance takes 0 to 1", self.chance);
        if let (Some(length), Some(heal), Some(_)) = (self.length, self.healing(), &self.check) {
            ensure!(
                length > heal,
                "--check would never run: --for {length:?} is over before the faults end (--heal-after {heal:?}); make --for \
                 longer than that, or --heal-after shorter"
            );
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.context("cannot start threads")?.block_on(self.follow(env, &script))
    }

    /// The faults that are written down.
    fn script(&self) -> anyhow::Result<Script> {
        let mut script = match &self.faults {
            None => Script::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the faults in {}", path.display()))?;
                Script::parse(&text).with_context(|| format!("bad faults in {}", path.display()))?
            }
        };
        for line in &self.fault {
            let one = Script::parse(line).with_context(|| format!("bad --fault {line:?}"))?;
            script = script.and(one);
        }
        Ok(script)
    }

    async fn follow(self, env: &Env, script: &Script) -> anyhow::Result<()> {
        let mut signals = Signals::new().context("cannot listen to signals")?;
        let log = Arc::new(Log::open(self.log.as_deref())?);
        let faults = {
            let log = log.clone();
            Faults::in_real_time(env.clone(), self.seed.unwrap_or(0), move |entry| log.entry(entry))
        };
        let upstream = self.connect().await?;
        let direct = self.direct()?;
        faults.interfere_through(upstream.clone());
        let rules = script.inject(&faults);
        if self.seed.is_some() {
            faults.swarm(self.swarm());
        }
        let current = Current::default();
        let (front, kubeconfig, _folder) = self.open(env, &faults, upstream, current.clone()).await?;
        let shutdown = CancellationToken::new();
        let serving = env.spawn(front.serve(env.clone(), shutdown.clone()));
        say(&format!("kubeconfig for the controller: {}\n", kubeconfig.display()));
        let outcome = {
            let command = self.child(env, &kubeconfig, current, log.clone());
            tokio::select! {
                outcome = self.play(&faults, command, direct.as_ref()) => outcome,
                _ = signals.next() => {
                    Outcome { checked: self.check.as_ref().map(|_| Checked::NotRun), ended: None }
                }
            }
        };
        shutdown.cancel();
        serving.stop().await;
        self.report(&log, &rules, &outcome)
    }

    fn swarm(&self) -> Swarm {
        let kinds = [FaultKind::StallWatch, FaultKind::LagWatch];
        let swarm =
            kinds.into_iter().fold(Swarm::every(self.chance), |swarm, kind| swarm.chance(kind, self.chance));
        if self.command.is_empty() { swarm } else { swarm.chance(FaultKind::Crash, self.chance) }
    }

    /// The way to the server.
    async fn connect(&self) -> anyhow::Result<Upstream> {
        let mut config = ClientConfig::new();
        if let Some(path) = &self.kubeconfig {
            config = config.kubeconfig(path);
        }
        if let Some(context) = &self.context {
            config = config.context(context);
        }
        let client = setpoint::client::build(config.find().await?)?;
        let version = client
            .apiserver_version()
            .await
            .context("cannot reach the API server (check --kubeconfig and --context)")?;
        say(&format!("faults in front of Kubernetes {}\n", version.git_version));
        Ok(Upstream::new(client))
    }

    /// Listens, and writes the kubeconfig that leads here.
    async fn open(
        &self,
        env: &Env,
        faults: &Faults,
        upstream: Upstream,
        current: Current,
    ) -> anyhow::Result<(Front, PathBuf, Option<TempDir>)> {
        let listen = Listen::parse(&self.listen)?;
        let listener = listen.bind().await?;
        let address = listener.local_addr()?;
        let authority = CertificateAuthority::generate(env)?;
        let mut names = listen.server_names(address);
        names.push("localhost".to_owned());
        let server = authority.issue_server(names)?;
        let tls = authority.server_config(&server)?;
        // Who has no token would use the user's credentials otherwise.
        let token = format!("{}{}", env.uuid(), env.uuid()).replace('-', "");
        let (path, folder) = match &self.write_kubeconfig {
            Some(path) => (path.clone(), None),
            None => {
                let folder = TempDir::with_prefix("setpoint-sim-")?;
                (folder.path().join(KUBECONFIG), Some(folder))
            }
        };
        Kubeconfig::with_token(&url_of(address), &authority, &token).write(&path).context(
            "cannot write the kubeconfig for the controller; choose another place with --write-kubeconfig",
        )?;
        let path = std::path::absolute(path)?;
        Ok((Front::new(listener, tls, token, faults.layer("controller"), upstream, current), path, folder))
    }

    fn child(
        &self,
        env: &Env,
        kubeconfig: &std::path::Path,
        current: Current,
        log: Arc<Log>,
    ) -> Option<Child> {
        let (program, arguments) = self.command.split_first()?;
        let arguments = arguments
            .iter()
            .map(|argument| argument.replace("{kubeconfig}", &kubeconfig.display().to_string()));
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        // It shall not find a way around the proxy.
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT");
        Some(Child::new(env.clone(), command, self.down, current, log))
    }

    /// Everything until the end.
    async fn play(&self, faults: &Faults, command: Option<Child>, direct: Option<&TempDir>) -> Outcome {
        let heal = || {
            faults.heal();
            say("all faults end\n");
        };
        let checked = async || match &self.check {
            Some(check) => Some(self.checked(check, direct).await),
            None => None,
        };
        let running = async {
            match command {
                Some(command) => command.run().await,
                None => std::future::pending().await,
            }
        };
        let until = async {
            if let Some(time) = self.healing() {
                sleep(time).await;
                heal();
            }
            match checked().await {
                None => std::future::pending().await,
                checked => checked,
            }
        };
        let over = async {
            match self.length {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let all = async {
            tokio::select! {
                checked = until => Outcome { checked, ended: None },
                ended = running => {
                    // What it has left behind is checked, too.
                    let checked = if matches!(ended, Ended::Well) && self.check.is_some() {
                        heal();
                        checked().await
                    } else {
                        None
                    };
                    Outcome { checked, ended: Some(ended) }
                }
            }
        };
        tokio::select! {
            outcome = all => outcome,
            () = over => Outcome { checked: self.check.as_ref().map(|_| Checked::CutOff), ended: None },
        }
    }

    /// When all faults end.
    fn healing(&self) -> Option<Duration> {
        self.heal_after.or(self.check.as_ref().map(|_| HEAL_AFTER))
    }

    /// The way around the faults, if it is not the kubeconfig as it is: one whose current context is that of --context.
    fn direct(&self) -> anyhow::Result<Option<TempDir>> {
        let (Some(context), Some(_)) = (&self.context, &self.check) else { return Ok(None) };
        let mut kubeconfig = match &self.kubeconfig {
            Some(path) => kube::config::Kubeconfig::read_from(path),
            None => kube::config::Kubeconfig::read(),
        }
        .context("cannot read the kubeconfig for --check")?;
        kubeconfig.current_context = Some(context.clone());
        let folder = TempDir::with_prefix("setpoint-sim-")?;
        // JSON is YAML; nobody else may enter the folder.
        std::fs::write(folder.path().join(KUBECONFIG), serde_json::to_vec(&kubeconfig)?)
            .context("cannot write the kubeconfig for --check")?;
        Ok(Some(folder))
    }

    /// Whether the check succeeds in time.
    async fn checked(&self, check: &str, direct: Option<&TempDir>) -> Checked {
        let tries = async {
            loop {
                let mut command = tokio::process::Command::new("sh");
                command.args(["-c", check]).stdin(Stdio::null()).kill_on_drop(true);
                let direct = direct.map(|folder| folder.path().join(KUBECONFIG));
                if let Some(path) = direct.as_ref().or(self.kubeconfig.as_ref()) {
                    command.env("KUBECONFIG", path);
                }
                let ended = timeout(CHECK_LIMIT, command.output()).await;
                if let Ok(Ok(output)) = &ended
                    && output.status.success()
                {
                    return;
                }
                sleep(CHECK_EVERY).await;
            }
        };
        if timeout(self.check_within, tries).await.is_ok() { Checked::Well } else { Checked::Late }
    }

    fn report(&self, log: &Log, rules: &[(String, Rule)], outcome: &Outcome) -> anyhow::Result<()> {
        let unfired: Vec<&str> =
            rules.iter().filter(|(_, rule)| rule.fired() == 0).map(|(line, _)| line.as_str()).collect();
        let mut text = log.summary();
        match outcome.checked {
            Some(Checked::Well) => text.push_str("the check succeeded\n"),
            Some(Checked::Late | Checked::CutOff) => text.push_str("the check failed\n"),
            Some(Checked::NotRun) => text.push_str("the check was interrupted\n"),
            None => {}
        }
        say(&text);
        let check = self.check.as_deref().unwrap_or_default();
        match outcome.checked {
            Some(Checked::Late) => {
                bail!("the check did not succeed within {:?} (--check-within): {check}", self.check_within)
            }
            Some(Checked::CutOff) => {
                bail!("the check did not succeed before --for was over; make --for longer: {check}")
            }
            Some(Checked::Well | Checked::NotRun) | None => {}
        }
        if let Some(Ended::TooOften(status)) = &outcome.ended {
            bail!("the command kept exiting by itself ({status}), at last within seconds; see its output");
        }
        if let Some(Ended::NotStarted(error)) = &outcome.ended {
            bail!("cannot start {:?}: {error}", self.command.first().map(String::as_str).unwrap_or_default());
        }
        if !unfired.is_empty() {
            bail!(
                "faults that were never injected, because no request matched (--log FILE logs all requests):\n  {}",
                unfired.join("\n  ")
            );
        }
        Ok(())
    }
}

/// To whoever reads it.
fn say(text: &str) {
    let _nobody_reads = std::io::stdout().write_all(text.as_bytes());
}
