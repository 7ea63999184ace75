//! The real programs that we compare with, built from Go modules of ours
//! (`xtask/peers`) into a cache folder, one file a version.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::process;

/// A cold kube-apiserver takes six minutes of two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// A program that can be built.
pub(crate) struct Peer {
    name: &'static str,
    /// Folder below `xtask/peers`.
    module: &'static str,
    package: &'static str,
    /// The requirement in go.mod whose version is the version of the program.
    versioned_by: &'static str,
}

pub(crate) const KUBECTL: Peer = Peer {
    name: "kubectl",
    module: "kubernetes",
    package: "k8s.io/kubernetes/cmd/kubectl",
    versioned_by: "k8s.io/kubernetes",
};
pub(crate) const OLD_KUBECTL: Peer = Peer { module: "kubectl-1.34", ..KUBECTL };
pub(crate) const KUBE_APISERVER: Peer =
    Peer { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", ..KUBECTL };
pub(crate) const KUBE_CONTROLLER_MANAGER: Peer = Peer {
    name: "kube-controller-manager",
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    ..KUBECTL
};
pub(crate) const KUBE_SCHEDULER: Peer =
    Peer { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler", ..KUBECTL };
pub(crate) const ETCD: Peer = Peer {
    name: "etcd",
    module: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    versioned_by: "go.etcd.io/etcd/server/v3",
};
pub(crate) const CLIENT_GO: Peer =
    Peer { name: "clientgo", module: "clientgo", package: ".", versioned_by: "k8s.io/client-go" };

/// Our operator on controller-runtime.
pub(crate) const CONTROLLER_RUNTIME: Peer = Peer {
    name: "controllerruntime",
    module: "controllerruntime",
    package: ".",
    versioned_by: "sigs.k8s.io/controller-runtime",
};

/// What tells the items of controller-runtime, with the operator of the guide.
pub(crate) const GUIDES: Peer = Peer { name: "guides", module: "guides", ..CONTROLLER_RUNTIME };

pub(crate) const HELM: Peer = Peer {
    name: "helm",
    module: "helm",
    package: "helm.sh/helm/v4/cmd/helm",
    versioned_by: "helm.sh/helm/v4",
};

/// The client-go program that `cargo xtask bench` puts load on servers with.
pub(crate) const LOAD: Peer = Peer {
    name: "load",
    module: "../../bench/peers/go",
    package: "./load",
    versioned_by: "k8s.io/client-go",
};

/// client-go's side of `cargo xtask bench informer` and `queue`.
pub(crate) const INFORMER: Peer = Peer { name: "informer", package: "./informer", ..LOAD };
/// controller-runtime's side of `cargo xtask bench e2e`.
pub(crate) const CONTROLLER: Peer = Peer {
    name: "controller",
    package: "./controller",
    versioned_by: "sigs.k8s.io/controller-runtime",
    ..LOAD
};
pub(crate) const QUEUE: Peer = Peer { name: "queue", package: "./queue", ..LOAD };

pub(crate) const SAMPLE_CONTROLLER: Peer = Peer {
    name: "sample-controller",
    module: "samplecontroller",
    package: "k8s.io/sample-controller",
    versioned_by: "k8s.io/sample-controller",
};

pub(crate) const SAMPLE_APISERVER: Peer = Peer {
    name: "sample-apiserver",
    module: "sampleapiserver",
    package: "k8s.io/sample-apiserver",
    versioned_by: "k8s.io/sample-apiserver",
};

/// The operator of Prometheus, unmodified.
pub(crate) const PROMETHEUS_OPERATOR: Peer = Peer {
    name: "prometheus-operator",
    module: "prometheus-operator",
    package: "github.com/prometheus-operator/prometheus-operator/cmd/operator",
    versioned_by: "github.com/prometheus-operator/prometheus-operator",
};

/// Every peer, in the order in which they are wanted.
pub(crate) const ALL: [&Peer; 13] = [
    &KUBECTL,
    &OLD_KUBECTL,
    &CLIENT_GO,
    &ETCD,
    &KUBE_APISERVER,
    &KUBE_CONTROLLER_MANAGER,
    &KUBE_SCHEDULER,
    &HELM,
    &CONTROLLER_RUNTIME,
    &GUIDES,
    &SAMPLE_CONTROLLER,
    &SAMPLE_APISERVER,
    &PROMETHEUS_OPERATOR,
];

impl Peer {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(self.module)
    }

    /// The pinned version, such as `v1.37.1`.
    pub(crate) fn version(&self) -> Result<String> {
        let path = self.folder().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        required(&text, self.versioned_by)
            .with_context(|| format!("{} does not require {}", path.display(), self.versioned_by))
    }

    /// The version of Kubernetes that it is of: modules that come with v1.37.1 are v0.37.1, and servers among them do not start as
    /// version 0.
    fn kubernetes_version(&self) -> Result<String> {
        let version = self.version()?;
        let of_release = version.strip_prefix("v0.").filter(|_| self.versioned_by.starts_with("k8s.io/"));
        Ok(of_release.map_or_else(|| version.clone(), |rest| format!("v1.{rest}")))
    }

    /// Where the module proxy has put the source of the program, for what comes with it.
    pub(crate) fn source(&self) -> Result<PathBuf> {
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json", self.versioned_by]).current_dir(self.folder());
        let done = process::run(command, None, BUILD_LIMIT)?;
        if !done.status.success() {
            bail!("the source of {} cannot be had: {}", self.title(), last_lines(&done.stderr));
        }
        let answer: serde_json::Value = serde_json::from_str(&done.stdout)?;
        let folder = answer["Dir"].as_str().context("go does not say where it has put it")?;
        Ok(PathBuf::from(folder))
    }

    /// Name and version, such as `kubectl v1.37.1`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version().unwrap_or_default())
    }

    fn file_name(&self) -> Result<String> {
        let version = self.kubernetes_version()?;
        // Our own program changes without a change of version.
        let suffix = if self.package.starts_with('.') {
            format!("-{:016x}", digest(&self.folder().join(self.package))?)
        } else {
            String::new()
        };
        Ok(format!("{}-{version}{suffix}", self.name))
    }
}

