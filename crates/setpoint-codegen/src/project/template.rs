//! Templates: files about a kind `Widget`, with lines that say what depends on what.

use std::collections::BTreeMap;

/// The files of every project that are made from a template alone, and their templates.
macro_rules! files {
    ($($path:literal from $file:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($path, include_str!(concat!("../../templates/project/", $file)))),*];
    };
}

files! {
    ".dockerignore" from "dockerignore",
    ".github/workflows/ci.yaml" from "github/ci.yaml",
    ".gitignore" from "gitignore",
    "Cargo.toml" from "Cargo.toml.in",
    "Dockerfile" from "Dockerfile",
    "README.md" from "README.md",
    "config/crd/kustomization.yaml" from "config/crd/kustomization.yaml",
    "config/default/kustomization.yaml" from "config/default/kustomization.yaml",
    "config/manager/deployment.yaml" from "config/manager/deployment.yaml",
    "config/manager/kustomization.yaml" from "config/manager/kustomization.yaml",
    "config/manager/namespace.yaml" from "config/manager/namespace.yaml",
    "config/rbac/kustomization.yaml" from "config/rbac/kustomization.yaml",
    "config/webhook/certificate.yaml" from "config/webhook/certificate.yaml",
    "config/webhook/kustomization.yaml" from "config/webhook/kustomization.yaml",
    "config/webhook/service.yaml" from "config/webhook/service.yaml",
    "config/webhook/webhooks.yaml" from "config/webhook/webhooks.yaml",
    "examples/manifests.rs" from "examples/manifests.rs",
    "src/children.rs" from "src/children.rs",
    "src/controller.rs" from "src/controller.rs",
    "src/lib.rs" from "src/lib.rs",
    "src/main.rs" from "src/main.rs",
    "src/webhook.rs" from "src/webhook.rs",
    "tests/reconcile.rs" from "tests/reconcile.rs",
    "tests/webhook.rs" from "tests/webhook.rs",
}

/// The kind itself, unless there is a CRD.
pub(super) const TYPES: &str = include_str!("../../templates/project/src/api.rs");
/// An object of it.
pub(super) const SAMPLE: &str = include_str!("../../templates/project/config/samples/widget.yaml");

/// The files of a project with or without webhooks and children.
pub(super) fn files(
    has_webhook: bool,
    has_children: bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_wanted = move |path: &str| {
        (has_webhook || !path.contains("webhook")) && (has_children || path != "src/children.rs")
    };
    FILES.iter().copied().filter(move |(path, _)| is_wanted(path))
}

/// What templates are filled in with.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    /// The longest first, so that no word is taken for a part of another.
    words: Vec<(&'static str, String)>,
    flags: BTreeMap<&'static str, bool>,
    blocks: BTreeMap<&'static str, String>,
    values: BTreeMap<String, String>,
}

impl Template {
    pub(super) fn new(words: &[(&'static str, String)]) -> Template {
        let mut words = words.to_vec();
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        Template { words, ..Template::default() }
    }

    /// What `%if name` asks.
    pub(super) fn flag(mut self, name: &'static str, is_set: bool) -> Template {
        self.flags.insert(name, is_set);
        self
    }

    /// What stands for a line `%name`.
    pub(super) fn block(mut self, name: &'static str, text: String) -> Template {
        self.blocks.insert(name, text);
        self
    }

    /// What stands for `{{name}}`.
    pub(super) fn value(mut self, name: &str, text: String) -> Template {
        self.values.insert(format!("{{{{{name}}}}}"), text);
        self
    }

    /// Replaces the words of the templates.
    pub(super) fn names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (taken, written) = match self.words.iter().find(|(word, _)| rest.starts_with(word)) {
                Some((word, name)) => (word.len(), name.as_str()),
                None => (first.len_utf8(), &rest[..first.len_utf8()]),
            };
            out.push_str(written);
            rest = &rest[taken..];
        }
        out
    }

    /// Fills in the template of the file at `path`.
    pub(super) fn render(&self, path: &str, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        // Whether each `%if` around a line lets it through.
        let mut conditions: Vec<bool> = Vec::new();
        for line in text.lines() {
            let Some(directive) = line.strip_prefix('%') else {
                if conditions.iter().all(|&holds| holds) {
                    out.push_str(line);
                    out.push('\n');
                }
                continue;
            };
            match directive.split_once(' ') {
                Some(("if", flag)) => {
                    debug_assert!(self.flags.contains_key(flag), "{path}: %if {flag}");
                    conditions.push(self.flags.get(flag).copied().unwrap_or_default());
                }
                _ if directive == "else" => {
                    let holds = conditions.pop().unwrap_or_default();
                    conditions.push(!holds);
                }
                _ if directive == "end" => drop(conditions.pop()),
                _ => {
                    debug_assert!(self.blocks.contains_key(directive), "{path}: %{directive}");
                    let block = self.blocks.get(directive).map(String::as_str).unwrap_or_default();
                    if conditions.iter().all(|&holds| holds) && !block.is_empty() {
                        out.push_str(block);
                        out.push('\n');
                    }
                }
            }
        }
        debug_assert!(conditions.is_empty(), "{path}: an %if has no %end");
        // The values are the user's: no word in them is ours.
        let mut parts: Vec<String> = Vec::new();
        let mut rest = out.as_str();
        while let Some((at, key, value)) = self.next_value(rest) {
            parts.extend([self.names(&rest[..at]), value.to_owned()]);
            rest = &rest[at + key.len()..];
        }
        parts.push(self.names(rest));
        parts.concat()
    }

    fn next_value(&self, text: &str) -> Option<(usize, &str, &str)> {
        let found = self
            .values
            .iter()
            .filter_map(|(key, value)| Some((text.find(key)?, key.as_str(), value.as_str())));
        found.min_by_key(|(at, _, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_once_the_longest_first() {
        let template = Template::new(&[("Widget", "Gadget".into()), ("widget-operator", "Widget".into())]);
        assert_eq!(template.names("widget-operator: Widgets ä"), "Widget: Gadgets ä");
    }

    #[test]
    fn lines_stay_if_their_conditions_hold() {
        let text = "a\n%if x\nb\n%if y\nc\n%else\nd\n%end\n%else\ne\n%end\n%block\n{{v}}\n";
        let render = |x, y| {
            let template = Template::new(&[("a", "A".into())]);
            let template = template.flag("x", x).flag("y", y).block("block", "a!".into());
            template.value("v", "a?".into()).render("test", text)
        };
        assert_eq!(render(true, true), "A\nb\nc\nA!\na?\n");
        assert_eq!(render(true, false), "A\nb\nd\nA!\na?\n");
        assert_eq!(render(false, true), "A\ne\nA!\na?\n");
    }
}
