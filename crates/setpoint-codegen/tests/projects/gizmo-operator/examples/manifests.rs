//! The manifests that are made from the code: `setpoint gen crd` and `setpoint gen rbac` run this.

use std::process::ExitCode;

use gizmo_operator::{NAME, NAMESPACE, permissions};
use setpoint_codegen::Manifests;

fn main() -> ExitCode {
    manifests().main()
}

fn manifests() -> Manifests {
    // The CRD is what the types are made from, not the other way round.
    Manifests::new(NAME).rbac(NAMESPACE, permissions())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_manifests_are_fresh() -> Result<(), Box<dyn std::error::Error>> {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
        manifests().check_rbac(&config.join("rbac"))?;
        Ok(())
    }

    #[test]
    fn the_types_are_those_of_the_crd() -> Result<(), Box<dyn std::error::Error>> {
        let crd = include_str!("../config/crd/gizmos.acme.org.yaml");
        let definitions = setpoint_codegen::Definition::read("gizmos.acme.org.yaml", crd)?;
        let types = setpoint_codegen::Types::new()
            .version("v1")
            .render(&definitions)?;
        // However rustfmt lays it out.
        let code = |text: &str| text.replace([' ', '\n', ','], "");
        let is_fresh = code(&types) == code(include_str!("../src/api.rs"));
        assert!(is_fresh, "src/api.rs is stale: see README.md");
        Ok(())
    }
}
