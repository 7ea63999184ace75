//! `setpoint store`: backups of the objects of a server.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use setpoint::{ClientConfig, client};
use setpoint_apiserver::store::{self, BACKUP_PATH, BackupFile, OpenError, Summary};
use setpoint_env::Env;

use crate::etcd_cluster::EtcdCluster;

/// Back up, restore and copy the objects of a server
#[derive(Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Backup(Backup),
    Restore(Restore),
    Verify(Verify),
    Copy(Copy),
}

/// Write a consistent backup of all objects to a file
///
/// A running server goes on serving. An existing file is replaced once the new one is complete, has been read again and is
/// durable. It contains every Secret, and only its owner can read it. It does not contain the folder `pki` with the
/// certificate authority and the service account key: copy that too, so that clients go on trusting the
/// server.
#[derive(Args)]
struct Backup {
    /// The file to write
    file: PathBuf,

    /// The data folder of `setpoint up`, whether the server runs or not
    #[arg(long, value_name = "DIR", default_value = "./.setpoint", alias = "data-dir")]
    data: PathBuf,

    /// Get the backup from the server of this kubeconfig instead; its user must be in the group system:masters
    #[arg(long, value_name = "PATH", conflicts_with = "data")]
    kubeconfig: Option<PathBuf>,
}

/// Create a store from a backup
///
/// The server on the folder must be stopped. resourceVersions continue far ahead of those in the backup, and older watches
/// get 410, so that clients list again and drop what is no longer there.
#[derive(Args)]
struct Restore {
    /// A file that `setpoint store backup` has written
    file: PathBuf,

    /// The data folder for `setpoint up`
    #[arg(long, value_name = "DIR", default_value = "./.setpoint", alias = "data-dir")]
    data: PathBuf,

    /// Replace an existing store, which is kept beside the new one
    #[arg(long)]
    force: bool,
}

/// Check a backup, and print what is in it
#[derive(Args)]
struct Verify {
    /// A file that `setpoint store backup` has written
    file: PathBuf,
}

/// Copy all objects between a data folder and etcd, or between two etcds
///
/// No server may write to either in the meantime. The target must be empty, apart from what an interrupted copy has left, so
/// a copy can be repeated. At the end everything is read again and compared by count and hash. The folder `pki` is not copied.
#[derive(Args)]
struct Copy {
    /// A data folder of `setpoint up`, or etcd://HOST:PORT[,HOST:PORT][/PREFIX]
    #[arg(long, value_name = "PLACE")]
    from: String,

    /// Like --from
    #[arg(long, value_name = "PLACE")]
    to: String,

    /// The certificate authority of etcd; enables TLS
    #[arg(long, value_name = "PATH")]
    etcd_cafile: Option<PathBuf>,

    /// The client certificate for etcd
    #[arg(long, value_name = "PATH", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,

    /// The key of --etcd-certfile
    #[arg(long, value_name = "PATH", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
}

impl Copy {
    /// The etcd that a place names; none if it is a folder.
    fn etcd(&self, place: &str) -> Option<EtcdCluster> {
        let (members, prefix) =
            place.strip_prefix("etcd://").map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
        let scheme =
            if self.etcd_cafile.is_some() || self.etcd_certfile.is_some() { "https" } else { "http" };
        Some(EtcdCluster {
            urls: members.split(',').map(|member| format!("{scheme}://{member}")).collect(),
            ca: self.etcd_cafile.clone(),
            certificate: self.etcd_certfile.clone(),
            key: self.etcd_keyfile.clone(),
            prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
            user: None,
        })
    }

    #[cfg(not(feature = "etcd"))]
    fn run(&self, _env: &Env) -> anyhow::Result<()> {
        match self.etcd(&self.from).or_else(|| self.etcd(&self.to)) {
            Some(etcd) => bail!("{}", etcd.unsupported()),
            None => bail!(
                "neither --from nor --to is an etcd; between folders, use setpoint store backup and restore"
            ),
        }
    }

    #[cfg(feature = "etcd")]
    fn run(&self, env: &Env) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut last = 0;
        let progress = |done: usize, of: usize| {
            let percent = done * 100 / of.max(1);
            if percent != last && std::io::stderr().is_terminal() {
                last = percent;
                // Who does not see it misses nothing.
                let _ = write!(std::io::stderr(), "\r{done} of {of} objects, {percent} %");
            }
        };
        let (from, to) = (Path::new(&self.from), Path::new(&self.to));
        let copied = match (self.etcd(&self.from), self.etcd(&self.to)) {
            (None, Some(etcd)) => {
                runtime.block_on(store::copy_to_etcd(from, &etcd.options()?, env, progress))?
            }
            (Some(from), Some(to)) => runtime.block_on(store::copy_between_etcds(
                &from.options()?,
                &to.options()?,
                env,
                progress,
            ))?,
            (Some(etcd), None) => return self.restore(&runtime, &etcd, to, env),
            (None, None) => {
                bail!(
                    "neither --from nor --to is an etcd; between folders, use setpoint store backup and restore"
                )
            }
        };
        say(&format!(
            "{} has {} objects, {} of which were there before; read again, SHA-256 {}\n",
            self.to, copied.objects, copied.skipped, copied.sha256
        ))
    }

    /// A backup of the etcd, restored in a folder that has no store yet.
    #[cfg(feature = "etcd")]
    fn restore(
        &self,
        runtime: &tokio::runtime::Runtime,
        etcd: &EtcdCluster,
        to: &Path,
        env: &Env,
    ) -> anyhow::Result<()> {
        let pieces = runtime.block_on(store::backup_of_etcd(&etcd.options()?, env))?;
        let scratch = tempfile::tempdir()?;
        let file = scratch.path().join("backup");
        let mut backup = BackupFile::create(&file)?;
        for piece in pieces {
            backup.write_all(&piece)?;
        }
        backup.finish()?;
        let restored = store::restore(&file, to, false, env.now())?;
        let Summary { objects, sha256, .. } = &restored.backup;
        say(&format!("{} has {objects} objects; read again, SHA-256 {sha256}\n", self.to))
    }
}

