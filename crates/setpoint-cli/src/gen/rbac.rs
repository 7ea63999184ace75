//! `setpoint gen rbac`: the least roles that a controller needs.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use setpoint_codegen::Rules;

use super::output::{How, tell};
use super::recipe::Recipe;

/// Generate the minimal RBAC roles of a controller
///
/// From the controller's builder: this runs the project's example `manifests`, which ends with
///
///     setpoint_codegen::Manifests::new("NAME").rbac("NAMESPACE", manager.permissions()).main()
///
/// With --from-audit, from an audit log: prints the role that the requests in it needed, and
/// how it differs from the declared roles; with --check it fails if it does.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Rbac {
    #[command(flatten)]
    recipe: Recipe,

    /// The folder for rbac.yaml
    #[arg(long, short, value_name = "DIR", default_value = "config/rbac")]
    out: PathBuf,

    #[command(flatten)]
    how: How,

    /// An audit log: JSON lines of audit.k8s.io/v1
    #[arg(long, value_name = "FILE")]
    from_audit: Option<PathBuf>,

    /// Count only requests of this user [default: all users]
    #[arg(long, value_name = "NAME", requires = "from_audit")]
    user: Option<String>,

    /// The declared roles to compare with [default: rbac.yaml in the folder of --out]
    #[arg(long, value_name = "FILE", requires = "from_audit")]
    declared: Option<PathBuf>,

    /// The name of the printed role
    #[arg(long, value_name = "NAME", default_value = "audited", requires = "from_audit")]
    name: String,
}

impl Rbac {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Some(log) = &self.from_audit else {
            return self.recipe.run("rbac", &self.out, self.how);
        };
        let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let used = Rules::from_audit(&log.display().to_string(), &read(log)?, self.user.as_deref())?;
        if used.is_empty() {
            bail!(
                "{}: no requests found; check --user, and that the file is an audit log in JSON lines",
                log.display()
            );
        }
        tell(&used.cluster_role(&self.name)?);
        let path = self.declared.clone().unwrap_or_else(|| self.out.join("rbac.yaml"));
        if self.declared.is_none() && !path.exists() {
            return Ok(());
        }
        let declared = Rules::from_manifests(&path.display().to_string(), &read(&path)?)?;
        let (missing, unused) = (used.beyond(&declared), declared.beyond(&used));
        missing.iter().for_each(|line| tell(&format!("# used, not declared: {line}\n")));
        unused.iter().for_each(|line| tell(&format!("# declared, not used: {line}\n")));
        if self.how.check && !(missing.is_empty() && unused.is_empty()) {
            bail!(
                "{} differs from the audit log, as listed above; declare what is used, and run \
                 setpoint gen rbac",
                path.display()
            );
        }
        Ok(())
    }
}
