//! The suite `kubectl-VERSION`: what people type, and what they must read.
//!
//! Every text here is what kube-apiserver makes kubectl print; `cargo xtask
//! real --against kube-apiserver` proves it.

mod apply;
mod bad_input;
mod change;
mod create;
mod custom;
mod delete;
mod discovery;
mod explain;
mod get;
mod housekeeping;
mod proxy;
mod server_side;
mod table;
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::process::{self, Finished, Lines};
use super::report::Report;

/// No command of these suites needs longer, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// One check: a few commands in a namespace of its own.
struct Scenario {
    name: &'static str,
    run: fn(&Kubectl) -> Result<()>,
}

fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    [
        create::SCENARIOS,
        get::SCENARIOS,
        watch::SCENARIOS,
        change::SCENARIOS,
        delete::SCENARIOS,
        discovery::SCENARIOS,
        bad_input::SCENARIOS,
        proxy::SCENARIOS,
        apply::SCENARIOS,
        server_side::SCENARIOS,
        table::SCENARIOS,
        explain::SCENARIOS,
        custom::SCENARIOS,
    ]
    .into_iter()
    .flatten()
}

/// The names of all checks, for `--list`.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    scenarios().map(|scenario| scenario.name)
}

/// Runs every scenario with one kubectl.
pub(crate) fn run(report: &mut Report, suite: &str, binary: &Path, version: &str, kubeconfig: &Path) {
    for (number, scenario) in scenarios().enumerate() {
        report.check(suite, scenario.name, || {
            let namespace = format!("{}-{number}", suite.replace('.', "-"));
            let kubectl = Kubectl::new(binary, version, kubeconfig, namespace)?;
            kubectl.says("create namespace {ns}", "namespace/{ns} created")?;
            (scenario.run)(&kubectl)
        });
    }
}

/// The names of the checks that need controllers and nodes.
pub(crate) fn cluster_names() -> impl Iterator<Item = &'static str> {
    housekeeping::SCENARIOS.iter().chain(housekeeping::LOGS).map(|scenario| scenario.name)
}

/// Runs the scenarios that need controllers and nodes; those about logs only where the server knows them.
pub(crate) fn run_cluster(report: &mut Report, suite: &str, binary: &Path, server: &Path, has_logs: bool) {
    let logs = housekeeping::LOGS.iter().filter(|_| has_logs);
    for (number, scenario) in housekeeping::SCENARIOS.iter().chain(logs).enumerate() {
        report.check(suite, scenario.name, || {
            let kubectl = Kubectl::new(binary, "", server, format!("{suite}-{number}"))?;
            kubectl.says("create namespace {ns}", "namespace/{ns} created")?;
            (scenario.run)(&kubectl)
        });
    }
}

/// One kubectl with its own home folder, bound to one namespace.
///
/// In commands, words are separated by spaces and quoted by `'`; `{ns}` stands
/// for the namespace there and in what is expected.
pub(super) struct Kubectl {
    binary: PathBuf,
    version: String,
    kubeconfig: PathBuf,
    namespace: String,
    folder: TempDir,
}

impl Kubectl {
    pub(super) fn new(binary: &Path, version: &str, kubeconfig: &Path, namespace: String) -> Result<Self> {
        Ok(Self {
            binary: binary.to_owned(),
            version: version.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            namespace,
            folder: TempDir::new()?,
        })
    }

