//! Server-side apply and updates by several managers, against a naive model: a value and a set of owners for each field.
//!
//! The input is a sequence of choices. The fields are scalars and atomic lists, side by side: a map belongs to whoever made
//! it, with all that others have put into it, and a model that knows this would not be naive any more.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use setpoint_fuzz::{Api, JSON, Lab, start};

fuzz_target!(|data: &[u8]| start(data, case));

const MAPS: &str = "/apis/example.com/v1/namespaces/default/foos";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: &str = include_str!("../src/objects.json");
const MANAGERS: [&str; 3] = ["x", "y", "z"];

type Path = Vec<String>;
type Fields = BTreeMap<Path, Value>;

/// Who owns what: a manager by applying, or by updating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Apply,
    Update,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    fields: Fields,
    owners: BTreeMap<(&'static str, Way), BTreeSet<Path>>,
}

#[derive(Debug)]
enum Step {
    Apply { manager: &'static str, fields: Fields, force: bool },
    Update { manager: &'static str, fields: Fields },
}

fn case(lab: &Lab, input: &[u8]) {
    let Ok(steps) = any_steps(&mut Unstructured::new(input)) else { return };
    lab.block_on(async {
        let api = lab.shared();
        if api.get(MAPS).await.code == 404 {
            let objects: Value = serde_json::from_str(OBJECTS).expect("the objects are JSON");
            api.call("POST", DEFINITIONS, JSON, objects[0].to_string()).await.ok();
        }
        let base = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "ssa"}});
        api.call("POST", &format!("{MAPS}?fieldManager=base"), JSON, base.to_string()).await.ok();
        let mut model = Model::default();
        for step in &steps {
            run(&api, &mut model, step).await;
        }
        api.call("DELETE", &format!("{MAPS}/ssa"), JSON, "").await.ok();
    });
}

async fn run(api: &Api, model: &mut Model, step: &Step) {
    let one = format!("{MAPS}/ssa");
    let answer = match step {
        Step::Apply { manager, fields, force } => {
            let object = object(fields).to_string();
            let path = format!("{one}?fieldManager={manager}&force={force}");
            api.call("PATCH", &path, "application/apply-patch+yaml", object).await
        }
        Step::Update { manager, fields } => {
            let mut live = api.get(&one).await.ok();
            live["spec"]["any"] = tree(fields);
            api.call("PUT", &format!("{one}?fieldManager={manager}"), JSON, live.to_string()).await
        }
    };
    let expected = model.run(step);
    assert_eq!(answer.code, if expected { 200 } else { 409 }, "{step:?}: {}", answer.json());
    let live = api.get(&one).await.ok();
    assert_eq!(found(&live["spec"]["any"]), model.fields, "{step:?}: {live}");
    let mut owners = model.owners.clone();
    owners.retain(|_, paths| !paths.is_empty());
    assert_eq!(found_owners(&live), owners, "{step:?}: {live}");
}

impl Model {
    /// Whether the step works.
    fn run(&mut self, step: &Step) -> bool {
        match step {
            Step::Apply { manager, fields, force } => self.apply(manager, fields, *force),
            Step::Update { manager, fields } => {
                self.update(manager, fields);
                true
            }
        }
    }

    fn apply(&mut self, manager: &'static str, fields: &Fields, force: bool) -> bool {
        let me = (manager, Way::Apply);
        let is_changed =
            |path: &Path, now: &Fields| now.get(path).is_some_and(|value| *value != fields[path]);
        let changed: BTreeSet<Path> =
            fields.keys().filter(|path| is_changed(path, &self.fields)).cloned().collect();
        let mut others = self.owners.iter_mut().filter(|(who, _)| **who != me);
        if !force && others.any(|(_, paths)| !paths.is_disjoint(&changed)) {
            return false;
        }
        for (_, paths) in self.owners.iter_mut().filter(|(who, _)| **who != me) {
            paths.retain(|path| !changed.contains(path));
        }
        let before = self.owners.insert(me, fields.keys().cloned().collect()).unwrap_or_default();
        for path in before {
            if !fields.contains_key(&path) && !self.owners.values().any(|paths| paths.contains(&path)) {
                self.fields.remove(&path);
            }
        }
        self.fields.extend(fields.clone());
        true
    }

