//! What belongs to which type, read off its blocks in the source.

use std::collections::{BTreeMap, BTreeSet};

/// The methods, variants, fields and constants of each type.
#[derive(Default)]
pub(crate) struct Members(BTreeMap<String, BTreeSet<String>>);

/// A block at the left margin, and what in it can be named from outside.
struct Block {
    of: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// What is marked `pub`.
    Inherent,
    /// All of it.
    Trait,
    Enum,
    Struct,
}

impl Members {
    /// Those of files that rustfmt has formatted.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a str>) -> Members {
        let mut members = Members::default();
        for file in files {
            let (mut block, mut head) = (None::<Block>, String::new());
            for line in file.lines() {
                if line == "}" {
                    block = None;
                } else if let Some(block) = &block {
                    members.add(block, line);
                } else if !head.is_empty() || is_head(line) {
                    head = format!("{head} {}", line.trim());
                    if line.ends_with('{') {
                        block = Block::parse(head.trim());
                    }
                    if line.ends_with(['{', '}', ';']) {
                        head.clear();
                    }
                }
            }
        }
        members
    }

    /// Whether a type has a member of this name.
    pub(crate) fn has(&self, of: &str, name: &str) -> bool {
        self.0.get(of).is_some_and(|members| members.contains(name))
    }

    fn add(&mut self, block: &Block, line: &str) {
        let member = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '));
        if let Some(name) = member.and_then(|member| block.name_in(member)) {
            self.0.entry(block.of.clone()).or_default().insert(name.to_owned());
        }
    }
}

fn is_head(line: &str) -> bool {
    let is_impl = line.strip_prefix("impl").is_some_and(|rest| rest.starts_with([' ', '<']));
    is_impl || ["pub struct ", "pub enum ", "pub trait "].iter().any(|start| line.starts_with(start))
}

impl Block {
    fn parse(head: &str) -> Option<Block> {
        for (start, kind) in
            [("pub struct ", Kind::Struct), ("pub enum ", Kind::Enum), ("pub trait ", Kind::Trait)]
        {
            if let Some(rest) = head.strip_prefix(start) {
                return Some(Block { of: word(rest).to_owned(), kind });
            }
        }
        let rest = after_generics(head.strip_prefix("impl")?).trim_start();
        let what = rest.split(" where ").next()?;
        let (kind, of) = match what.split_once(" for ") {
            Some((_, of)) => (Kind::Trait, of),
            None => (Kind::Inherent, what),
        };
        let path = of.split(['<', ' ']).next()?;
        Some(Block { of: word(path.rsplit("::").next()?).to_owned(), kind })
    }

    fn name_in<'a>(&self, member: &'a str) -> Option<&'a str> {
        let public = member.strip_prefix("pub ");
        match self.kind {
            Kind::Enum => Some(word(member)).filter(|name| name.starts_with(char::is_uppercase)),
            Kind::Struct => public.and_then(|field| field.split_once(':')).map(|(name, _)| name),
            Kind::Inherent => named(public?),
            Kind::Trait => named(member),
        }
    }
}

/// The name after `fn`, `const` or `type`.
fn named(item: &str) -> Option<&str> {
    let item = item.strip_prefix("const fn ").map_or(item, |_| &item["const ".len()..]);
    let item = item.strip_prefix("async ").unwrap_or(item);
    let name = ["fn ", "const ", "type "].iter().find_map(|keyword| item.strip_prefix(keyword))?;
    Some(word(name)).filter(|name| !name.is_empty())
}

/// The identifier at the start.
fn word(text: &str) -> &str {
    let end = text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len());
    &text[..end]
}

/// What comes after `<…>`, if it begins so.
fn after_generics(text: &str) -> &str {
    let mut depth = 0;
    for (at, next) in text.char_indices() {
        match next {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if next == '>' { &text[at + 1..] } else { text };
        }
    }
    text
}

#[test]
fn a_member_is_found_at_its_own_type_only() {
    let file = "pub struct One<T> {\n    pub field: T,\n    hidden: T,\n}\n\nimpl<F: Fn() -> u8> One<F>\nwhere\n    F: Send,\n{\n    \
                pub const fn make() {}\n    fn secret() {}\n}\n\npub enum Two {\n    Variant,\n}\n\nimpl fmt::Display for Two {\n    \
                fn fmt() {}\n}\n\npub struct Three;\n\nimpl Three {\n    pub async fn wait() {\n        pub fn inner() {}\n    }\n}\n";
    let members = Members::of([file]);
    for (of, name) in
        [("One", "field"), ("One", "make"), ("Two", "Variant"), ("Two", "fmt"), ("Three", "wait")]
    {
        assert!(members.has(of, name), "{of}::{name}");
    }
    for (of, name) in
        [("One", "hidden"), ("One", "secret"), ("Two", "make"), ("Three", "make"), ("Three", "inner")]
    {
        assert!(!members.has(of, name), "{of}::{name}");
    }
}
