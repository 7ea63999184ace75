//! `setpoint gen crd`: Rust types → CRD YAML.

use std::path::PathBuf;

use clap::Args;

use super::output::How;
use super::recipe::Recipe;

/// Generate CRDs from Rust types
///
/// Only the project can compile its types, so this runs its cargo example `manifests`:
///
///     fn main() -> std::process::ExitCode {
///         setpoint_codegen::Manifests::new("NAME").crd::<Foo>().main()
///     }
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Crd {
    #[command(flatten)]
    recipe: Recipe,

    /// The folder for the CRDs, one file each
    #[arg(long, short, value_name = "DIR", default_value = "config/crd")]
    out: PathBuf,

    #[command(flatten)]
    how: How,
}

impl Crd {
    pub(super) fn run(self) -> anyhow::Result<()> {
        self.recipe.run("crd", &self.out, self.how)
    }
}
