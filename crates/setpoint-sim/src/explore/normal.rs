//! What two runs have in common when they did the same: objects without what differs from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::object::ObjectId;
use crate::faults::TOUCHED;
use crate::hash::Fnv;

/// Changes an object before it is compared.
pub(crate) type Mask = Arc<dyn Fn(&ObjectId, &mut Value) + Send + Sync>;

/// What makes two objects equal.
#[derive(Clone)]
pub(crate) struct Normal {
    /// Resources that are not compared, and whose writes do not count: `events`, `leases.coordination.k8s.io`.
    pub(crate) ignored: BTreeSet<String>,
    pub(crate) masks: Vec<Mask>,
}

impl Default for Normal {
    fn default() -> Normal {
        // Addresses of Services are the server's own books: their names are addresses.
        let ignored =
            ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "ipaddresses.networking.k8s.io"];
        Normal { ignored: ignored.map(str::to_owned).into(), masks: Vec::new() }
    }
}

impl fmt::Debug for Normal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Normal").field("ignored", &self.ignored).finish_non_exhaustive()
    }
}

/// Names that a run made up: uids and generated names, and what they stand for.
pub(crate) type Aliases = BTreeMap<String, String>;

impl Normal {
    pub(crate) fn ignores(&self, id: &ObjectId) -> bool {
        self.ignored.contains(&id.group_resource())
    }

    /// Remembers what the object is called in this run.
    pub(crate) fn learn(aliases: &mut Aliases, id: &ObjectId, object: &Value) {
        let metadata = &object["metadata"];
        let called = normal_path(id, object, aliases);
        if let Some(uid) = metadata["uid"].as_str() {
            aliases
                .entry(uid.to_owned())
                .or_insert_with(|| format!("<uid of {}/{called}>", id.group_resource()));
        }
        if let (Some(_), Some(name)) = (generate_name(object), metadata["name"].as_str()) {
            let name_only = called.rsplit('/').next().unwrap_or(&called);
            aliases.entry(name.to_owned()).or_insert_with(|| name_only.to_owned());
        }
    }

    /// The object without what differs from run to run.
    pub(crate) fn of(&self, id: &ObjectId, object: &Value, aliases: &Aliases) -> Value {
        let mut object = object.clone();
        let generation = object["metadata"]["generation"].clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in
                ["managedFields", "resourceVersion", "generation", "creationTimestamp", "selfLink", "uid"]
            {
                metadata.remove(key);
            }
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(TOUCHED);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
        for mask in &self.masks {
            mask(id, &mut object);
        }
        walk(&mut object, &generation, aliases);
        object
    }

    /// The object as it is but for its version, and what the scenario masks: to see whether it changes all the time.
    pub(crate) fn as_written(&self, id: &ObjectId, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata
                .retain(|key, _| !["managedFields", "resourceVersion", "generation"].contains(&key.as_str()));
        }
        self.masked(id, &object)
    }

    /// The object without what the scenario masks.
    pub(crate) fn masked(&self, id: &ObjectId, object: &Value) -> Value {
        let mut object = object.clone();
        self.masks.iter().for_each(|mask| mask(id, &mut object));
        object
    }

    /// Something that is no object, without what differs from run to run.
    pub(crate) fn bare(value: &Value, aliases: &Aliases) -> Value {
        let mut value = value.clone();
        walk(&mut value, &Value::Null, aliases);
        value
    }

    pub(crate) fn hash(&self, id: &ObjectId, object: &Value, aliases: &Aliases) -> u64 {
        Fnv::of(self.of(id, object, aliases).to_string().as_bytes())
    }
}

fn generate_name(object: &Value) -> Option<&str> {
    object["metadata"]["generateName"].as_str().filter(|prefix| !prefix.is_empty())
}

/// The path of an object, with what stands for a generated name, or for the uid of another object in it.
pub(crate) fn normal_path(id: &ObjectId, object: &Value, aliases: &Aliases) -> String {
    let Some(prefix) = generate_name(object) else {
        return with_aliases(&id.path, aliases).unwrap_or_else(|| id.path.to_string());
    };
    match id.path.split_once('/') {
        Some((namespace, _)) => format!("{namespace}/{prefix}<generated>"),
        None => format!("{prefix}<generated>"),
    }
}