impl Store {
    /// Does it.
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        match self.command {
            Command::Backup(backup) => backup.run(env),
            Command::Restore(restore) => restore.run(env),
            Command::Copy(copy) => copy.run(env),
            Command::Verify(Verify { file }) => {
                let summary = store::verify(&file);
                say(&describe(&file, &summary.with_context(|| format!("{} cannot be used", file.display()))?))
            }
        }
    }
}

impl Backup {
    fn run(self, env: &Env) -> anyhow::Result<()> {
        let unwritable = || format!("cannot write {}; name another file", self.file.display());
        let mut file = BackupFile::create(&self.file).with_context(unwritable)?;
        let mut progress = Progress::default();
        if let Some(kubeconfig) = &self.kubeconfig {
            ask(kubeconfig, &mut file, &mut progress)?;
        } else {
            match store::backup(&self.data, env.now()) {
                Ok(pieces) => {
                    for piece in pieces {
                        file.write_all(&piece).with_context(unwritable)?;
                        progress.add(piece.len());
                    }
                }
                // A server runs on it, and has a kubeconfig there.
                Err(OpenError::Locked { .. }) => {
                    ask(&self.data.join("kubeconfig"), &mut file, &mut progress).context(
                        "a server uses this folder; if its kubeconfig is elsewhere, use --kubeconfig PATH",
                    )?;
                }
                Err(error) => return Err(anyhow!("{:#}; or use --data DIR", anyhow::Error::new(error))),
            }
        }
        progress.end();
        let summary = file.finish().with_context(|| format!("{} was not written", self.file.display()))?;
        say(&describe(&self.file, &summary))
    }
}

impl Restore {
    fn run(self, env: &Env) -> anyhow::Result<()> {
        let restored = store::restore(&self.file, &self.data, self.force, env.now())?;
        let mut text = describe(&self.file, &restored.backup);
        text.push_str(&format!(
            "restored   {}, from revision {} on\n",
            self.data.display(),
            restored.revision
        ));
        if let Some(path) = &restored.replaced {
            text.push_str(&format!("kept       {}\n", path.display()));
        }
        say(&text)
    }
}

/// Gets the backup of a running server.
fn ask(kubeconfig: &Path, file: &mut BackupFile, progress: &mut Progress) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = ClientConfig::new().kubeconfig(kubeconfig).find().await?;
        let server = config.cluster_url.to_string();
        let request = Request::get(BACKUP_PATH).body(Body::empty())?;
        let response = client::build(config)?.send(request).await;
        let response = response.with_context(|| format!("cannot reach the server at {server}"))?;
        let code = response.status();
        let mut body = response.into_body();
        if !code.is_success() {
            let text = body.collect().await?.to_bytes();
            let status: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            let why =
                status["message"].as_str().unwrap_or("it has no backups; use the kubeconfig of setpoint up");
            bail!("the server at {server} refused the backup ({code}): {why}");
        }
        while let Some(frame) = body.frame().await {
            let frame =
                frame.with_context(|| format!("the server at {server} closed the connection; try again"))?;
            if let Ok(piece) = frame.into_data() {
                file.write_all(&piece).context("cannot write the backup")?;
                progress.add(piece.len());
            }
        }
        Ok(())
    })
}

/// How far it is, for who looks on.
#[derive(Default)]
struct Progress {
    bytes: usize,
    shown: usize,
}

impl Progress {
    const STEP: usize = 4 << 20;

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes - self.shown >= Progress::STEP {
            self.shown = self.bytes;
            self.print(&format!("\r{} MiB", self.bytes >> 20));
        }
    }

    fn end(&self) {
        if self.shown > 0 {
            self.print("\r\x1b[K");
        }
    }

    fn print(&self, text: &str) {
        let mut error = std::io::stderr();
        if error.is_terminal() {
            // It is of no consequence if nobody sees it.
            let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
        }
    }
}

fn describe(file: &Path, summary: &Summary) -> String {
    format!(
        "backup     {}\n\
         made       {}\n\
         objects    {}, up to revision {}\n\
         size       {} bytes\n\
         sha256     {}\n",
        file.display(),
        summary.made,
        summary.objects,
        summary.revision,
        summary.bytes,
        summary.sha256
    )
}

fn say(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write")
}
