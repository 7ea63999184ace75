//! `setpoint gen types`: CRD YAML → Rust types.

use clap::Args;

use super::input::Input;
use super::output::{Output, format};

/// Generate Rust types from CRDs
///
/// The types have #[derive(CustomResource)], and keep validation, defaults and CEL rules as attributes. Several kinds or
/// versions are modules of the file.
#[derive(Args)]
pub(super) struct Types {
    #[command(flatten)]
    input: Input,

    /// Only this version (v1)
    #[arg(long, value_name = "VERSION")]
    api_version: Option<String>,

    #[command(flatten)]
    output: Output,
}

impl Types {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut types = setpoint_codegen::Types::new();
        if let Some(version) = self.api_version {
            types = types.version(version);
        }
        let code = types.render(&self.input.read()?)?;
        self.output.write(&format(&code, self.output.out.as_deref()))
    }
}
