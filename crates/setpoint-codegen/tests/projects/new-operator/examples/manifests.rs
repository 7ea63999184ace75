//! The manifests that are made from the code: `setpoint gen crd` and `setpoint gen rbac` run this.

use std::process::ExitCode;

use new_operator::{NAME, NAMESPACE, api, permissions};
use setpoint_codegen::Manifests;

fn main() -> ExitCode {
    manifests().main()
}

fn manifests() -> Manifests {
    Manifests::new(NAME)
        .crd::<api::Shop>()
        .rbac(NAMESPACE, permissions())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_manifests_are_fresh() -> Result<(), Box<dyn std::error::Error>> {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
        manifests().check_crds(&config.join("crd"))?;
        manifests().check_rbac(&config.join("rbac"))?;
        Ok(())
    }
}
