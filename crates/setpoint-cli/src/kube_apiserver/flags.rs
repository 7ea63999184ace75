//! The flags of kube-apiserver, and its feature gates. `flags.txt` has them all.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use jiff::SignedDuration;

use super::known::{Known, QUIET, Up};

const TABLE: &str = include_str!("flags.txt");

/// What the process was given.
pub(crate) struct Flags(ArgMatches);

impl Flags {
    /// The arguments of the process. Ends it for `--help` and `--version`.
    pub(super) fn of_process() -> anyhow::Result<Flags> {
        match command().try_get_matches() {
            Ok(matches) => Flags::of(matches),
            Err(error) if error.use_stderr() => bail!(unusable(&error)),
            Err(help) => help.exit(),
        }
    }

    fn of(matches: ArgMatches) -> anyhow::Result<Flags> {
        let flags = Flags(matches);
        flags.admission_plugins()?;
        flags.list("feature-gates").iter().try_for_each(|gate| check_gate(gate))?;
        flags.list("runtime-config").iter().try_for_each(|config| check_version(config))?;
        Ok(flags)
    }

    /// Names what was given and has no effect, once.
    pub(super) fn warn(&self) {
        let given = |name: &&str| self.0.value_source(name) == Some(ValueSource::CommandLine);
        let is_idle = |name: &&str| Known::find(name).is_none() && !QUIET.contains(name);
        let idle: Vec<&str> = flag_names().filter(given).filter(is_idle).collect();
        if !idle.is_empty() {
            tracing::warn!(flags = idle.join(","), "these flags of kube-apiserver have no effect here");
        }
        let changes = |name, is_change: fn(&str) -> bool| {
            let given: BTreeSet<String> =
                self.list(name).into_iter().filter(|text| is_change(text)).collect();
            given.into_iter().collect::<Vec<_>>().join(",")
        };
        let gates = changes("feature-gates", is_gate_change);
        if !gates.is_empty() {
            tracing::warn!(gates, "these feature gates have no effect here");
        }
        let versions = changes("runtime-config", is_version_change);
        if !versions.is_empty() {
            tracing::warn!(versions, "--runtime-config has no effect here on these");
        }
    }

    /// The values of a flag; none if this command does not have it.
    fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        debug_assert!(flag_names().any(|known| known == name), "there is no flag {name}");
        let values = self.0.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(String::as_str)
    }

    /// The last value that was given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values(name).next_back().filter(|text| !text.is_empty())
    }

    /// All values, those between commas too.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let texts = self.values(name).flat_map(|text| text.split(','));
        texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = text.parse().ok().with_context(|| format!("invalid argument {text:?} for --{name}"))?;
        Ok(Some(value))
    }

    pub(super) fn switch(&self, name: &str) -> anyhow::Result<Option<bool>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        Ok(Some(boolean(text).with_context(|| format!("invalid argument {text:?} for --{name}"))?))
    }

    pub(super) fn number(&self, name: &str) -> anyhow::Result<Option<u64>> {
        self.parsed(name)
    }

    /// A length of time, as Go writes it. A negative one is as long as none.
    pub(super) fn duration(&self, name: &str) -> anyhow::Result<Option<Duration>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if text == "0" {
            return Ok(Some(Duration::ZERO));
        }
        let parsed = text.parse::<SignedDuration>().ok();
        let length = parsed.with_context(|| format!("invalid argument {text:?} for --{name}"))?;
        Ok(Some(length.try_into().unwrap_or(Duration::ZERO)))
    }
}

