//! The test programs: which there are, and how they are built.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::real::peers::{CONTROLLER_RUNTIME, Peers};
use crate::real::process;

const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Where a package is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Module {
    ControllerRuntime,
    Kubebuilder,
}

/// The tests of one Go package.
pub(super) struct Program {
    module: Module,
    package: &'static str,
}

const fn of_controller_runtime(package: &'static str) -> Program {
    Program { module: Module::ControllerRuntime, package }
}

const fn of_kubebuilder(package: &'static str) -> Program {
    Program { module: Module::Kubebuilder, package }
}

/// Every package of controller-runtime that starts an environment, and the project in kubebuilder's layout.
pub(super) const PROGRAMS: &[Program] = &[
    of_controller_runtime("pkg/builder"),
    of_controller_runtime("pkg/cache"),
    of_controller_runtime("pkg/client"),
    of_controller_runtime("pkg/client/apiutil"),
    of_controller_runtime("pkg/cluster"),
    of_controller_runtime("pkg/controller"),
    of_controller_runtime("pkg/controller/controllerutil"),
    of_controller_runtime("pkg/envtest"),
    of_controller_runtime("pkg/handler"),
    of_controller_runtime("pkg/internal/controller"),
    of_controller_runtime("pkg/internal/recorder"),
    of_controller_runtime("pkg/internal/testing/controlplane"),
    of_controller_runtime("pkg/manager"),
    of_controller_runtime("pkg/manager/internal/integration"),
    of_controller_runtime("pkg/metrics/filters"),
    of_controller_runtime("pkg/reconcile"),
    of_controller_runtime("pkg/source"),
    of_controller_runtime("pkg/webhook"),
    of_kubebuilder("internal/controller"),
    of_kubebuilder("internal/webhook"),
];

/// Many environments at once.
pub(super) const CROWD: Program = of_kubebuilder("internal/crowd");

impl Program {
    pub(super) fn title(&self) -> String {
        let module = match self.module {
            Module::ControllerRuntime => "controller-runtime",
            Module::Kubebuilder => "kubebuilder",
        };
        format!("{module} {}", self.package)
    }

    /// Tests that cannot run anywhere but with a network: they download kube-apiserver 1.28.
    pub(super) fn skip(&self) -> Option<&'static str> {
        (self.package == "pkg/client/apiutil").then_some("/aggregatedDiscovery=false")
    }

    fn file_name(&self) -> String {
        format!("{}.test", self.title().replace([' ', '/'], "-"))
    }
}

/// The programs, built.
pub(super) struct Programs {
    /// A copy of controller-runtime's module: the cache of modules cannot be written to, and its scripts do not run.
    controller_runtime: PathBuf,
    kubebuilder: PathBuf,
    built: PathBuf,
}

impl Programs {
    pub(super) fn get(peers: &Peers) -> Result<Programs> {
        let version = CONTROLLER_RUNTIME.version()?;
        let cache = peers.cache().join("envtest").join(&version);
        let programs = Programs {
            controller_runtime: cache.join("controller-runtime"),
            kubebuilder: Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/kubebuilder"),
            built: cache.join("bin"),
        };
        ensure!(Command::new("go").arg("version").output().is_ok(), "there is no Go to build its tests with");
        fs::create_dir_all(&programs.built).with_context(|| programs.built.display().to_string())?;
        if !programs.controller_runtime.exists() {
            programs.copy(&version)?;
        }
        Ok(programs)
    }

    /// Where the files are that a program reads.
    pub(super) fn folder(&self, program: &Program) -> PathBuf {
        self.module(program).join(program.package)
    }

    fn module(&self, program: &Program) -> &Path {
        match program.module {
            Module::ControllerRuntime => &self.controller_runtime,
            Module::Kubebuilder => &self.kubebuilder,
        }
    }

    /// The program, built if it is not there. Ours is always built: its source may have changed, and Go knows.
    pub(super) fn binary(&self, program: &Program) -> Result<PathBuf> {
        let path = self.built.join(program.file_name());
        if path.exists() && program.module == Module::ControllerRuntime {
            return Ok(path);
        }
        let begun = Instant::now();
        let mut command = Command::new("nice");
        command.args(["-n", "15", "go", "test", "-mod=readonly", "-c", "-o"]).arg(&path);
        command.arg(format!("./{}", program.package)).current_dir(self.module(program));
        let built = process::run(command, None, BUILD_LIMIT)?;
        if !built.status.success() {
            bail!("{} cannot be built: {}", program.title(), built.stderr.trim());
        }
        let took = begun.elapsed();
        if took > Duration::from_secs(10) {
            println!("      built {} in {} s", program.title(), took.as_secs());
        }
        Ok(path)
    }

    fn copy(&self, version: &str) -> Result<()> {
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json"]);
        command.arg(format!("sigs.k8s.io/controller-runtime@{version}")).current_dir(&self.kubebuilder);
        let answer = process::run(command, None, BUILD_LIMIT)?;
        let answer: Value = serde_json::from_str(&answer.stdout)
            .with_context(|| format!("controller-runtime cannot be had: {}", answer.stderr.trim()))?;
        let Some(source) = answer["Dir"].as_str() else {
            bail!("controller-runtime cannot be had: {}", answer["Error"]);
        };
        let partial = self.controller_runtime.with_extension(format!("partial-{}", std::process::id()));
        copy(Path::new(source), &partial)?;
        Ok(fs::rename(partial, &self.controller_runtime)?)
    }
}

/// Copies a folder. Everything in it can be written, and scripts can be run: modules lose such permissions.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::write(&target, fs::read(entry.path())?)?;
            let is_script = target.extension().is_some_and(|end| end == "sh");
            fs::set_permissions(&target, fs::Permissions::from_mode(if is_script { 0o755 } else { 0o644 }))?;
        }
    }
    Ok(())
}
