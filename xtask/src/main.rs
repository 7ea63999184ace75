//! Development tasks of this repository: `cargo xtask --help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]
#![allow(clippy::disallowed_methods, reason = "these tasks measure and drive real processes in real time")]

mod bench;
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
    /// Measure Setpoint and its peers in one run.
    Bench(Box<bench::Bench>),
    /// Count the instructions of the hot paths, and compare with bench/counts.txt (needs valgrind).
    Counts(counts::Counts),
    /// Inject every fault at every point of our own controllers.
    Explore(explore::Explore),
    /// Run the fuzz targets (installs cargo-fuzz).
    Fuzz(fuzz::Fuzz),
    /// Generate the table of built-in kinds and its test vectors (needs Go).
    Kinds(kinds::Kinds),
    /// Put load on a server and measure it: throughput, many objects, kills, histories, attacks.
    Load(load::Load),
    /// Run the suites against real components: kubectl, client-go, kube-apiserver.
    Real(real::Real),
    /// Run the randomized suites (kills, power cuts, attacks, property tests) for as long as you say.
    Soak(soak::Soak),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Bench(options) => bench::run(&options),
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
#[path = "../../crates/setpoint-cli/src/docs/pages.rs"]
#[allow(dead_code, reason = "the program's own tests use all of it")]
mod pages;

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    use super::Task;
    use super::pages::pages;

    #[test]
    fn the_options_of_all_tasks_go_together() {
        Task::command().debug_assert();
    }
    #[test]
    fn the_documentation_names_tasks_and_options_that_exist() {
        let (mut wrong, mut checked) = (Vec::new(), 0);
        for shown in pages()
            .iter()
            .filter(|page| !page.path.ends_with("CHANGELOG.md"))
            .flat_map(|page| page.commands())
        {
            let Some(arguments) = shown.words.strip_prefix(&["cargo".to_owned(), "xtask".to_owned()]) else {
                continue;
            };
            checked += 1;
            if let Err(error) =
                Task::try_parse_from(std::iter::once(&"cargo xtask".to_owned()).chain(arguments))
            {
                let may_be_left_out = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                ) && !shown.is_whole;
                if error.kind() != ErrorKind::DisplayHelp && !may_be_left_out {
                    wrong.push(format!("{}\n{error}", shown.place));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        assert!(checked > 30, "only {checked} commands");
    }
}