/// The flags that `setpoint up` has in common with kube-apiserver.
impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let mut command = command;
        for flag in entries("flag") {
            let (name, ty) = flag.split_once(' ').map_or((flag, None), |(name, ty)| (name, Some(ty)));
            let Some(known) = Known::find(name) else { continue };
            let default = match known.up {
                Up::No => continue,
                Up::Default(default) => default,
                Up::Same | Up::Alias(_) => known.default,
            };
            let mut argument = argument(name, ty).help(help(known.help, default)).hide_short_help(true);
            if let Up::Alias(alias) = known.up {
                argument = argument.visible_alias(alias);
            }
            if name == "audit-policy-file" {
                argument = argument.requires("audit-log-path");
            }
            command = command.arg(argument.help_heading("Flags of kube-apiserver"));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        Ok(Flags(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

fn help(text: &str, default: &str) -> String {
    if default.is_empty() { text.to_owned() } else { format!("{text} [default: {default}]") }
}

/// A feature gate of the table.
struct Gate {
    default: bool,
    /// Whether it can be set to nothing else.
    is_locked: bool,
}

impl Gate {
    fn find(name: &str) -> Option<Gate> {
        let facts = entries("gate").find_map(|known| known.strip_prefix(name)?.strip_prefix(' '))?;
        let mut words = facts.split(' ').skip(1);
        let default = words.next() == Some("true");
        Some(Gate { default, is_locked: words.next() == Some("locked") })
    }
}

/// A name and its value, without the component that it may begin with.
fn gate_of(text: &str) -> (&str, Option<&str>) {
    let text = text.strip_prefix("kube:").unwrap_or(text);
    text.split_once('=').map_or((text, None), |(name, value)| (name.trim(), Some(value.trim())))
}

fn check_gate(text: &str) -> anyhow::Result<()> {
    let (name, value) = gate_of(text);
    let value = value.with_context(|| format!("--feature-gates: missing bool value for {name}"))?;
    let value =
        boolean(value).with_context(|| format!("--feature-gates: invalid value of {name}={value}"))?;
    let gate =
        Gate::find(name).with_context(|| format!("--feature-gates: unrecognized feature gate: {name}"))?;
    if gate.is_locked && gate.default != value {
        let default = gate.default;
        bail!("--feature-gates: cannot set feature gate {name} to {value}, feature is locked to {default}");
    }
    Ok(())
}

/// Whether a gate is set to something else than its default.
fn is_gate_change(text: &str) -> bool {
    let (name, value) = gate_of(text);
    Gate::find(name).is_none_or(|gate| value.and_then(boolean) != Some(gate.default))
}

/// `--runtime-config`: `api/all`, `api/ga`, `api/beta`, `api/alpha`, GROUP/VERSION or GROUP/VERSION/RESOURCE.
fn check_version(text: &str) -> anyhow::Result<()> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if boolean(value).is_none() && (!value.is_empty() || key.starts_with("api/")) {
        bail!("--runtime-config: invalid value {key}={value}");
    }
    if matches!(key, "api/all" | "api/ga" | "api/beta" | "api/alpha" | "api/legacy" | "api/v1" | "v1") {
        return Ok(());
    }
    let (group, rest) =
        key.split_once('/').with_context(|| format!("--runtime-config: invalid key {key}"))?;
    let versions =
        || entries("version").filter_map(|known| known.split_once('/')).filter(|known| known.0 == group);
    if versions().next().is_none() {
        bail!("--runtime-config: unknown api groups {key}");
    }
    let version = rest.split('/').next().unwrap_or(rest);
    if !versions().any(|(_, known)| known.split(' ').next() == Some(version)) {
        bail!("--runtime-config: group version {group}/{version} that has not been registered");
    }
    Ok(())
}

/// Whether something is switched to what it is not here.
fn is_version_change(text: &str) -> bool {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let wanted = boolean(value) != Some(false);
    match key {
        "api/ga" | "api/legacy" => !wanted,
        "api/all" | "api/beta" | "api/alpha" => true,
        _ => {
            let version =
                key.splitn(3, '/').filter(|word| *word != "api").take(2).collect::<Vec<_>>().join("/");
            let known = entries("version").find_map(|known| known.strip_prefix(&version)?.strip_prefix(' '));
            known != Some(if wanted { "on" } else { "off" })
        }
    }
}

/// As Go reads it.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// What is behind a word of the table.
fn entries(word: &'static str) -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

fn flag_names() -> impl Iterator<Item = &'static str> {
    let names = entries("flag").filter_map(|flag| flag.split(' ').next());
    names.filter(|name| !matches!(*name, "help" | "version"))
}

/// What is wrong with the arguments, in the words of kube-apiserver where it is a flag that it does not have.
pub(crate) fn unusable(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) if flag.starts_with('-') => {
            format!("unknown flag: {flag}")
        }
        _ => error.to_string().trim_end().trim_start_matches("error: ").to_owned(),
    }
}

fn command() -> Command {
    let mut command = Command::new("kube-apiserver")
        // As scripts read it: `Kubernetes v1.37.1`.
        .display_name("Kubernetes")
        .version(concat!("v1.37.1 (setpoint ", env!("CARGO_PKG_VERSION"), ")"))
        .about("setpoint as kube-apiserver: an API server for test environments")
        .long_about(
            "setpoint as kube-apiserver: an API server for test environments.\n\nIt takes the flags of kube-apiserver. \
             Those without a text are checked and have no effect.\n\nSETPOINT_CONTROLLERS=garbage-collector,namespace \
             (or *) runs built-in controllers beside it, SETPOINT_NODES=N simulated nodes.",
        )
        .max_term_width(100)
        .args_override_self(true);
    let mut heading = "";
    for line in TABLE.lines() {
        if let Some(group) = line.strip_prefix("group ") {
            heading = group;
        } else if let Some(flag) = line.strip_prefix("flag ") {
            let (name, ty) = flag.split_once(' ').map_or((flag, None), |(name, ty)| (name, Some(ty)));
            if !matches!(name, "help" | "version") {
                command = command.arg(argument(name, ty).help_heading(heading));
            }
        }
    }
    command
}

