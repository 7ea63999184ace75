//! The one line that a project needs to generate its manifests.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::JsonSchema;
use setpoint::Permissions;

use crate::error::Error;
use crate::files::{File, FilesError, Mode, put};
use crate::{crd, rbac, yaml};

/// The manifests of a project: what `setpoint gen crd` and `setpoint gen rbac` write.
///
/// In `examples/manifests.rs`:
///
/// ```no_run
/// # mod foo {
/// #     #[derive(Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema, kube::CustomResource)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
/// #     pub struct FooSpec {}
/// # }
/// # use foo::Foo;
/// fn main() -> std::process::ExitCode {
///     setpoint_codegen::Manifests::new("foo").crd::<Foo>().main()
/// }
/// ```
///
/// and in a test, so that nobody forgets to generate them again:
///
/// ```no_run
/// # fn manifests() -> setpoint_codegen::Manifests { setpoint_codegen::Manifests::new("foo") }
/// #[test]
/// fn the_committed_manifests_are_fresh() -> Result<(), setpoint_codegen::ManifestsError> {
///     manifests().check_crds("config/crd".as_ref())
/// }
/// ```
#[must_use]
pub struct Manifests {
    name: String,
    crds: Vec<Result<CustomResourceDefinition, Error>>,
    /// The namespace of the service account, and what it needs.
    needs: Option<(String, Permissions)>,
}

/// Why manifests were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestsError {
    /// A type cannot be a CRD.
    #[error(transparent)]
    Type(#[from] Error),
    /// They could not be written, or are stale.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Roles were asked for, but [`Manifests::rbac`] was not called.
    #[error("the project declares no permissions: call Manifests::rbac")]
    NoRbac,
    /// The arguments make no sense.
    #[error("{0:?} is not an argument; use: crd|rbac [--out DIR] [--force|--dry-run|--check]")]
    Argument(OsString),
}

impl Manifests {
    /// The manifests of a project of this name, empty at first.
    pub fn new(name: impl Into<String>) -> Manifests {
        Manifests { name: name.into(), crds: Vec::new(), needs: None }
    }

    /// Adds the CRD of a type. Types of one kind in several versions become one CRD.
    pub fn crd<K: CustomResourceExt + JsonSchema>(mut self) -> Manifests {
        self.crds.push(crd::of::<K>());
        self
    }

    /// Adds the roles for what a manager or a controller needs (`permissions()` of either), bound to a service account
    /// of the project's name in this namespace.
    pub fn rbac(mut self, namespace: impl Into<String>, needs: Permissions) -> Manifests {
        self.needs = Some((namespace.into(), needs));
        self
    }

    /// All CRDs, versions merged.
    pub fn crds(&self) -> Result<Vec<CustomResourceDefinition>, Error> {
        let mut by_name: Vec<(Option<String>, Vec<CustomResourceDefinition>)> = Vec::new();
        for crd in &self.crds {
            let crd = crd.clone()?;
            match by_name.iter_mut().find(|(name, _)| *name == crd.metadata.name) {
                Some((_, versions)) => versions.push(crd),
                None => by_name.push((crd.metadata.name.clone(), vec![crd])),
            }
        }
        by_name.into_iter().map(|(_, versions)| crd::merge(versions)).collect()
    }

    /// Writes each CRD into a file of the folder, `foos.example.com.yaml`.
    pub fn write_crds(&self, folder: &Path) -> Result<(), ManifestsError> {
        put(&self.crd_files(folder)?, Mode::Overwrite)?;
        Ok(())
    }

    /// Fails if a file of the folder is not what [`Manifests::write_crds`] would write.
    pub fn check_crds(&self, folder: &Path) -> Result<(), ManifestsError> {
        put(&self.crd_files(folder)?, Mode::Check)?;
        Ok(())
    }

    /// Writes the roles into `rbac.yaml` of the folder.
    pub fn write_rbac(&self, folder: &Path) -> Result<(), ManifestsError> {
        put(&self.rbac_files(folder)?, Mode::Overwrite)?;
        Ok(())
    }