/// The cache: `$SETPOINT_PEERS`, or a folder of the user's cache.
pub(crate) struct Peers {
    folder: PathBuf,
    may_build: bool,
}

impl Peers {
    pub(crate) fn new(may_build: bool) -> Result<Self> {
        let folder = match env::var_os("SETPOINT_PEERS") {
            Some(folder) => PathBuf::from(folder),
            None => match env::var_os("XDG_CACHE_HOME") {
                Some(cache) => PathBuf::from(cache).join("setpoint/peers"),
                None => env::home_dir()
                    .context("there is no home folder: set SETPOINT_PEERS to a folder for the peers")?
                    .join(".cache/setpoint/peers"),
            },
        };
        Ok(Self { folder, may_build })
    }

    /// Where else something that takes long to get can be kept.
    pub(crate) fn cache(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// The binary of a peer, built if it is not there.
    ///
    /// An error is a reason to skip what needs this peer, not a failure.
    pub(crate) fn get(&self, peer: &Peer) -> Result<PathBuf> {
        let path = self.folder.join(peer.file_name()?);
        if path.exists() {
            return Ok(path);
        }
        if !self.may_build {
            bail!("{} is not built, and building is off", peer.title());
        }
        self.build(peer, &path)?;
        Ok(path)
    }

    fn build(&self, peer: &Peer, path: &Path) -> Result<()> {
        if Command::new("go").arg("version").output().is_err() {
            bail!("{} is not built, and there is no Go to build it with", peer.title());
        }
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        println!("      building {} …", peer.title());
        let begun = Instant::now();
        let partial = self.folder.join(format!("{}.partial-{}", peer.file_name()?, std::process::id()));
        let built = process::run(build_command(peer, &partial)?, None, BUILD_LIMIT)?;
        if !built.status.success() {
            let _ = fs::remove_file(&partial);
            return Err(anyhow!("{} cannot be built: {}", peer.title(), last_lines(&built.stderr)));
        }
        fs::rename(&partial, path)?;
        println!("      built {} in {} s", peer.title(), begun.elapsed().as_secs());
        Ok(())
    }
}

fn build_command(peer: &Peer, output: &Path) -> Result<Command> {
    // A peer takes minutes of every core: whoever else works here goes first.
    let mut command = Command::new("nice");
    command
        .args(["-n", "15", "go", "build", "-mod=readonly", "-trimpath", "-ldflags"])
        .arg(linker_flags(&peer.kubernetes_version()?))
        .arg("-o")
        .arg(output)
        .arg(peer.package)
        .env("CGO_ENABLED", "0")
        .current_dir(peer.folder());
    Ok(command)
}

/// Kubernetes binaries learn their version from the linker; others ignore it.
fn linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in
            [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")]
        {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

/// The version that a go.mod requires of a module.
fn required(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        let found = words.next() == Some(module);
        words.next().filter(|version| found && version.starts_with('v')).map(str::to_owned)
    })
}

fn digest(folder: &Path) -> Result<u64> {
    let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(&file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("go: downloading")).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_pinned_version() {
        for peer in ALL {
            assert!(peer.version().unwrap().starts_with('v'), "{}", peer.name);
        }
    }

    #[test]
    fn a_module_of_kubernetes_is_of_its_release() {
        let version = SAMPLE_APISERVER.version().unwrap();
        assert!(version.starts_with("v0."), "{version}");
        assert_eq!(SAMPLE_APISERVER.kubernetes_version().unwrap(), KUBECTL.version().unwrap());
        assert_eq!(CONTROLLER_RUNTIME.kubernetes_version().unwrap(), CONTROLLER_RUNTIME.version().unwrap());
    }

    #[test]
    fn a_version_is_read_from_both_forms_of_require() {
        let text =
            "require a.b/c v1.2.3\nrequire (\n\td.e/f v0.1.0 // indirect\n)\nreplace d.e/f => d.e/f v9.9.9\n";
        assert_eq!(required(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required(text, "d.e/f").as_deref(), Some("v0.1.0"));
        assert_eq!(required(text, "g.h/i"), None);
    }

    #[test]
    fn the_linker_is_told_the_version() {
        let flags = linker_flags("v1.37.1");
        assert!(flags.contains("component-base/version.gitMinor=37"));
        assert!(flags.contains("client-go/pkg/version.gitVersion=v1.37.1"));
    }
}