fn walk(value: &mut Value, generation: &Value, aliases: &Aliases) {
    match value {
        Value::Object(fields) => {
            if let Some(observed) = fields.get_mut("observedGeneration") {
                *observed =
                    if observed == generation { "<generation>".into() } else { "<old generation>".into() };
            }
            // In the order in which they came first.
            if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
                conditions.sort_by_cached_key(|condition| condition["type"].as_str().map(str::to_owned));
            }
            fields.values_mut().for_each(|value| walk(value, generation, aliases));
            rename_keys(fields, aliases);
        }
        Value::Array(items) => items.iter_mut().for_each(|value| walk(value, generation, aliases)),
        Value::String(text) => {
            if let Some(alias) = aliases.get(text.as_str()) {
                text.clone_from(alias);
            } else if is_time(text) {
                *text = "<time>".to_owned();
            } else if is_uuid(text) {
                *text = "<uid>".to_owned();
            } else if text.parse::<IpAddr>().is_ok() {
                *text = "<address>".to_owned();
            } else if is_digest(text) {
                *text = "<digest>".to_owned();
            } else if let Some(named) = with_aliases(text, aliases) {
                *text = named;
            }
        }
        _ => {}
    }
}

/// The text with what the uids in it stand for, if there are any: the volume of a claim is called `pvc-` and the claim's uid.
fn with_aliases(text: &str, aliases: &Aliases) -> Option<String> {
    let mut named = String::new();
    let mut rest = text;
    while let Some((at, uid)) = first_uuid(rest) {
        named.push_str(&rest[..at]);
        named.push_str(aliases.get(uid).map_or("<uid>", String::as_str));
        rest = &rest[at + UUID..];
    }
    (rest.len() < text.len()).then(|| named + rest)
}

fn first_uuid(text: &str) -> Option<(usize, &str)> {
    // Where the first of its hyphens may be.
    let hyphens = text.match_indices('-').filter_map(|(at, _)| at.checked_sub(8));
    let mut parts = hyphens.filter_map(|at| Some((at, text.get(at..at + UUID)?)));
    parts.find(|(_, part)| is_uuid(part))
}

/// Keys can be uids, too.
fn rename_keys(fields: &mut Map<String, Value>, aliases: &Aliases) {
    let known: Vec<_> = fields.keys().filter(|key| aliases.contains_key(*key)).cloned().collect();
    for key in known {
        if let (Some(value), Some(alias)) = (fields.remove(&key), aliases.get(&key)) {
            fields.insert(alias.clone(), value);
        }
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && text.parse::<jiff::Timestamp>().is_ok()
}

/// What was drawn or hashed: `containerd://` and 64 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let last = text.rsplit(['/', ':']).next().unwrap_or_default();
    last.len() >= 32 && last.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const UUID: usize = 36;

fn is_uuid(text: &str) -> bool {
    text.len() == UUID
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The objects of a run at one moment, as they are compared: by resource and path, several where names are generated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, Vec<Value>>,
}

impl State {
    pub(crate) fn insert(&mut self, called: String, object: Value) {
        let same = self.objects.entry(called).or_default();
        same.push(object);
        if same.len() > 1 {
            same.sort_by_cached_key(Value::to_string);
        }
    }

    /// How `other` differs, a line a difference.
    pub(crate) fn difference(&self, other: &State) -> Vec<String> {
        let mut lines = Vec::new();
        let names: BTreeSet<_> = self.objects.keys().chain(other.objects.keys()).collect();
        for name in names {
            let none = Vec::new();
            let (before, after) =
                (self.objects.get(name).unwrap_or(&none), other.objects.get(name).unwrap_or(&none));
            match (before.len(), after.len()) {
                (0, n) => lines.push(format!("{name}: {} that should not be there", count(n))),
                (n, 0) => lines.push(format!("{name}: {} missing", count(n))),
                (a, b) if a != b => lines.push(format!("{name}: there are {b}, there should be {a}")),
                _ => before
                    .iter()
                    .zip(after)
                    .for_each(|(a, b)| compare(name, &mut String::new(), a, b, &mut lines)),
            }
        }
        lines
    }
}

fn count(n: usize) -> String {
    if n == 1 { "one".to_owned() } else { n.to_string() }
}

fn compare(name: &str, path: &mut String, before: &Value, after: &Value, lines: &mut Vec<String>) {
    if before == after {
        return;
    }
    let length = path.len();
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                path.push('.');
                path.push_str(key);
                let null = Value::Null;
                compare(name, path, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), lines);
                path.truncate(length);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                path.push_str(&format!("[{at}]"));
                compare(name, path, a, b, lines);
                path.truncate(length);
            }
        }
        _ => lines.push(format!("{name} {path}: is {}, should be {}", short(after), short(before))),
    }
}