    fn update(&mut self, manager: &'static str, fields: &Fields) {
        let mut changed: BTreeSet<Path> =
            self.fields.keys().filter(|path| !fields.contains_key(*path)).cloned().collect();
        let gone = changed.clone();
        changed.extend(
            fields
                .iter()
                .filter(|(path, value)| self.fields.get(*path) != Some(value))
                .map(|(path, _)| path.clone()),
        );
        for paths in self.owners.values_mut() {
            paths.retain(|path| !changed.contains(path));
        }
        let mine = self.owners.entry((manager, Way::Update)).or_default();
        mine.extend(changed.difference(&gone).cloned());
        self.fields = fields.clone();
    }
}

fn any_steps(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let count = u.int_in_range(1..=8)?;
    let step = |_| {
        let (manager, mut fields) = (*u.choose(&MANAGERS)?, Fields::new());
        let size = u.int_in_range(0..=6)?;
        for _ in 0..size {
            let path = vec![(*u.choose(&["a", "b", "c", "d", "e", "f"])?).to_owned()];
            fields.insert(
                path,
                u.choose(&[json!(0), json!(1), json!("x"), json!(true), json!([1, 2])])?.clone(),
            );
        }
        Ok(match u.int_in_range(0..=3)? {
            0 => Step::Update { manager, fields },
            force => Step::Apply { manager, fields, force: force == 1 },
        })
    };
    (0..count).map(step).collect()
}

fn tree(fields: &Fields) -> Value {
    let mut root = json!({});
    for (path, value) in fields {
        let place = path.iter().fold(&mut root, |at, name| {
            let map = at.as_object_mut().expect("only maps have fields below");
            map.entry(name.clone()).or_insert_with(|| json!({}))
        });
        *place = value.clone();
    }
    root
}

fn object(fields: &Fields) -> Value {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "ssa"}});
    if !fields.is_empty() {
        object["spec"] = json!({"any": tree(fields)});
    }
    object
}

/// The scalars in a tree. Maps that are empty are as none.
fn found(value: &Value) -> Fields {
    fn walk(value: &Value, path: &mut Path, found: &mut Fields) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name.clone());
                    walk(value, path, found);
                    path.pop();
                }
            }
            Value::Null => {}
            value => drop(found.insert(path.clone(), value.clone())),
        }
    }
    let mut fields = Fields::new();
    walk(value, &mut Path::new(), &mut fields);
    fields
}

/// Who owns which scalars below `spec.any`.
fn found_owners(live: &Value) -> BTreeMap<(&'static str, Way), BTreeSet<Path>> {
    fn walk(set: &Map<String, Value>, path: &mut Path, found: &mut BTreeSet<Path>) {
        for (name, below) in set {
            let Some(name) = name.strip_prefix("f:") else { continue };
            path.push(name.to_owned());
            let below = below.as_object().expect("a set is made of sets");
            found.insert(path.clone());
            walk(below, path, found);
            path.pop();
        }
    }
    let mut owners = BTreeMap::new();
    for entry in live["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let Some(manager) = MANAGERS.into_iter().find(|manager| entry["manager"] == **manager) else {
            continue;
        };
        let way = if entry["operation"] == "Apply" { Way::Apply } else { Way::Update };
        let mut paths = BTreeSet::new();
        if let Some(set) = entry["fieldsV1"]["f:spec"]["f:any"].as_object() {
            walk(set, &mut Path::new(), &mut paths);
        }
        if !paths.is_empty() {
            owners.insert((manager, way), paths);
        }
    }
    owners
}
