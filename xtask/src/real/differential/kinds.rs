//! The test data: kinds with good objects, and edits of them. See `differential/kinds/*.yaml`.

use std::fmt;

use serde_json::{Map, Value, json};

use super::NAMESPACE;

const FILES: [&str; 9] = [
    include_str!("kinds/pods.yaml"),
    include_str!("kinds/apps.yaml"),
    include_str!("kinds/batch.yaml"),
    include_str!("kinds/core.yaml"),
    include_str!("kinds/services.yaml"),
    include_str!("kinds/networking.yaml"),
    include_str!("kinds/policy.yaml"),
    include_str!("kinds/custom.yaml"),
    include_str!("kinds/gadgets.yaml"),
];

/// A kind and what to send about it.
pub(super) struct Kind {
    /// The name of the check.
    pub(super) name: String,
    /// Where its objects are.
    pub(super) path: String,
    data: Value,
    good: Vec<(String, Value)>,
}

/// Values to put at places of an object; none removes what is there.
pub(super) struct Change {
    edits: Vec<(String, Option<Value>)>,
}

impl Change {
    pub(super) fn one(place: &str, value: Option<Value>) -> Change {
        Change { edits: vec![(place.to_owned(), value)] }
    }

    pub(super) fn parse(edits: &Map<String, Value>) -> Change {
        let value = |value: &Value| (value != "~").then(|| long(value));
        Change { edits: edits.iter().map(|(place, edit)| (place.clone(), value(edit))).collect() }
    }

    pub(super) fn apply(&self, object: &mut Value) {
        for (place, value) in &self.edits {
            set(object, place, value.clone());
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (place, value)) in self.edits.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            match value {
                None => write!(f, "{comma}no {place}")?,
                Some(value) => {
                    let text = value.to_string();
                    let brief: String = text.chars().take(60).collect();
                    write!(f, "{comma}{place} {brief}")?;
                }
            }
        }
        Ok(())
    }
}

/// `x*300` stands for a text of that length.
fn long(value: &Value) -> Value {
    let repeated =
        value.as_str().and_then(|text| text.strip_prefix("x*")).and_then(|count| count.parse().ok());
    repeated.map_or_else(|| value.clone(), |count| "x".repeat(count).into())
}

fn set(object: &mut Value, place: &str, value: Option<Value>) {
    let (parent, key) = place.rsplit_once('/').unwrap_or(("", place));
    let key = key.replace("~1", "/").replace("~0", "~");
    let mut at = object;
    for step in parent.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Array(items) => {
                let index: usize = step.parse().unwrap_or(0);
                if index >= items.len() {
                    items.push(json!({}));
                }
                let last = items.len() - 1;
                &mut items[index.min(last)]
            }
            at => {
                if !at.is_object() {
                    *at = json!({});
                }
                at.as_object_mut().expect("it is an object now").entry(step).or_insert(Value::Null)
            }
        };
    }
    match (at, value) {
        (Value::Array(items), Some(value)) => match key.parse::<usize>() {
            Ok(index) if index < items.len() => items[index] = value,
            _ => items.push(value),
        },
        (Value::Array(items), None) => {
            if let Ok(index) = key.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
            }
        }
        (Value::Object(fields), None) => drop(fields.remove(&key)),
        (at, Some(value)) => {
            if !at.is_object() {
                *at = json!({});
            }
            at[key] = value;
        }
        (_, None) => {}
    }
}

impl Kind {
    fn parse(data: Value) -> Kind {
        let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
        let version = text("apiVersion");
        let scope = if data["cluster"] == true { String::new() } else { format!("/namespaces/{NAMESPACE}") };
        let root = if version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{version}{scope}/{}", text("resource"));
        let mut good: Vec<(String, Value)> = Vec::new();
        for (name, spec) in data["good"].as_object().into_iter().flatten() {
            let mut object = json!({"apiVersion": version, "kind": text("kind"), "metadata": {}});
            merge(&mut object, spec);
            if object["metadata"]["name"].is_null() && object["metadata"]["generateName"].is_null() {
                object["metadata"]["name"] = format!("{}-{name}", text("resource")).into();
            }
            good.push((name.clone(), object));
        }
        let name = data["name"].as_str().map_or_else(|| text("kind"), str::to_owned);
        Kind { name, path, good, data }
    }

    /// What defines the kind, if it is a custom one.
    pub(super) fn definition(&self) -> Option<&Value> {
        self.data.get("definition")
    }

    /// Objects that are as they should be.
    pub(super) fn good(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.good.iter().map(|(name, object)| (name.as_str(), object))
    }

    /// The object that edits are made of, and that lives through all changes.
    pub(super) fn living(&self) -> Value {
        let name = self.data["living"].as_str().unwrap_or("minimal");
        let found = self.good.iter().find(|(found, _)| found == name);
        found.map(|(_, object)| object.clone()).unwrap_or_default()
    }

    fn changes(&self, field: &str) -> Vec<Change> {
        let list = self.data[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Value::as_object).map(Change::parse).collect()
    }

    /// Edits of the living object, with their names.
    pub(super) fn edited(&self) -> Vec<(String, Value)> {
        let apply = |change: Change| {
            let mut object = self.living();
            change.apply(&mut object);
            (change.to_string(), object)
        };
        self.changes("edits").into_iter().map(apply).collect()
    }

    pub(super) fn updates(&self) -> Vec<(String, Change)> {
        self.changes("updates").into_iter().map(|change| (change.to_string(), change)).collect()
    }

    /// Updates of subresources, `status` most of all.
    pub(super) fn part_updates(&self) -> Vec<(&'static str, String, Change)> {
        let of = |part: &'static str| {
            self.changes(part).into_iter().map(move |change| (part, change.to_string(), change))
        };
        ["status", "ephemeralcontainers", "finalize"].into_iter().flat_map(of).collect()
    }

    /// Patches: their kind and body.
    pub(super) fn patches(&self) -> Vec<(&'static str, &Value)> {
        let of = |kind: &'static str| {
            let list = self.data[kind].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().map(move |patch| (kind, patch))
        };
        ["merge", "json", "strategic-merge"].into_iter().flat_map(of).collect()
    }
}

fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, value) in more {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

/// What both servers must know before the kinds can be sent.
pub(super) fn definitions() -> Vec<Value> {
    serde_saphyr::from_str(include_str!("definitions.yaml")).expect("the test data is YAML")
}

/// Every kind of the test data.
pub(super) fn all() -> Vec<Kind> {
    let parse = |text: &str| -> Vec<Value> { serde_saphyr::from_str(text).expect("the test data is YAML") };
    FILES.into_iter().flat_map(parse).map(Kind::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_object_to_begin_with() {
        for kind in all() {
            assert!(kind.living().is_object(), "{}", kind.name);
            assert!(kind.path.starts_with("/api"), "{}", kind.name);
        }
    }

    #[test]
    fn changes_reach_into_lists_and_make_what_is_missing() {
        let mut object = json!({"a": [{"b": 1}]});
        let edits = json!({"/a/0/b": 2, "/c/d": "x", "/a/1": {"b": 3}});
        Change::parse(edits.as_object().unwrap()).apply(&mut object);
        assert_eq!(object, json!({"a": [{"b": 2}, {"b": 3}], "c": {"d": "x"}}));
        Change::one("/a/0", None).apply(&mut object);
        Change::one("/c", None).apply(&mut object);
        assert_eq!(object, json!({"a": [{"b": 3}]}));
    }
}