    /// The namespace of its commands.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Writes a file that commands can name.
    pub(super) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        Ok(std::fs::write(self.folder.path().join(name), content)?)
    }

    /// What `kubectl edit` runs: a line of shell; `$1` is the file.
    fn editor(&self, script: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        self.file("editor", format!("#!/bin/sh\n{script}\n"))?;
        let path = self.folder.path().join("editor");
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{ns}", &self.namespace)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(["--namespace", &self.namespace])
            .args(words(&self.fill(line)))
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("KUBE_EDITOR", self.folder.path().join("editor"))
            // `diff` is a program that kubectl runs.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs a command, however it ends.
    pub(super) fn run(&self, line: &str, input: Option<&str>) -> Result<Finished> {
        process::run(self.command(line), input.map(str::as_bytes), LIMIT)
    }

    /// Runs a command that must succeed; returns what it printed.
    pub(super) fn ok(&self, line: &str) -> Result<String> {
        self.succeed(line, None)
    }

    fn succeed(&self, line: &str, input: Option<&str>) -> Result<String> {
        let finished = self.run(line, input)?;
        if !finished.status.success() {
            bail!("kubectl {} failed: {}", self.fill(line), finished.stderr.trim());
        }
        Ok(finished.stdout)
    }

    /// The command succeeds and prints exactly this.
    pub(super) fn says(&self, line: &str, expected: &str) -> Result<()> {
        self.compare(line, &self.succeed(line, None)?, expected)
    }

    /// The same with something on its standard input.
    fn says_given(&self, line: &str, input: &str, expected: &str) -> Result<()> {
        self.compare(line, &self.succeed(line, Some(&self.fill(input)))?, expected)
    }

    /// The command succeeds and prints at least these, in this order.
    pub(super) fn mentions(&self, line: &str, expected: &[&str]) -> Result<()> {
        let printed = self.ok(line)?;
        let mut rest = printed.as_str();
        for part in expected {
            let part = self.fill(part);
            let Some(found) = rest.find(&part) else {
                bail!("kubectl {}\nlacks:   {part}\nprinted: {}", self.fill(line), printed.trim_end());
            };
            rest = &rest[found + part.len()..];
        }
        Ok(())
    }

    /// A file that a command or an editor left contains this.
    fn mentions_file(&self, name: &str, expected: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.folder.path().join(name))?;
        if !text.contains(expected) {
            bail!("{name}\nlacks:    {expected}\ncontains: {text}");
        }
        Ok(())
    }

    /// The command fails and complains in exactly these words.
    fn fails(&self, line: &str, expected: &str) -> Result<()> {
        self.fails_on(line, None, expected)
    }

    fn fails_given(&self, line: &str, input: &str, expected: &str) -> Result<()> {
        self.fails_on(line, Some(&self.fill(input)), expected)
    }

    fn fails_on(&self, line: &str, input: Option<&str>, expected: &str) -> Result<()> {
        let finished = self.run(line, input)?;
        if finished.status.success() {
            bail!("kubectl {} succeeded: {}", self.fill(line), finished.stdout.trim());
        }
        self.compare(line, &finished.stderr, expected)
    }

    /// The command fails and its complaint starts with these words.
    fn complains_given(&self, line: &str, input: &str, start: &str) -> Result<()> {
        let finished = self.run(line, Some(input))?;
        if finished.status.success() || !finished.stderr.starts_with(start) {
            let (out, error) = (finished.stdout.trim(), finished.stderr.trim());
            bail!("kubectl {}\nexpected: {start} …\nprinted:  {out}{error}", self.fill(line));
        }
        Ok(())
    }

    fn compare(&self, line: &str, printed: &str, expected: &str) -> Result<()> {
        let (printed, expected) = (printed.trim_end(), self.fill(expected));
        if printed != expected.trim_end() {
            bail!("kubectl {}\nexpected: {expected}\nprinted:  {printed}", self.fill(line));
        }
        Ok(())
    }

    /// A field of an object.
    pub(super) fn field(&self, object: &str, path: &str) -> Result<String> {
        self.ok(&format!("get {object} -o jsonpath='{{{path}}}'"))
    }

    /// Starts a command that goes on printing.
    pub(super) fn start(&self, line: &str) -> Result<Lines> {
        Lines::start(self.command(line)).with_context(|| format!("kubectl {line}"))
    }
}

/// The words of a command line; single quotes keep spaces.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_like_a_shell_would() {
        assert_eq!(words("get cm  -o 'a b'"), ["get", "cm", "-o", "a b"]);
        assert_eq!(words("-o jsonpath='{.a} {.b}' ''"), ["-o", "jsonpath={.a} {.b}", ""]);
    }

    #[test]
    fn names_are_unique() {
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