fn short(value: &Value) -> String {
    let text = if value.is_null() { "absent".to_owned() } else { value.to_string() };
    if text.chars().count() > 120 { text.chars().take(117).chain("...".chars()).collect() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(resource: &str, path: &str) -> ObjectId {
        ObjectId { group: "".into(), resource: resource.into(), path: path.into() }
    }

    #[test]
    fn what_differs_from_run_to_run_is_equal() {
        let normal = Normal::default();
        let object = |uid: &str, name: &str, time: &str, generation: u64| {
            let object = json!({
                "metadata": {"uid": uid, "name": name, "generateName": "a-", "generation": generation,
                    "creationTimestamp": time, "annotations": {TOUCHED: "7"}},
                "status": {"observedGeneration": generation, "at": time, "self": uid, "ip": "10.0.0.7"},
            });
            let mut aliases = Aliases::new();
            let id = id("pods", &format!("default/{name}"));
            Normal::learn(&mut aliases, &id, &object);
            (normal_path(&id, &object, &aliases), normal.of(&id, &object, &aliases))
        };
        let (uid, other) = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002");
        let one = object(uid, "a-x", "2026-01-01T00:00:00Z", 1);
        assert_eq!(one, object(other, "a-y", "2026-01-02T00:00:00Z", 3));
        assert_eq!(one.0, "default/a-<generated>");
        assert_eq!(one.1["status"]["self"], "<uid of pods/default/a-<generated>>");
    }

    #[test]
    fn a_name_that_is_made_of_a_uid_is_called_by_what_has_it() {
        let (normal, mut aliases) = (Normal::default(), Aliases::new());
        let (claim, uid) =
            (id("persistentvolumeclaims", "default/data"), "00000000-0000-4000-8000-000000000001");
        Normal::learn(&mut aliases, &claim, &json!({"metadata": {"uid": uid, "name": "data"}}));
        let name = format!("pvc-{uid}");
        let (volume, object) = (id("persistentvolumes", &name), json!({"metadata": {"name": name}}));
        let called = "pvc-<uid of persistentvolumeclaims/default/data>";
        assert_eq!(normal_path(&volume, &object, &aliases), called);
        assert_eq!(normal.of(&volume, &object, &aliases)["metadata"]["name"], called);
        let texts = [
            ("a-b-c", None),
            ("é-00000000-0000-4000-8000-00000000000", None),
            ("é-00000000-0000-4000-8000-000000000002-", Some("é-<uid>-")),
        ];
        for (text, named) in texts {
            assert_eq!(with_aliases(text, &aliases).as_deref(), named);
        }
    }

    #[test]
    fn a_difference_names_the_object_and_the_field() {
        let state = |objects: &[(&str, Value)]| {
            let mut state = State::default();
            objects.iter().for_each(|(name, value)| state.insert((*name).to_owned(), value.clone()));
            state
        };
        let before = state(&[("pods/a", json!({"spec": {"x": 1}})), ("pods/b", json!({}))]);
        let after = state(&[("pods/a", json!({"spec": {"x": 2}})), ("pods/c", json!({}))]);
        assert_eq!(
            before.difference(&after),
            [
                "pods/a .spec.x: is 2, should be 1",
                "pods/b: one missing",
                "pods/c: one that should not be there"
            ]
        );
        assert!(before.difference(&before).is_empty());
    }
}
