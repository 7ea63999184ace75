//! The law of the table, for any two objects of any kind: what is stored after a write differs from what was stored
//! before only in the fields that the path takes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use setpoint_env::Env;
use setpoint_kinds::{FieldType, Type, conform};

use super::subresources::{EACH, Fields, Metadata, Speaks};
use super::*;
use crate::resource::Registry;

/// Makes objects of a type up.
struct Maker {
    env: Env,
    /// How many more values the object may get.
    left: u32,
}

impl Maker {
    fn chance(&self, one_in: u64) -> bool {
        self.env.random_range(0..=one_in - 1) == 0
    }

    fn pick<'a>(&self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.env.random_range(0..=from.len() as u64 - 1)).unwrap()]
    }

    fn value(&mut self, ty: &FieldType) -> Value {
        self.left = self.left.saturating_sub(1);
        match ty {
            FieldType::Bool => self.chance(2).into(),
            FieldType::Int32 | FieldType::Int64 => self.env.random_range(0..=3).into(),
            FieldType::Float64 => 0.5.into(),
            FieldType::Bytes => "YQ==".into(),
            FieldType::Quantity => self.pick(&["1", "2", "100m"]).into(),
            FieldType::IntOrString => self.env.random_range(1..=3).into(),
            FieldType::Time => self.pick(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]).into(),
            FieldType::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
            FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json => json!({}),
            FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings => json!({}),
            FieldType::Struct(id) => self.object(id.get()),
            FieldType::List(item) | FieldType::WrappedList(item) => {
                let count = if self.left == 0 { 0 } else { self.env.random_range(0..=2) };
                (0..count).map(|_| self.value(item)).collect()
            }
            FieldType::Map(item) => {
                let keys = ["cpu", "memory", "a"].into_iter().filter(|_| self.chance(2)).collect::<Vec<_>>();
                keys.into_iter().map(|key| (key.to_owned(), self.value(item))).collect::<Map<_, _>>().into()
            }
            _ => self.pick(&["a", "b", "True"]).into(),
        }
    }

    fn object(&mut self, ty: &Type) -> Value {
        let mut fields = Map::new();
        for field in ty.fields() {
            if self.left > 0 && (field.name == "name" || self.chance(2)) {
                fields.insert(field.name.to_owned(), self.value(&field.ty));
            }
        }
        fields.into()
    }

    fn metadata(&self, namespaced: bool) -> Value {
        let mut metadata = json!({"name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        if namespaced {
            metadata["namespace"] = "default".into();
        }
        for (field, value) in [
            ("labels", json!({"a": self.pick(&["1", "2"])})),
            ("annotations", json!({"a": self.pick(&["1", "2"])})),
            ("finalizers", json!([self.pick(&["example.com/a", "example.com/b"])])),
            (
                "ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Pod", "name": self.pick(&["a", "b"]), "uid": "o"}]),
            ),
            ("generation", self.env.random_range(1..=3).into()),
        ] {
            if self.chance(2) {
                metadata[field] = value;
            }
        }
        metadata
    }
}

/// An object of a resource, as a request brings it.
fn made(resource: &Resource, seed: u64) -> Value {
    let mut maker = Maker { env: Env::seeded(seed), left: 400 };
    let ty = resource.ty().expect("built-in kinds have types");
    // Not all the values shall go to the first field.
    let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind()});
    for field in ty.fields() {
        if !matches!(field.name, "apiVersion" | "kind" | "metadata") {
            maker.left = 400;
            object[field.name] = maker.value(&field.ty);
        }
    }
    object["metadata"] = maker.metadata(resource.is_namespaced());
    conform(ty, &mut object, &mut Vec::new()).expect("it is made from the type");
    object
}

