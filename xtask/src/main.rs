//! Development tasks of this repository: `cargo xtask --help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]
#![allow(clippy::disallowed_methods, reason = "these tasks measure and drive real processes in real time")]

mod bench;
mod budget;
mod counts;
mod explore;
mod fuzz;
mod kinds;
mod kubeconfig;
mod load;
mod real;
mod soak;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Development tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Measure our figures beside the peers' in one run.
    Bench(Box<bench::Bench>),
    /// Measure a release build and its program, and compare with bench/budget.txt.
    Budget(budget::Budget),
    /// Count the instructions of the hot paths, and compare with bench/counts.txt (needs valgrind).
    Counts(counts::Counts),
    /// Try every fault at every point of our own controllers.
    Explore(explore::Explore),
    /// Run inputs that nobody thought of, and keep those that reach new code (installs cargo-fuzz).
    Fuzz(fuzz::Fuzz),
    /// Generate the table of built-in kinds and its test vectors (needs Go).
    Kinds(kinds::Kinds),
    /// Put load on the durable store and measure: throughput, many objects, a soak.
    Load(load::Load),
    /// Run the suites against real components: kubectl, client-go, kube-apiserver.
    Real(real::Real),
    /// Run what gets better with time (kills, power cuts, attacks, random properties) for as long as you say.
    Soak(soak::Soak),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Bench(options) => bench::run(&options),
        Task::Budget(options) => budget::run(&options),
        Task::Counts(options) => counts::run(&options),
        Task::Explore(options) => explore::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Kinds(options) => kinds::run(&options),
        Task::Load(options) => load::run(&options),
        Task::Real(options) => real::run(&options),
        Task::Soak(options) => soak::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Task;

    #[test]
    fn the_options_of_all_tasks_go_together() {
        Task::command().debug_assert();
    }
}
