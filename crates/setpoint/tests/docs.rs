//! Every code block of the guides is in a file that is compiled and tested.

use std::fs;
use std::path::{Path, PathBuf};

const GUIDES: [&str; 4] =
    ["first-controller.md", "from-sample-controller.md", "from-kube-rs.md", "how-the-loop-works.md"];

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
                // Commands are run by `cargo xtask real --only samples`.
                "sh" => {}
                other => panic!("{guide}: a block in {other:?} is checked by nobody"),
            }
        }
    }
    assert!(checked >= 8, "only {checked} blocks");
}

#[test]
fn links_of_the_guides_lead_somewhere() {
    for guide in GUIDES {
        let text = fs::read_to_string(root().join("docs").join(guide)).unwrap();
        for (position, _) in text.match_indices("](") {
            let rest = &text[position + 2..];
            let target = &rest[..rest.find(')').expect("a link has an end")];
            if !target.starts_with("http") {
                assert!(root().join("docs").join(target).exists(), "{guide}: {target} is not there");
            }
        }
    }
}
