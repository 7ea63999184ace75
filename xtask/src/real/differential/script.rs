//! Requests in an order that matters: who applies what after whom. See `differential/scripts/*.yaml`.

use anyhow::Result;
use serde_json::Value;

use super::kinds::Change;
use super::{Answer, JSON, NAMESPACE, send};
use crate::real::http::Client;

const FILES: [&str; 3] = [
    include_str!("scripts/apply.yaml"),
    include_str!("scripts/custom.yaml"),
    include_str!("scripts/nested.yaml"),
];

/// Steps on the objects of one kind.
pub(super) struct Script {
    /// The name of the check.
    pub(super) name: String,
    /// Where the objects are.
    pub(super) path: String,
    data: Value,
}

/// One request. What to do is a field of the data: `apply`, `merge`, `json`, `create`, `edit`, `get` or `delete`,
/// whose value is what follows the path; `body` is the body, or the changes of an `edit`.
pub(super) struct Step {
    pub(super) title: String,
    body: Value,
    verb: &'static str,
    at: String,
}

const VERBS: [&str; 8] = ["apply", "merge", "json", "strategic-merge", "create", "edit", "get", "delete"];

impl Script {
    fn parse(data: Value) -> Script {
        let name = data["name"].as_str().unwrap_or_default().to_owned();
        let path = data["path"].as_str().unwrap_or_default().replace("{ns}", NAMESPACE);
        Script { name, path, data }
    }

    /// What defines the kind, if it is a custom one.
    pub(super) fn definition(&self) -> Option<&Value> {
        self.data.get("definition")
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let steps = self.data["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        steps.iter().filter_map(Step::parse)
    }
}

impl Step {
    fn parse(data: &Value) -> Option<Step> {
        let verb = VERBS.into_iter().find(|verb| data.get(verb).is_some())?;
        let at = data[verb].as_str().unwrap_or_default().to_owned();
        let body = data["body"].clone();
        let brief: String = body.to_string().chars().take(100).collect();
        let title = if body.is_null() { format!("{verb} {at}") } else { format!("{verb} {at} {brief}") };
        Some(Step { title, body, verb, at })
    }

    /// Whether it changes what custom resources are like.
    pub(super) fn redefines(&self) -> bool {
        self.verb != "get" && self.at.contains("/customresourcedefinitions/")
    }

    pub(super) fn send(&self, server: &Client, path: &str) -> Result<Answer> {
        let at = format!("{path}{}", self.at);
        let patch = |media| send(server, "PATCH", &at, media, Some(&self.body));
        match self.verb {
            "apply" => patch("application/apply-patch+yaml"),
            "merge" => patch("application/merge-patch+json"),
            "json" => patch("application/json-patch+json"),
            "strategic-merge" => patch("application/strategic-merge-patch+json"),
            "create" => send(server, "POST", &at, JSON, Some(&self.body)),
            "edit" => {
                let mut object = send(server, "GET", &at, JSON, None)?.body;
                if let Some(edits) = self.body.as_object() {
                    Change::parse(edits).apply(&mut object);
                }
                send(server, "PUT", &at, JSON, Some(&object))
            }
            "delete" => send(server, "DELETE", &at, JSON, None),
            _ => send(server, "GET", &at, JSON, None),
        }
    }
}

/// Every script of the test data.
pub(super) fn all() -> Vec<Script> {
    let parse = |text: &str| -> Vec<Value> { serde_saphyr::from_str(text).expect("the test data is YAML") };
    FILES.into_iter().flat_map(parse).map(Script::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_says_what_to_do() {
        for script in all() {
            let count = script.data["steps"].as_array().map_or(0, Vec::len);
            assert!(count > 0 && script.path.starts_with("/api"), "{}", script.name);
            assert_eq!(script.steps().count(), count, "{}", script.name);
        }
    }
}
