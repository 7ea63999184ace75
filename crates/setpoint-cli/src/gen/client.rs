//! `setpoint gen client`: a typed clientset, listers and informers.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use setpoint_codegen::{ClientKind, Clientset};

use super::input::from_path;
use super::output::{Output, format};

/// Generate a clientset, listers and informers, with the API of code-generator's
///
/// For code like client.samplecontroller_v1alpha1().foos("default"). It is a thin layer over Api<Foo>,
/// Lister<Foo> and SharedInformerFactory, which need no generated code.
#[derive(Args)]
#[command(group = ArgGroup::new("which").args(["files", "kinds"]).required(true).multiple(true))]
pub(super) struct Client {
    /// A file or folder of CRDs whose types `setpoint gen types` wrote; may be repeated
    #[arg(long = "crd", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The module that the types of those CRDs are in
    #[arg(long, value_name = "PATH", default_value = "crate::api")]
    types: String,

    /// A type of your own: GROUP/VERSION/PLURAL[:cluster]=RUST::PATH; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<ClientKind>,

    #[command(flatten)]
    output: Output,
}

impl Client {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut definitions = Vec::new();
        for file in &self.files {
            definitions.extend(from_path(file)?);
        }
        let mut clientset = Clientset::new().definitions(&definitions, &self.types);
        for kind in self.kinds {
            clientset = clientset.kind(kind);
        }
        self.output.write(&format(&clientset.render()?, self.output.out.as_deref()))
    }
}
