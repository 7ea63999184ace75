//! `setpoint new`: a complete operator project.

mod crd;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use setpoint_codegen::project::{Crates, Owned, checkout_of};
use setpoint_codegen::{File, Project};

use crate::r#gen::{format, put, tell};

/// Create an operator project that compiles, passes its tests and runs
///
/// It has types, a controller, a program with leader election, health checks and metrics, tests
/// against an API server in the process, manifests for kustomize, a Dockerfile, CI and a README.
/// For example:
///
///     setpoint new my-app
///     setpoint new shop-operator --group shop.example.com --owns deployment --webhook
///     setpoint new certs --from-crd certificates.yaml
///     setpoint new tides --extension-server
///
/// The project depends on the crates of a checkout of Setpoint: that of --checkout, or the one that
/// this binary or the current folder is in. Without one it depends on the published crates, and
/// none are published yet.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct New {
    /// The folder to create; its last part is the name of the package, of the service account and, unless --kind is set,
    /// of the kind
    #[arg(value_name = "NAME")]
    path: PathBuf,

    /// The API group of the kind, a domain of yours [default: example.com]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,

    /// The kind [default: MyApp for my-app, Foo for foo-operator]. With --from-crd: which one, if the file has
    /// several
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// The version of the kind [default: v1alpha1; with --from-crd the storage version]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// Create it for an existing CRD: a file in YAML or JSON, - for standard input
    #[arg(long, value_name = "FILE")]
    from_crd: Option<PathBuf>,

    /// Make the kind cluster-scoped; the objects that it owns are in the namespace `default`
    #[arg(long)]
    cluster_scoped: bool,

    /// A kind that each object owns: ConfigMap, Deployment, Service, …; may be repeated [default: ConfigMap;
    /// with --from-crd none]
    #[arg(long, value_name = "KIND")]
    owns: Vec<String>,

    /// Add defaulting and validating webhooks; the operator makes their certificates
    #[arg(long)]
    webhook: bool,

    /// Leave the certificates of the webhooks to cert-manager
    #[arg(long, requires = "webhook")]
    cert_manager: bool,

    /// Create an extension API server for the kind instead of an operator: it stores the objects itself, behind the API
    /// server of a cluster
    #[arg(long, conflicts_with_all = ["webhook", "owns", "from_crd"])]
    extension_server: bool,

    /// The checkout of Setpoint whose crates to use [default: that of this binary or of the current folder]
    #[arg(long, value_name = "FOLDER")]
    checkout: Option<PathBuf>,

    /// Overwrite existing files
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,

    /// Write nothing; print what would be written
    #[arg(long)]
    dry_run: bool,
}

impl New {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let name = self.path.file_name().and_then(|name| name.to_str());
        let name = name
            .with_context(|| {
                format!(
                    "{}: not a valid name; end the path with the name of the project",
                    self.path.display()
                )
            })?
            .to_owned();
        let checkout = self.checkout()?;
        let project = self.project(&name, checkout.as_deref())?;
        let mut files = project.render()?;
        if let Some(checkout) = &checkout {
            // The versions that Setpoint is tested with, and no need for a registry where they are known.
            let path = checkout.join("Cargo.lock");
            let lock = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push(File::new("Cargo.lock", lock));
        }
        for file in &mut files {
            let path = self.path.join(&file.path);
            if path.extension().is_some_and(|ending| ending == "rs") {
                file.text = format(&file.text, Some(&path));
            }
            file.path = path;
        }
        put(&files, self.force, self.dry_run)?;
        if !self.dry_run {
            tell(&format!(
                "\nNow: cd {} && cargo test. The next steps are in its README.md.\n",
                self.path.display()
            ));
        }
        Ok(())
    }

    fn checkout(&self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(folder) = &self.checkout {
            let checkout = checkout_of(&std::path::absolute(folder)?);
            return Ok(Some(checkout.with_context(|| {
                format!("{}: not a checkout of Setpoint; --checkout takes its top folder", folder.display())
            })?));
        }
        // Built with a target folder elsewhere, the program is outside of its checkout.
        let program = std::env::current_exe().ok().and_then(|path| checkout_of(&path));
        Ok(program.or_else(|| checkout_of(&std::env::current_dir().ok()?)))
    }

    fn project(&self, name: &str, checkout: Option<&Path>) -> anyhow::Result<Project> {
        let mut project = Project::new(name)?;
        if let Some(file) = &self.from_crd {
            let found = crd::read(file, self.kind.as_deref(), self.version.as_deref())?;
            project = project.from_crd(found.definition, found.text, found.has_sample);
        }
        for owned in &self.owns {
            project = project.owns(owned.parse::<Owned>()?);
        }
        if let Some(group) = &self.group {
            project = project.group(group);
        }
        if let Some(kind) = &self.kind {
            project = project.kind(kind);
        }
        if let Some(version) = &self.version {
            project = project.version(version);
        }
        if self.cluster_scoped {
            project = project.cluster_scoped();
        }
        if self.webhook {
            project = project.webhook();
        }
        if self.cert_manager {
            project = project.cert_manager();
        }
        if self.extension_server {
            project = project.extension_server();
        }
        let folder = std::path::absolute(&self.path)?;
        if folder.is_file() {
            bail!("{}: exists and is a file; choose another name", self.path.display());
        }
        if folder.ancestors().skip(1).any(|above| above.join("Cargo.toml").exists()) {
            project = project.nested();
        }
        Ok(match checkout {
            Some(checkout) => project.crates(Crates::Checkout(checkout.to_owned())),
            None => project,
        })
    }
}