fn argument(name: &'static str, ty: Option<&'static str>) -> Arg {
    let help = Known::find(name).map(|known| help(known.help, known.default)).unwrap_or_default();
    let argument = Arg::new(name).long(name).help(help).action(ArgAction::Append);
    let argument = if name == "v" { argument.short('v') } else { argument };
    match ty {
        Some(ty) => argument.value_name(ty).num_args(1).allow_hyphen_values(true),
        None => {
            argument.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::KNOWN;
    use super::*;

    fn flags(arguments: &[&str]) -> anyhow::Result<Flags> {
        Flags::of(command().try_get_matches_from([&["kube-apiserver"], arguments].concat())?)
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let given = flags(&[
            "--allow-privileged=true",
            "--secure-port=1234",
            "--bind-address",
            "127.0.0.1",
            "--anonymous-auth",
            "--disable-admission-plugins=ServiceAccount,Priority",
            "--disable-admission-plugins=PodSecurity",
            "--service-account-key-file=a",
            "--service-account-key-file=b",
            "-v=4",
            "--storage-initialization-timeout=1m30s",
        ])
        .unwrap();
        assert_eq!(given.parsed::<u16>("secure-port").unwrap(), Some(1234));
        assert_eq!(given.text("bind-address"), Some("127.0.0.1"));
        assert_eq!(given.switch("anonymous-auth").unwrap(), Some(true));
        assert_eq!(given.list("service-account-key-file"), ["a", "b"]);
        assert_eq!(given.number("v").unwrap(), Some(4));
        assert_eq!(given.duration("storage-initialization-timeout").unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(given.list("disable-admission-plugins"), ["ServiceAccount", "Priority", "PodSecurity"]);
    }

    #[test]
    fn what_this_version_of_kubernetes_does_not_have_is_refused() {
        for (arguments, words) in [
            (&["--insecure-port=0"][..], "--insecure-port"),
            (&["--feature-gates=NoSuchGate=true"], "unrecognized feature gate: NoSuchGate"),
            (&["--feature-gates=AllAlpha"], "missing bool value"),
            (&["--feature-gates=WatchList=maybe"], "invalid value of WatchList=maybe"),
            (&["--runtime-config=example.com/v1=true"], "unknown api groups example.com/v1"),
            (&["--runtime-config=apps/v9=true"], "group version apps/v9 that has not been registered"),
            (&["--runtime-config=apps=true"], "invalid key apps"),
            (&["--runtime-config=api/all=maybe"], "invalid value api/all=maybe"),
            (&["--runtime-config=api/all"], "invalid value api/all="),
        ] {
            let error = flags(arguments).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
        flags(&["--feature-gates=AllAlpha=false,kube:AtomicFIFO=true"]).unwrap();
        flags(&["--runtime-config=api/all=true,v1=true,apps/v1/deployments=false,resource.k8s.io/v1beta1"])
            .unwrap();
    }

    #[test]
    fn a_gate_that_cannot_be_changed_keeps_its_value() {
        let locked = entries("gate").find(|gate| gate.ends_with("true locked")).unwrap();
        let name = locked.split(' ').next().unwrap();
        flags(&[&format!("--feature-gates={name}=true")]).unwrap();
        let error = flags(&[&format!("--feature-gates={name}=false")]).err().unwrap().to_string();
        assert!(error.contains("feature is locked to true"), "{error}");
    }

    #[test]
    fn only_what_differs_from_here_is_a_change() {
        let gates = ["WatchList=true", "WatchList=false", "AllAlpha=true", "kube:AllAlpha=false"];
        assert_eq!(gates.map(is_gate_change), [false, true, true, false]);
        let versions =
            ["api/all=true", "api/ga=true", "apps/v1=true", "v1=false", "resource.k8s.io/v1beta1=true"];
        assert_eq!(versions.map(is_version_change), [true, false, false, true, true]);
    }

    #[test]
    fn every_flag_that_is_named_here_is_in_the_table() {
        let names: BTreeSet<&str> = flag_names().collect();
        for name in KNOWN.iter().map(|known| &known.name).chain(QUIET) {
            assert!(names.contains(name), "{name}");
        }
        let help = command().render_long_help().to_string();
        assert!(!help.lines().any(|line| line.trim_start().starts_with("--insecure-port")));
    }
}
