//! What `kube::runtime` exports, read off its source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::table::{Item, list};
use crate::workspace::cargo;

/// Each public module, with the files that it is in, and whether the file itself is one: of another, only what is in `pub mod`.
const FILES: [(&str, &str, bool); 10] = [
    ("controller/mod.rs", "controller", true),
    ("events.rs", "events", true),
    ("finalizer.rs", "finalizer", true),
    ("reflector/mod.rs", "reflector", true),
    ("reflector/store.rs", "reflector", true),
    ("scheduler.rs", "scheduler", true),
    ("utils/mod.rs", "utils", true),
    ("utils/predicate.rs", "utils", false),
    ("wait.rs", "wait", true),
    ("watcher.rs", "watcher", true),
];

/// What needs a row, and what may have one.
#[derive(Default)]
pub(super) struct Source {
    items: BTreeSet<Item>,
    methods: BTreeSet<Item>,
}

/// The source of the crate that the benchmarks are built with.
pub(super) fn source(root: &Path) -> Result<Source> {
    let folder = folder(root)?;
    let mut source = Source::default();
    for (file, module, is_public) in FILES {
        let path = folder.join("src").join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        source.read(&text, module, is_public);
    }
    Ok(source)
}

fn folder(root: &Path) -> Result<PathBuf> {
    let output = cargo(root).args(["metadata", "--format-version=1", "--locked"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == "kube-runtime").context("no kube-runtime")?;
    let manifest = Path::new(package["manifest_path"].as_str().context("a manifest")?);
    Ok(manifest.parent().context("a folder")?.to_owned())
}

pub(super) fn compare(rows: &BTreeSet<Item>, source: &Source) -> Result<()> {
    ensure!(source.items.len() > 80, "only {} items are exported", source.items.len());
    let missing = list(source.items.difference(rows));
    let extra = list(rows.difference(&source.items).filter(|row| !source.methods.contains(row)));
    ensure!(missing.is_empty() && extra.is_empty(), "no row: [{missing}]; no item: [{extra}]");
    Ok(())
}

impl Source {
    /// Reads a file that rustfmt has formatted: the methods of `Controller` need rows, those of other types may have them.
    fn read(&mut self, text: &str, module: &str, is_public: bool) {
        let (mut is_named, mut exported) = (false, None::<String>);
        for line in text.lines().take_while(|line| !line.starts_with("mod test")) {
            if line == "}" {
                is_named = false;
            }
            let is_inner = line.starts_with("pub mod ") && line.ends_with('{');
            is_named |= is_inner || (line.starts_with("impl") && line.contains(" Controller<K>"));
            if line.starts_with("pub use ") && is_public {
                exported = Some(String::new());
            }
            if let Some(mut names) = exported.take() {
                names.push_str(line);
                if line.ends_with(';') {
                    self.items.extend(reexported(&names).map(|name| Item::new(module, name)));
                } else {
                    exported = Some(names);
                }
                continue;
            }
            let inner = line.strip_prefix("    ");
            let Some(name) = name_in(inner.unwrap_or(line)) else { continue };
            let needs_row = if inner.is_some() { is_named } else { is_public };
            let to = if needs_row { &mut self.items } else { &mut self.methods };
            to.insert(Item::new(module, name));
        }
    }
}

fn name_in(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub ")?;
    let item = item.strip_prefix("async ").unwrap_or(item);
    let mut words = ["fn ", "struct ", "enum ", "trait ", "type ", "const "].iter();
    let name = words.find_map(|word| item.strip_prefix(word))?;
    name.split(|next: char| !next.is_alphanumeric() && next != '_').next()
}

/// The names in `pub use a::{b, c::D as E};`. A module that is exported again is no item.
fn reexported(line: &str) -> impl Iterator<Item = &str> {
    let names = line.trim_start_matches("pub use ").split(['{', '}', ',', ';']).map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !name.ends_with("::"));
    let names = names.filter_map(|name| name.rsplit(" as ").next()?.rsplit("::").next());
    names.filter(|name| *name != "predicates")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_methods_and_what_is_exported_again_are_found() {
        let text = "pub use self::{\n    a::B,\n    c::{D as E, F},\n};\npub fn g<K>() {\n    pub fn h() {}\n}\nimpl<K> Controller<K>\n\
                    where\n{\n    pub fn owns() {}\n}\nimpl I {\n    pub fn j() {}\n}\npub mod k {\n    pub struct L;\n}\n\
                    mod tests {\npub fn m() {}\n";
        let mut source = Source::default();
        source.read(text, "n", true);
        assert_eq!(list(source.items.iter()), "n B, n E, n F, n L, n g, n owns");
        assert_eq!(list(source.methods.iter()), "n h, n j");
    }
}
