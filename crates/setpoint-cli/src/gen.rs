//! `setpoint gen`: code and manifests from one another.

mod client;
mod crd;
mod input;
mod output;
mod rbac;
mod recipe;
mod types;

use clap::{Args, Subcommand};

pub(crate) use self::input::read_text;
pub(crate) use self::output::{format, put, tell};

/// Generate types, CRDs, clients and RBAC roles
#[derive(Args)]
pub(crate) struct Gen {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Types(types::Types),
    Crd(crd::Crd),
    Client(client::Client),
    Rbac(rbac::Rbac),
}

impl Gen {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Types(types) => types.run(),
            What::Crd(crd) => crd.run(),
            What::Client(client) => client.run(),
            What::Rbac(rbac) => rbac.run(),
        }
    }
}
