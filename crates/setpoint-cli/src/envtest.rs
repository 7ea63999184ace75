//! `setpoint envtest`: this program in the place of the binaries that test environments start.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Args;

/// Run Go's envtest suites on Setpoint instead of kube-apiserver and etcd
///
/// Creates a folder with `kube-apiserver` and `etcd`, which are this program under other names, and
/// `kubectl` if it is in PATH. Prints the path of the folder:
///
///     export KUBEBUILDER_ASSETS=$(setpoint envtest)
///     setpoint envtest -- go test ./...
///     setpoint envtest --tarball | setup-envtest sideload 1.37.1
///
/// Like envtest, it runs no controllers. SETPOINT_CONTROLLERS=garbage-collector,namespace (or *)
/// runs built-in controllers in each environment, SETPOINT_NODES=N runs simulated nodes.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Envtest {
    /// The folder to create [default: setpoint/envtest in the user's cache folder]
    #[arg(long, value_name = "DIR", conflicts_with = "tarball")]
    folder: Option<PathBuf>,

    /// Write a tar.gz of the binaries to standard output, for `setup-envtest sideload`
    #[arg(long, conflicts_with = "command")]
    tarball: bool,

    /// A command to run with KUBEBUILDER_ASSETS set
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The names of this program.
const NAMES: [&str; 2] = ["kube-apiserver", "etcd"];

impl Envtest {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find this program")?;
        if self.tarball {
            return tarball(&program);
        }
        let folder = match self.folder {
            Some(folder) => std::path::absolute(folder)?,
            None => cache()?.join("setpoint/envtest").join(env!("CARGO_PKG_VERSION")),
        };
        make(&program, &folder).with_context(|| folder.display().to_string())?;
        match self.command.split_first() {
            None => Ok(writeln!(std::io::stdout(), "{}", folder.display())?),
            Some((name, arguments)) => {
                let error = Command::new(name).args(arguments).env("KUBEBUILDER_ASSETS", &folder).exec();
                Err(error).with_context(|| format!("cannot run {name}"))
            }
        }
    }
}

/// The user's folder for what can be made again.
fn cache() -> anyhow::Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    folder.context("HOME is not set; choose a folder with --folder DIR")
}

/// Puts links into the folder. Each appears at once: another process may use the folder at this moment.
fn make(program: &Path, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in NAMES {
        link(program, &folder.join(name))?;
    }
    if let Some(kubectl) = find("kubectl").filter(|path| !path.starts_with(folder)) {
        link(&kubectl, &folder.join("kubectl"))?;
    }
    Ok(())
}

fn link(target: &Path, link: &Path) -> anyhow::Result<()> {
    if std::fs::read_link(link).is_ok_and(|old| old == target) {
        return Ok(());
    }
    let fresh = link.with_extension(std::process::id().to_string());
    std::os::unix::fs::symlink(target, &fresh)?;
    Ok(std::fs::rename(&fresh, link)?)
}

/// A program of PATH.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Writes the binaries as regular files: `setup-envtest` skips links.
fn tarball(program: &Path) -> anyhow::Result<()> {
    let out = std::io::stdout().lock();
    ensure!(
        !std::io::IsTerminal::is_terminal(&out),
        "a terminal cannot take a tarball: redirect standard output"
    );
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(out, flate2::Compression::fast()));
    let files = NAMES.map(|name| (name, program.to_owned())).into_iter();
    for (name, path) in files.chain(find("kubectl").map(|kubectl| ("kubectl", kubectl))) {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        let size = path.metadata()?.len();
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o755);
        let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        archive.append_data(&mut header, format!("controller-tools/envtest/{name}"), file)?;
    }
    archive.into_inner()?.finish()?.flush()?;
    Ok(())
}
