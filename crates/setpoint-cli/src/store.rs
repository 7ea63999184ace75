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

/// Back up all objects of a server, and restore them
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
}

/// Write all objects to a file, as they are at one moment
///
/// The server may run meanwhile, and goes on as always. A file that is there is replaced once the new one is complete, has
/// been read again and is durable. It holds every Secret, and only its owner can read it. The folder `pki` with the
/// certificate authority and the key of service accounts is not in it: copy that, too, if clients shall go on trusting the
/// server.
#[derive(Args)]
struct Backup {
    /// Where to write it
    file: PathBuf,

    /// The folder of `setpoint up --data`, whether the server runs or not
    #[arg(long, value_name = "DIR", default_value = "./.setpoint", alias = "data-dir")]
    data: PathBuf,

    /// Ask the server of this kubeconfig instead; its user has to be in the group system:masters
    #[arg(long, value_name = "PATH", conflicts_with = "data")]
    kubeconfig: Option<PathBuf>,
}

/// Make a store from a backup
///
/// The server on the folder has to be stopped. resourceVersions go on far ahead of those in the backup, and watches from
/// older ones are answered with 410: clients list again, so that nobody goes on with what is no longer there.
#[derive(Args)]
struct Restore {
    /// What `setpoint store backup` has written
    file: PathBuf,

    /// The folder for `setpoint up --data`
    #[arg(long, value_name = "DIR", default_value = "./.setpoint", alias = "data-dir")]
    data: PathBuf,

    /// Take the place of a store that is there; it is kept beside the new one
    #[arg(long)]
    force: bool,
}

/// Read a backup from end to end, and say what is in it
#[derive(Args)]
struct Verify {
    /// What `setpoint store backup` has written
    file: PathBuf,
}

impl Store {
    /// Does it.
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        match self.command {
            Command::Backup(backup) => backup.run(env),
            Command::Restore(restore) => restore.run(env),
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
                        "a server has the folder; if its kubeconfig is elsewhere, use --kubeconfig PATH",
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
            let why = status["message"].as_str().unwrap_or("it knows no backups; is it setpoint up?");
            bail!("the server at {server} refuses ({code}): {why}");
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| format!("the server at {server} went away; try again"))?;
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