    /// Fails if `rbac.yaml` of the folder is not what [`Manifests::write_rbac`] would write.
    pub fn check_rbac(&self, folder: &Path) -> Result<(), ManifestsError> {
        put(&self.rbac_files(folder)?, Mode::Check)?;
        Ok(())
    }

    fn crd_files(&self, folder: &Path) -> Result<Vec<File>, Error> {
        let file = |crd: &CustomResourceDefinition| {
            let name = crd.metadata.name.clone().unwrap_or_default();
            Ok(File::new(folder.join(format!("{name}.yaml")), yaml::render(crd)?))
        };
        self.crds()?.iter().map(file).collect()
    }

    fn rbac_files(&self, folder: &Path) -> Result<Vec<File>, ManifestsError> {
        let (namespace, needs) = self.needs.as_ref().ok_or(ManifestsError::NoRbac)?;
        Ok(vec![File::new(folder.join("rbac.yaml"), rbac::manifests(&self.name, namespace, needs)?)])
    }

    /// Runs the arguments of the program: `crd` or `rbac`, `--out DIR`, and how to treat existing files that differ:
    /// `--force`, `--dry-run`, `--check`. Without `--out` the manifests are printed.
    pub fn main(self) -> ExitCode {
        match self.run(std::env::args_os().skip(1)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "{}: {}", self.name, chain(&error));
                ExitCode::FAILURE
            }
        }
    }

    fn run(&self, arguments: impl Iterator<Item = OsString>) -> Result<(), ManifestsError> {
        let Arguments { is_rbac, out, mode } = Arguments::parse(arguments)?;
        let folder = out.clone().unwrap_or_default();
        let files = if is_rbac { self.rbac_files(&folder)? } else { self.crd_files(&folder)? };
        let mut said = String::new();
        if out.is_some() {
            for (file, outcome) in files.iter().zip(put(&files, mode)?) {
                said += &format!("{} {}\n", outcome.word(mode), file.path.display());
            }
        } else {
            files.iter().for_each(|file| said += &format!("---\n{}", file.text));
        }
        // Whoever closed it has read enough.
        let _ = std::io::stdout().write_all(said.as_bytes());
        Ok(())
    }
}

struct Arguments {
    is_rbac: bool,
    out: Option<PathBuf>,
    mode: Mode,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Arguments, ManifestsError> {
        let mut parsed = Arguments { is_rbac: false, out: None, mode: Mode::Keep };
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("crd") => {}
                Some("rbac") => parsed.is_rbac = true,
                Some("--check") => parsed.mode = Mode::Check,
                Some("--dry-run") => parsed.mode = Mode::DryRun,
                Some("--force") => parsed.mode = Mode::Overwrite,
                Some("--out") => parsed.out = arguments.next().map(PathBuf::from),
                _ => return Err(ManifestsError::Argument(argument)),
            }
        }
        Ok(parsed)
    }
}

/// An error and what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, serde::Deserialize, serde::Serialize, JsonSchema, kube::CustomResource)]
    #[kube(group = "example.com", version = "v1", kind = "Foo")]
    struct FooSpec {}

    #[test]
    fn what_somebody_wrote_is_kept_unless_it_is_forced() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("foos.example.com.yaml");
        let run = |more: &[&str]| {
            let arguments = ["crd", "--out"].map(OsString::from).into_iter().chain([folder.path().into()]);
            let more = more.iter().map(OsString::from);
            Manifests::new("foo").crd::<Foo>().run(arguments.chain(more)).map_err(|error| error.to_string())
        };
        run(&["--dry-run"])?;
        assert!(!file.exists());
        run(&[])?;
        run(&["--check"])?;
        std::fs::write(&file, "mine")?;
        let kept = run(&[]).err().unwrap_or_default();
        assert!(kept.ends_with("foos.example.com.yaml; overwrite them with --force"), "{kept}");
        let stale = run(&["--check"]).err().unwrap_or_default();
        assert!(stale.starts_with("stale: "), "{stale}");
        assert_eq!(std::fs::read_to_string(&file)?, "mine");
        run(&["--force"])?;
        run(&["--check"])?;
        let odd = run(&["--odd"]).err().unwrap_or_default();
        assert!(odd.starts_with("\"--odd\" is not an argument; use: crd|rbac"), "{odd}");
        Ok(())
    }
}
