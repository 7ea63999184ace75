//! The command `setpoint`.

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod cluster;
mod dashboard;
mod demo;
#[cfg(test)]
mod docs;
mod envtest;
mod etcd;
mod etcd_cluster;
mod r#gen;
mod kube_apiserver;
mod kubeconfig;
mod listen;
mod logging;
mod new;
mod open_files;
mod parent;
mod service_address;
mod serving;
mod signals;
mod sim;
mod store;
mod up;
mod yaml;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use setpoint_env::Env;

/// Requests are many small pieces of memory that one thread takes and another gives back. `.cargo/config.toml` has the
/// settings that keep it small at rest.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Write and test Kubernetes controllers, with a Kubernetes API server in one process
#[derive(Parser)]
#[command(name = "setpoint", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::New),
    Gen(r#gen::Gen),
    Demo(demo::Demo),
    Up(up::Up),
    Envtest(envtest::Envtest),
    Cluster(cluster::ClusterCommand),
    Sim(sim::Sim),
    Kubeconfig(kubeconfig::KubeconfigCommand),
    Store(store::Store),
}

fn main() -> ExitCode {
    let env = Env::system();
    let started = env.instant();
    // One program, several names.
    let name = std::env::args_os().next().map(PathBuf::from);
    match name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str) {
        Some("kube-apiserver") => return kube_apiserver::main(&env),
        Some("etcd") => return etcd::main(&env),
        _ => {}
    }
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::New(new) => new.run(),
        Command::Gen(generate) => generate.run(),
        Command::Demo(demo) => demo.run(&env, started),
        Command::Up(up) => up.run(&env, started),
        Command::Envtest(envtest) => envtest.run(),
        Command::Cluster(command) => command.run(&env),
        Command::Sim(sim) => sim.run(&env),
        Command::Kubeconfig(command) => command.run(&env),
        Command::Store(store) => store.run(&env),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "setpoint: {}", setpoint::in_words(error.as_ref()));
            if error.is::<serving::StoreFailed>() {
                ExitCode::from(serving::StoreFailed::CODE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
