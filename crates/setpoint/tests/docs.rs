//! Every code block of the guides is in a file that is compiled and tested.

#[path = "docs/members.rs"]
mod members;
#[expect(dead_code, clippy::print_stdout, reason = "it is there to be compiled")]
#[path = "docs/shop.rs"]
mod shop;

use std::fs;
use std::path::{Path, PathBuf};

use self::members::Members;

const GUIDES: [&str; 10] = [
    "apply.md",
    "first-controller.md",
    "from-sample-controller.md",
    "from-controller-runtime.md",
    "from-kube-rs.md",
    "how-the-loop-works.md",
    "manager.md",
    "metrics.md",
    "promises.md",
    "webhook-certificates.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Language and text of each block.
fn blocks(text: &str) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), None::<(String, String)>);
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(block)) => found.push(block),
            (None, Some((language, body))) => open = Some((language, format!("{body}{line}\n"))),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    found
}

fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there").map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn rust_blocks_are_excerpts_of_the_examples() {
    let mut files = Vec::new();
    sources(&root().join("examples"), &mut files);
    sources(&root().join("crates/setpoint/tests/docs"), &mut files);
    let mut of_kube_rs = Vec::new();
    sources(&root().join("bench/kube-rs/src"), &mut of_kube_rs);
    let mut checked = 0;
    for guide in GUIDES {
        let text = fs::read_to_string(root().join("docs").join(guide)).unwrap();
        for (language, block) in blocks(&text) {
            match language.as_str() {
                "rust" => {
                    let is_there = files.iter().any(|file| file.contains(&block));
                    assert!(is_there, "{guide}: no file of examples/ has this block:\n{block}");
                    checked += 1;
                }
                // What is compared with: `cargo xtask real --only guides` compiles it.
                "go" => {
                    let operator = root().join("xtask/peers/guides/greeting.go");
                    let is_there = fs::read_to_string(operator).unwrap().contains(&block);
                    assert!(
                        is_there,
                        "{guide}: xtask/peers/guides/greeting.go does not have this block:\n{block}"
                    );
                }
                "rust kube-rs" => {
                    let is_there = of_kube_rs.iter().any(|file| file.contains(&block));
                    assert!(is_there, "{guide}: no file of bench/kube-rs has this block:\n{block}");
                }
                "toml" => {
                    let manifest = root().join("examples/opentelemetry/Cargo.toml");
                    let is_there = fs::read_to_string(manifest).unwrap().contains(&block);
                    assert!(is_there, "{guide}: examples/opentelemetry has no such dependencies:\n{block}");
                }
                // Commands are run by `cargo xtask real --only samples`.
                "sh" => {}
                other => panic!("{guide}: a block in {other:?} is checked by nobody"),
            }
        }
    }
    assert!(checked >= 8, "only {checked} blocks");
}

/// The promises of `promises.md`, each with the names of its tests.
fn promises(text: &str) -> Vec<(String, Vec<String>)> {
    let kept = text.split("\n## ").filter(|section| !section.starts_with("What is not promised"));
    let items = kept.flat_map(|section| section.split("\n- **").skip(1));
    let promises = items.map(|item| {
        let promise = item.split("**").next().unwrap_or_default().to_owned();
        let item = item.split("\n\n").next().unwrap_or_default();
        let tests = item.split("Tests:").nth(1).unwrap_or_default();
        (promise, tests.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    });
    promises.collect()
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let text = fs::read_to_string(root().join("docs/promises.md")).unwrap();
    let promises = promises(&text);
    assert!(promises.len() >= 20, "only {} promises", promises.len());
    for (promise, tests) in promises {
        assert!(!tests.is_empty(), "no test holds this promise: {promise}");
        for test in tests {
            let is_there = |file: &String| {
                let found = file.find(&format!("fn {test}()"));
                // The line before it, or the one before that, says that it is a test.
                found.is_some_and(|at| file[..at].lines().rev().take(3).any(|line| line.contains("test")))
            };
            assert!(files.iter().any(is_there), "{promise}: there is no test {test}");
        }
    }
}

/// The names in backquotes in the second column of the tables of peers' items.
fn names_of_ours(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let ours = rows.filter_map(|row| row.split(" | ").nth(1).map(str::to_owned));
    let names = ours.flat_map(|ours| {
        ours.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>().into_iter()
    });
    names.collect()
}

/// `kube`'s own, and what is no name of an item.
const OTHERS: [&str; 19] = [
    "Api",
    "Arc",
    "AsReconciler",
    "DeleteParams",
    "Err",
    "GetParams",
    "ListParams",
    "MergeFromWithOptimisticLock",
    "None",
    "Ok",
    "Patch",
    "PatchParams",
    "PostParams",
    "Selector",
    "Serialize",
    "SubResourceClient",
    "SyncingSource",
    "await_condition",
    "resourceVersion",
];

#[test]
fn what_the_tables_of_peers_name_is_there() {
    let mut files = Vec::new();
    sources(&root().join("crates/setpoint/src"), &mut files);
    sources(&root().join("crates/setpoint-env/src"), &mut files);
    let members = Members::of(files.iter().map(String::as_str));
    let is_item = |name: &str| {
        let words = ["fn", "struct", "enum", "trait", "const", "type"];
        let defined = words.iter().map(|word| format!("pub {word} {name}"));
        let defined: Vec<String> = defined.chain([format!("pub async fn {name}")]).collect();
        files.iter().any(|file| {
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
            let has = |text: &str| file.match_indices(text).any(|(at, _)| ends(&file[at + text.len()..]));
            defined.iter().any(|text| has(text))
        })
    };
    let is_there = |parts: &[&str]| match parts {
        [.., of, name] if of.starts_with(char::is_uppercase) => members.has(of, name),
        [.., name] => is_item(name),
        [] => false,
    };
    let mut checked = 0;
    for guide in ["from-controller-runtime.md", "from-kube-rs.md"] {
        for name in names_of_ours(&fs::read_to_string(root().join("docs").join(guide)).unwrap()) {
            let is_word = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
            let parts: Vec<&str> = name.split("::").collect();
            if !parts.iter().all(|part| is_word(part))
                || parts[0] == "kube"
                || OTHERS.contains(&parts[0])
                || name == "managedFields"
            {
                continue;
            }
            assert!(is_there(&parts), "{guide}: there is no `{name}`");
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} names");
}

#[test]
fn the_crates_that_the_front_page_names_have_the_versions_of_the_workspace() {
    let page = include_str!("../src/lib.rs");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let (_, block) = page.split_once("//! ```toml\n").expect("the page names crates");
    let (block, _) = block.split_once("//! ```").unwrap();
    let lines: Vec<&str> = block.lines().map(|line| line.trim_start_matches("//! ")).collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        let name = line.split(' ').next().unwrap();
        let ours = manifest.lines().find(|ours| ours.starts_with(&format!("{name} ="))).expect(name);
        assert_eq!(version(line), version(ours), "{name}");
    }
}
