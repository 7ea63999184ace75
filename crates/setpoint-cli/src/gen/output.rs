//! Where generated text goes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use setpoint_codegen::{File, Mode};

/// The options that say where to, and how.
#[derive(Args)]
pub(super) struct Output {
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    #[command(flatten)]
    pub(super) how: How,
}

/// What to do with files that are there.
#[derive(Args, Clone, Copy)]
pub(super) struct How {
    /// Overwrite existing files
    #[arg(long, conflicts_with_all = ["dry_run", "check"])]
    force: bool,

    /// Write nothing; print what would be written
    #[arg(long, conflicts_with = "check")]
    dry_run: bool,

    /// Write nothing; fail if a file is stale
    #[arg(long)]
    pub(super) check: bool,
}

impl How {
    /// The option that was given, for a program that knows the same ones.
    pub(super) fn option(self) -> Option<&'static str> {
        match self.mode() {
            Mode::Overwrite => Some("--force"),
            Mode::DryRun => Some("--dry-run"),
            Mode::Check => Some("--check"),
            Mode::Keep => None,
        }
    }

    fn mode(self) -> Mode {
        match self {
            How { force: true, .. } => Mode::Overwrite,
            How { dry_run: true, .. } => Mode::DryRun,
            How { check: true, .. } => Mode::Check,
            How { .. } => Mode::Keep,
        }
    }
}

/// Writes files, and tells what became of them.
pub(crate) fn put(files: &[File], force: bool, dry_run: bool) -> anyhow::Result<()> {
    How { force, dry_run, check: false }.put(files)
}

impl How {
    fn put(self, files: &[File]) -> anyhow::Result<()> {
        let outcomes = setpoint_codegen::put(files, self.mode())?;
        for (file, outcome) in files.iter().zip(outcomes) {
            tell(&format!("{} {}\n", outcome.word(self.mode()), file.path.display()));
        }
        Ok(())
    }
}

impl Output {
    /// Writes one text.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        match &self.out {
            Some(path) => self.how.put(&[File::new(path, text)]),
            None if self.how.check => anyhow::bail!("--check needs --out FILE, the file to check"),
            None => {
                tell(text);
                Ok(())
            }
        }
    }
}

/// Formats Rust code as the project that it goes to does. Without rustfmt it stays as it is.
pub(crate) fn format(code: &str, out: Option<&Path>) -> String {
    let folder = out.and_then(|path| path.ancestors().skip(1).find(|folder| folder.is_dir()));
    run_rustfmt(code, folder.unwrap_or(Path::new("."))).unwrap_or_else(|| code.to_owned())
}

fn run_rustfmt(code: &str, folder: &Path) -> Option<String> {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--emit", "stdout"]).current_dir(folder);
    let mut child =
        rustfmt.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut input = child.stdin.take()?;
    // rustfmt reads everything before it writes anything.
    input.write_all(code.as_bytes()).ok()?;
    drop(input);
    let output = child.wait_with_output().ok()?;
    let formatted = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !formatted.is_empty()).then_some(formatted)
}

/// Writes to standard output. Whoever closed it has read enough.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