/// Every place where two values differ; an item of a list is [`EACH`].
fn differences(old: &Value, new: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                path.push(name.clone());
                differences(&old[name], &new[name], path, found);
                path.pop();
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                path.push(EACH.to_owned());
                differences(a, b, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

/// Whether the row of a part says that a field may change.
fn may_change(resource: &Resource, part: Part, path: &[String]) -> bool {
    let writes = resource.writes(part);
    let begins = |with: &[&str]| path.len() >= with.len() && path.iter().zip(with).all(|(a, b)| a == b);
    if path[0] == "metadata" {
        let field = path[1].as_str();
        return match (field, writes.metadata) {
            ("resourceVersion" | "managedFields", _) => true,
            ("generation", _) => writes.counts,
            (_, Metadata::AllBut(kept)) => !kept.contains(&field),
            (_, Metadata::None) => false,
        };
    }
    match writes.content {
        Fields::AllBut(kept) => !kept.iter().any(|kept| begins(kept)),
        Fields::Only(taken) => taken.iter().any(|taken| begins(taken)),
        Fields::Replicas => begins(&["spec", "replicas"]),
    }
}

fn names(object: &Value, list: &str) -> Vec<Value> {
    let items = object["spec"][list].as_array().into_iter().flatten();
    items.map(|item| item["name"].clone()).collect()
}

fn check(resource: &Resource, part: Part, seeds: (u64, u64)) {
    let env = Env::seeded(1);
    let mut old = made(resource, seeds.0);
    // What is stored has its defaults.
    prepare_create(resource, &mut old, &env);
    old["status"] = made(resource, seeds.0)["status"].clone();
    kinds::default(resource, &mut old);
    let settled = old.clone();
    kinds::default(resource, &mut old);
    assert_eq!(old, settled, "{} {part:?}: defaults are set once", resource.plural());
    let mut new = made(resource, seeds.1);
    for field in ["uid", "creationTimestamp"] {
        new["metadata"][field] = old["metadata"][field].clone();
    }
    let wanted = new.clone();
    prepare_update(resource, part, &old, &mut new, &env);
    let same_items = |list: &str| names(&old, list) == names(&wanted, list);
    if part == Part::Resize && !(same_items("containers") && same_items("initContainers")) {
        let refused =
            validate(resource, part, &new, Some(&old)).expect_err("containers are neither made nor lost");
        assert!(refused.message.contains("on resize"), "{}", refused.message);
        return;
    }
    // Rules find problems in anything, and never panic.
    drop(validate(resource, part, &new, Some(&old)));
    let mut found = Vec::new();
    differences(&old, &new, &mut Vec::new(), &mut found);
    for path in found {
        let pointer = format!("/{}", path.join("/"));
        let at = |object: &Value| object.pointer(&pointer).cloned().unwrap_or_default();
        assert!(
            may_change(resource, part, &path) || is_the_servers(resource, part, &path),
            "{}/{part:?} changed {}: {} to {}",
            resource.plural(),
            path.join("."),
            at(&old),
            at(&new)
        );
    }
}

/// What the server writes by itself on a path that does not take it from the request.
fn is_the_servers(resource: &Resource, part: Part, path: &[String]) -> bool {
    let field = match (resource.plural(), part) {
        // The versions that objects may be stored in are noted.
        ("customresourcedefinitions", Part::Main) => "storedVersions",
        // What is no load balancer any more has no addresses of one.
        ("services", Part::Main) => "loadBalancer",
        _ => return false,
    };
    path[0] == "status" && path.get(1).is_some_and(|found| found == field)
}

/// Every resource with the parts that can be written of it.
fn parts() -> Vec<(&'static Resource, Part)> {
    let mut out = Vec::new();
    for facts in setpoint_kinds::table().resources().iter().filter(|facts| facts.has_verb("update")) {
        let resource = &**Registry::built_in().expect(facts.group, facts.version, facts.plural);
        out.push((resource, Part::Main));
        for sub in &facts.subresources {
            match resource.subresource(sub.name).expect("the table has it").speaks {
                Speaks::Part(part, _) => out.push((resource, part)),
                Speaks::Scale => out.push((resource, Part::Scale)),
                _ => {}
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_write_changes_what_its_path_takes_and_nothing_else(old: u64, new: u64) {
        for (resource, part) in parts() {
            check(resource, part, (old, new));
        }
    }

    #[test]
    fn a_resize_takes_resources_of_the_same_containers(old: u64, new: u64) {
        let pods = Registry::built_in().expect("", "v1", "pods");
        check(pods, Part::Resize, (old, new));
        // The same containers with other contents.
        let mut stored = made(pods, old);
        kinds::default(pods, &mut stored);
        let mut wanted = made(pods, new);
        for list in ["containers", "initContainers"] {
            wanted["spec"][list] = stored["spec"][list].clone();
            for container in wanted["spec"][list].as_array_mut().into_iter().flatten() {
                container["image"] = "evil".into();
                container["resources"] = json!({"requests": {"cpu": "7"}});
            }
        }
        let mut result = wanted.clone();
        prepare_update(pods, Part::Resize, &stored, &mut result, &Env::seeded(1));
        for list in ["containers", "initContainers"] {
            let before = stored["spec"][list].as_array().into_iter().flatten();
            let after = result["spec"][list].as_array().into_iter().flatten();
            for (before, after) in before.zip(after) {
                assert_eq!(before["image"], after["image"]);
                assert_eq!(after["resources"]["requests"]["cpu"], "7");
            }
        }
    }
}
