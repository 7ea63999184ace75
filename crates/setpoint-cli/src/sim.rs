//! `setpoint sim`: faults for controllers in any language.

mod child;
mod front;
mod log;
mod proxy;
mod upstream;

use clap::{Args, Subcommand};
use setpoint_env::Env;

/// Test a controller in any language with faults between it and an API server
#[derive(Args)]
pub(crate) struct Sim {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Proxy(proxy::Proxy),
}

impl Sim {
    pub(crate) fn run(self, env: &Env) -> anyhow::Result<()> {
        match self.command {
            Command::Proxy(proxy) => proxy.run(env),
        }
    }
}
