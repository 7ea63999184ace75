//! What the documentation says about this program, and where its links lead, is so.

mod pages;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use self::pages::{Page, Shown, pages, root};
use super::Cli;

/// What is wrong, one a line.
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let pages: BTreeMap<PathBuf, Page> = pages()
        .into_iter()
        .map(|page| (root().join(&page.path).canonicalize().expect("it is there"), page))
        .collect();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (path, page) in &pages {
        for link in page.links() {
            checked += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if target.is_empty() {
                path.clone()
            } else {
                let folder = path.parent().expect("a page is in a folder");
                match folder.join(target).canonicalize() {
                    Ok(target) => target,
                    Err(_) => {
                        wrong.push(format!("{}: {link}: there is no such file", page.path.display()));
                        continue;
                    }
                }
            };
            let has_anchor =
                pages.get(&target).is_some_and(|page| page.anchors().iter().any(|one| one == anchor));
            if !anchor.is_empty() && !has_anchor {
                wrong.push(format!("{}: {link}: there is no such heading", page.path.display()));
            }
        }
    }
    assert_none(&wrong);
    assert!(checked > 100, "only {checked} links");
}

/// The commands of all pages. The changelog tells of what was, too.
fn commands() -> Vec<Shown> {
    let pages = pages().into_iter().filter(|page| page.path != Path::new("CHANGELOG.md"));
    pages.flat_map(|page| page.commands()).collect()
}

/// Whether the program takes these arguments. A sentence may name a command without its arguments.
fn takes(shown: &Shown, arguments: &[String]) -> Result<(), String> {
    let program = std::iter::once("setpoint").chain(arguments.iter().map(String::as_str));
    let Err(error) = Cli::try_parse_from(program) else { return Ok(()) };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !shown.is_whole =>
        {
            Ok(())
        }
        _ => Err(format!("{}\n    {}", shown.place, error.to_string().replace('\n', "\n    "))),
    }
}

#[test]
fn commands_of_setpoint_are_taken() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for shown in commands().iter().filter(|shown| shown.words[0] == "setpoint") {
        checked += 1;
        wrong.extend(takes(shown, &shown.words[1..]).err());
    }
    assert_none(&wrong);
    assert!(checked > 60, "only {checked} commands");
}

/// The packages of the workspace, with their folders.
fn packages() -> BTreeMap<String, PathBuf> {
    let mut folders = vec![root().join("bench"), root().join("xtask")];
    for parent in ["bench", "crates", "crates/setpoint-codegen/tests/projects", "examples"] {
        let entries = fs::read_dir(root().join(parent)).into_iter().flatten();
        folders.extend(entries.map(|entry| entry.expect("a folder can be read").path()));
    }
    let name = |folder: &PathBuf| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
        Some(name.trim_end_matches('"').to_owned())
    };
    folders.into_iter().filter_map(|folder| Some((name(&folder)?, folder))).collect()
}

/// Whether a package has this target or feature.
fn has(folder: &Path, option: &str, name: &str) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let is_named = manifest.contains(&format!("name = \"{name}\""));
    let in_folder = |targets: &str| {
        let targets = folder.join(targets);
        targets.join(format!("{name}.rs")).exists() || targets.join(name).join("main.rs").exists()
    };
    match option {
        "--example" => is_named || in_folder("examples"),
        "--test" => is_named || in_folder("tests"),
        "--bin" => is_named || in_folder("src/bin"),
        _ => manifest.lines().any(|line| line.starts_with(&format!("{name} = "))),
    }
}

#[test]
fn what_cargo_is_told_to_run_exists() {
    let packages = packages();
    // Guides speak of a project that `setpoint new` has made, too.
    let project = root().join("crates/setpoint-codegen/templates/project");
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for shown in commands().iter().filter(|shown| shown.words[0] == "cargo") {
        let subcommand = shown.words[1].as_str();
        if !matches!(subcommand, "run" | "test" | "build" | "bench" | "clippy") {
            continue;
        }
        checked += 1;
        let (cargo, program) = match shown.words.iter().position(|word| word == "--") {
            Some(end) => (&shown.words[..end], &shown.words[end + 1..]),
            None => (&shown.words[..], &[][..]),
        };
        let value =
            |option: &str| cargo.iter().position(|word| word == option).and_then(|at| cargo.get(at + 1));
        let package = value("-p");
        if let Some(package) = package
            && !packages.contains_key(package)
        {
            wrong.push(format!("{}: there is no package {package}", shown.place));
            continue;
        }
        for option in ["--example", "--test", "--bin", "--features"] {
            let Some(name) = value(option) else { continue };
            let of_package =
                |(other, _): &(&String, &PathBuf)| package.is_none_or(|package| package == *other);
            let mut folders = packages.iter().filter(of_package).map(|(_, folder)| folder).chain([&project]);
            if !folders.any(|folder| has(folder, option, name)) {
                wrong.push(format!("{}: {option} {name} is not there", shown.place));
            }
        }
        let is_setpoint =
            package.is_none_or(|package| package == "setpoint-cli") && value("--example").is_none();
        if subcommand == "run" && is_setpoint && !program.is_empty() {
            wrong.extend(takes(shown, program).err());
        }
    }
    assert_none(&wrong);
    assert!(checked > 15, "only {checked} commands");
}
