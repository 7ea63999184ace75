//! The pages of the documentation: their links, and the commands that they show.
//!
//! The tests of `xtask` include this file, too: only they have the options of `cargo xtask`.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("SECURITY.md").exists()).expect("the crate is in the workspace")
}

/// One page.
pub(crate) struct Page {
    /// From the folder of the workspace.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A command line of a page.
pub(crate) struct Shown {
    /// `docs/cluster.md: setpoint up …`, for messages.
    pub(crate) place: String,
    pub(crate) words: Vec<String>,
    /// In a block to copy, not in a sentence that may leave arguments out.
    pub(crate) is_whole: bool,
}

/// Adds the pages below a folder. Templates are not pages yet, and generated projects are read where they come from.
fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 5] = ["target", "node_modules", "templates", "projects", "testdata"];
    for entry in fs::read_dir(root().join(folder)).expect("a folder can be read") {
        let entry = entry.expect("a folder can be read");
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        let name = name.to_string_lossy();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                find(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// Every page of the repository.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    find(Path::new(""), &mut paths);
    paths.sort();
    let read =
        |path: PathBuf| Page { text: fs::read_to_string(root().join(&path)).expect("it is text"), path };
    paths.into_iter().map(read).collect()
}

impl Page {
    /// The lines outside of blocks of code, and the blocks with their languages.
    fn parts(&self) -> (Vec<&str>, Vec<(&str, String)>) {
        let (mut prose, mut blocks) = (Vec::new(), Vec::new());
        let mut open: Option<(&str, String)> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => open = Some((language, String::new())),
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some((language, text))) => open = Some((language, format!("{text}{line}\n"))),
                (None, None) => prose.push(line),
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.path.display());
        (prose, blocks)
    }

    /// The targets of its links that are no URLs.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose: String = self.parts().0.join("\n").split('`').step_by(2).collect();
        let mut found: Vec<String> = prose
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap_or_default().to_owned())
            .collect();
        // `[name]: target`
        let definitions = prose.lines().filter(|line| line.starts_with('['));
        found.extend(
            definitions.filter_map(|line| line.split_once("]: ")).map(|(_, target)| target.to_owned()),
        );
        found.retain(|target| !target.contains("://") && !target.starts_with("mailto:"));
        found
    }

    /// The anchors of its headings, as GitHub makes them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for line in self.parts().0 {
            let Some((_, heading)) = line.strip_prefix('#').and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let kept = heading.to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let same = anchors.iter().filter(|other| **other == anchor).count();
            anchors.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
        }
        anchors
    }

    /// The commands in blocks to copy, and between backquotes.
    pub(crate) fn commands(&self) -> Vec<Shown> {
        let (prose, blocks) = self.parts();
        let mut found = Vec::new();
        let mut keep = |text: &str, is_whole| {
            for words in simple_commands(text) {
                let place = format!("{}: {}", self.path.display(), words.join(" "));
                found.push(Shown { place, words, is_whole });
            }
        };
        for (language, text) in &blocks {
            let text = text.replace("\\\n", " ");
            for line in text.lines().map(str::trim_start) {
                match *language {
                    "console" => {
                        if let Some(line) = line.strip_prefix("$ ") {
                            keep(line, true);
                        }
                    }
                    "sh" | "" | "make" => keep(line, true),
                    _ => {}
                }
            }
        }
        for span in prose.join("\n").split('`').skip(1).step_by(2) {
            keep(&span.replace('\n', " "), false);
        }
        found
    }
}

/// `[--data DIR | --kubeconfig PATH]` becomes `--data DIR`, and `memory|redb` becomes `memory`.
fn first_choice(text: &str) -> String {
    let mut chosen = text.to_owned();
    while let Some(start) = chosen.find(" [") {
        let mut depth = 0_usize;
        let inner = chosen[start + 1..].char_indices().find(|(_, c)| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some((length, _)) = inner else { break };
        let choice = &chosen[start + 2..start + 1 + length];
        let choice = choice.split(" | ").next().unwrap_or_default().to_owned();
        chosen.replace_range(start + 1..start + 2 + length, &choice);
    }
    let words = chosen.split(' ').map(|word| match word.split_once('|') {
        Some((first, rest)) if !first.is_empty() && !rest.is_empty() && !word.contains('\'') => first,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The commands of a line of a shell, without its variables, redirections and comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let line = first_choice(line);
    let mut commands = vec![Vec::new()];
    let mut nested = Vec::new();
    let mut rest = line.chars().peekable();
    let mut word: Option<String> = None;
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' if word.as_ref().is_none_or(|word| !word.contains('\\')) => {
                let word = word.get_or_insert_default();
                let mut quoted = String::new();
                for inner in rest.by_ref().take_while(|inner| *inner != c) {
                    quoted.push(inner);
                }
                // KUBEBUILDER_ASSETS="$(shell setpoint envtest)"
                if let Some(inner) = quoted.strip_prefix("$(").and_then(|inner| inner.strip_suffix(')')) {
                    nested.extend(simple_commands(inner.trim_start_matches("shell ")));
                }
                word.push_str(&quoted);
            }
            '$' if rest.peek() == Some(&'(') => {
                let mut depth = 0_usize;
                let mut inner = String::new();
                for c in rest.by_ref() {
                    match c {
                        '(' => depth += 1,
                        ')' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                    inner.push(c);
                }
                nested.extend(simple_commands(inner[1..].trim_start_matches("shell ")));
                word.get_or_insert_default().push('X');
            }
            '#' if word.is_none() => break,
            ' ' | '|' | ';' | '&' => {
                commands.last_mut().expect("there is one").extend(word.take());
                if c != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    commands.last_mut().expect("there is one").extend(word);
    let mut found: Vec<Vec<String>> = commands.into_iter().map(of_the_program).chain(nested).collect();
    found.retain(|words| words.len() > 1);
    found
}

/// Without what a shell takes for itself, and without dots that stand for more; `N` is a number.
fn of_the_program(words: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut is_redirected = false;
    for word in words {
        let is_variable = kept.is_empty() && word.contains('=');
        if is_variable || word == "…" || word == "..." || std::mem::take(&mut is_redirected) {
            continue;
        }
        if word.starts_with(['<', '>']) || word.starts_with("2>") {
            is_redirected = word.ends_with('>') || word.ends_with('<');
            continue;
        }
        let is_number = word.len() == 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
        kept.push(if is_number { "1".to_owned() } else { word });
    }
    kept
}
