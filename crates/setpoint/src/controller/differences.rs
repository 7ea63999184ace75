//! What is different between a cached object and the answer to a write.

use serde_json::Value;

use crate::facts::FieldChange;

/// How many differences are named.
const MOST: usize = 16;
/// How much of a path or a value is shown.
const MOST_TEXT: usize = 100;
/// What the server changes with every write.
const LEFT_OUT: [&str; 2] = ["metadata.resourceVersion", "metadata.managedFields"];

/// The fields that are different, at most [`MOST`] of them. Of Secrets, only where.
pub(super) fn differences(resource: &str, before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Differences { all: Vec::new(), has_values: resource != "secrets" };
    found.compare(&mut String::new(), Some(before), Some(after));
    found.all
}

struct Differences {
    all: Vec<FieldChange>,
    has_values: bool,
}

impl Differences {
    fn compare(&mut self, path: &mut String, before: Option<&Value>, after: Option<&Value>) {
        if before == after || self.all.len() == MOST || LEFT_OUT.contains(&path.as_str()) {
            return;
        }
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let added = new.keys().filter(|name| !old.contains_key(*name));
                for name in old.keys().chain(added) {
                    let dot = if path.is_empty() { "" } else { "." };
                    self.within(path, &format!("{dot}{name}"), old.get(name), new.get(name));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for n in 0..old.len().max(new.len()) {
                    self.within(path, &format!("[{n}]"), old.get(n), new.get(n));
                }
            }
            (before, after) => {
                let show = |value: Option<&Value>| value.filter(|_| self.has_values).map(shown);
                let (before, after) = (show(before), show(after));
                self.all.push(FieldChange { path: shortened(path), before, after });
            }
        }
    }

    fn within(&mut self, path: &mut String, step: &str, before: Option<&Value>, after: Option<&Value>) {
        let length = path.len();
        path.push_str(step);
        self.compare(path, before, after);
        path.truncate(length);
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => shortened(text),
        value => shortened(&value.to_string()),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(resource: &str, before: &Value, after: &Value) -> Vec<String> {
        let one = |change: FieldChange| {
            let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            format!("{}: {} > {}", change.path, text(change.before), text(change.after))
        };
        differences(resource, before, after).into_iter().map(one).collect()
    }

    #[test]
    fn fields_that_differ_are_named_with_what_they_were_and_are() {
        let before = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "x"}}, "spec": {"replicas": 1, "of": [1, 2]}});
        let after = json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 3, "of": [1, 3, 4]}, "status": {}});
        assert_eq!(
            told("webs", &before, &after),
            [
                "metadata.labels: {\"a\":\"x\"} > -",
                "spec.of[1]: 2 > 3",
                "spec.of[2]: - > 4",
                "spec.replicas: 1 > 3",
                "status: - > {}",
            ]
        );
        assert!(told("webs", &before, &before).is_empty());
    }

    #[test]
    fn what_a_secret_has_in_it_is_not_told() {
        let (before, after) = (json!({"data": {"key": "b2xk"}}), json!({"data": {"key": "bmV3"}}));
        assert_eq!(told("secrets", &before, &after), ["data.key: - > -"]);
    }

    #[test]
    fn few_differences_are_told_and_long_values_are_shortened() {
        let many: Vec<usize> = (0..100).collect();
        assert_eq!(differences("webs", &json!([]), &json!(many)).len(), MOST);
        let long = differences("webs", &json!({"a": "b"}), &json!({"a": "ü".repeat(1000)}));
        assert_eq!(long[0].after.as_ref().unwrap().chars().count(), MOST_TEXT + 1);
    }
}
