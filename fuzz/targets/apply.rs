//! Server-side apply and updates by several managers, against a naive model: a tree, and a set of paths for each owner.
//!
//! The input is a sequence of choices. The fields are in maps without a schema: each field and each map is there for itself, lists
//! are single values. The rules of the model:
//!
//! - Who applies owns the paths that it applies; who updates, those that it changes.
//! - What one changes others own no more; to apply such a change takes force.
//! - What a manager applies no more is removed if nobody owns it, or nobody owns a map that it is in. What is below goes with it.
//! - A map of which all is removed so is null.

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
/// A field that nobody gives up, so that there always is a map.
const KEPT: &str = "kept";

type Tree = Map<String, Value>;
type Path = Vec<String>;
type Paths = BTreeSet<Path>;

/// Who owns what: a manager by applying, or by updating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Apply,
    Update,
}

#[derive(Debug, Default)]
struct Model {
    tree: Tree,
    owners: BTreeMap<(&'static str, Way), Paths>,
}

#[derive(Debug)]
enum Step {
    Apply { manager: &'static str, tree: Tree, force: bool },
    Update { manager: &'static str, tree: Tree },
}

fn case(lab: &Lab, input: &[u8]) {
    let Ok(steps) = any_steps(&mut Unstructured::new(input)) else { return };
    lab.block_on(async {
        let api = lab.shared();
        if api.get(MAPS).await.code == 404 {
            let objects: Value = serde_json::from_str(OBJECTS).expect("the objects are JSON");
            api.call("POST", DEFINITIONS, JSON, objects[0].to_string()).await.ok();
        }
        let base = object(&Tree::from_iter([(KEPT.to_owned(), json!(0))]));
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
        Step::Apply { manager, tree, force } => {
            let path = format!("{one}?fieldManager={manager}&force={force}");
            api.call("PATCH", &path, "application/apply-patch+yaml", object(tree).to_string()).await
        }
        Step::Update { manager, tree } => {
            let mut live = api.get(&one).await.ok();
            let mut tree = tree.clone();
            tree.insert(KEPT.to_owned(), json!(0));
            live["spec"]["any"] = tree.into();
            api.call("PUT", &format!("{one}?fieldManager={manager}"), JSON, live.to_string()).await
        }
    };
    let expected = model.run(step);
    assert_eq!(answer.code, if expected { 200 } else { 409 }, "{step:?}: {}", answer.json());
    let live = api.get(&one).await.ok();
    let mut found = live["spec"]["any"].as_object().cloned().expect("there is a map");
    assert_eq!(found.remove(KEPT), Some(json!(0)), "{step:?}: {live}");
    assert_eq!(found, model.tree, "{step:?}: {live}");
    assert_eq!(owners(&live), model.owners, "{step:?}: {live}");
}

impl Model {
    /// Whether the step works.
    fn run(&mut self, step: &Step) -> bool {
        let is_done = match step {
            Step::Apply { manager, tree, force } => self.apply((manager, Way::Apply), tree, *force),
            Step::Update { manager, tree } => {
                let (changed, gone) = difference(&self.tree, tree);
                self.take(&changed, &gone, None);
                self.owners.entry((manager, Way::Update)).or_default().extend(changed);
                self.tree = tree.clone();
                true
            }
        };
        self.owners.retain(|_, paths| !paths.is_empty());
        is_done
    }

    fn apply(&mut self, me: (&'static str, Way), tree: &Tree, force: bool) -> bool {
        let before = self.owners.get(&me).cloned().unwrap_or_default();
        let mine = paths(tree);
        let is_owned = |path: &Path| {
            mine.contains(path) || self.owners.iter().any(|(who, paths)| *who != me && paths.contains(path))
        };
        let is_given_up = |path: &&Path| (1..=path.len()).any(|length| !is_owned(&path[..length].to_vec()));
        let given_up: Vec<Path> = before.iter().filter(is_given_up).cloned().collect();
        let mut new = self.tree.clone();
        merge(&mut new, tree);
        given_up.iter().for_each(|path| remove(&mut new, path));
        let (changed, gone) = difference(&self.tree, &new);
        let mut others = self.owners.iter().filter(|(who, _)| **who != me);
        if !force && others.any(|(_, paths)| !paths.is_disjoint(&changed)) {
            return false;
        }
        self.take(&changed, &gone, Some(me));
        self.owners.insert(me, mine);
        self.tree = new;
        true
    }

    fn take(&mut self, changed: &Paths, gone: &Paths, except: Option<(&'static str, Way)>) {
        for (_, paths) in self.owners.iter_mut().filter(|(who, _)| Some(**who) != except) {
            paths.retain(|path| !changed.contains(path) && !gone.contains(path));
        }
    }
}

/// Every field and every map.
fn paths(tree: &Tree) -> Paths {
    let mut paths = Paths::new();
    for (name, value) in tree {
        paths.insert(vec![name.clone()]);
        let below = value.as_object().map(self::paths).unwrap_or_default();
        paths.extend(below.into_iter().map(|rest| [vec![name.clone()], rest].concat()));
    }
    paths
}

fn at<'a>(tree: &'a Tree, path: &Path) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(tree.get(first)?, |value, name| value.get(name))
}

/// What was set or added, and what is gone.
fn difference(old: &Tree, new: &Tree) -> (Paths, Paths) {
    let (before, after) = (paths(old), paths(new));
    let is_changed = |path: &&Path| match (at(old, path), at(new, path)) {
        (Some(old), Some(new)) => {
            let has_fields = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
            let is_map = |value: &Value| value.is_object() || value.is_null();
            // A map with fields in it is as it was, whatever its fields are.
            old != new && !(is_map(old) && is_map(new) && (has_fields(old) || has_fields(new)))
        }
        _ => true,
    };
    (after.iter().filter(is_changed).cloned().collect(), before.difference(&after).cloned().collect())
}

fn merge(live: &mut Tree, applied: &Tree) {
    for (name, value) in applied {
        match (live.get_mut(name), value) {
            (Some(Value::Object(live)), Value::Object(applied)) => merge(live, applied),
            _ => drop(live.insert(name.clone(), value.clone())),
        }
    }
}

fn remove(tree: &mut Tree, path: &[String]) {
    match path {
        [] => {}
        [last] => drop(tree.remove(last)),
        [first, rest @ ..] => {
            let Some(value) = tree.get_mut(first) else { return };
            if let Value::Object(below) = value {
                let had_fields = !below.is_empty();
                remove(below, rest);
                if had_fields && below.is_empty() {
                    *value = Value::Null;
                }
            }
        }
    }
}

fn any_steps(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let count = u.int_in_range(1..=8)?;
    let step = |_| {
        let (manager, tree) = (*u.choose(&MANAGERS)?, any_tree(u, 3)?);
        Ok(match u.int_in_range(0..=3)? {
            0 => Step::Update { manager, tree },
            force => Step::Apply { manager, tree, force: force == 1 },
        })
    };
    (0..count).map(step).collect()
}

fn any_tree(u: &mut Unstructured<'_>, depth: usize) -> Result<Tree> {
    let mut tree = Tree::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let name = (*u.choose(&["a", "b", "c"])?).to_owned();
        let value = match u.int_in_range(0..=7)? {
            0 => json!(0),
            1 => json!(1),
            2 => json!("x"),
            3 => json!([1, 2]),
            _ if depth > 1 => any_tree(u, depth - 1)?.into(),
            _ => json!(true),
        };
        tree.insert(name, value);
    }
    Ok(tree)
}

fn object(tree: &Tree) -> Value {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "ssa"}});
    if !tree.is_empty() {
        object["spec"] = json!({"any": tree});
    }
    object
}

/// Who owns what below `spec.any`.
fn owners(live: &Value) -> BTreeMap<(&'static str, Way), Paths> {
    fn walk(set: &Tree, path: &mut Path, found: &mut Paths) {
        for (name, below) in set {
            let Some(name) = name.strip_prefix("f:") else { continue };
            path.push(name.to_owned());
            let below = below.as_object().expect("a set is made of sets");
            if below.is_empty() || below.contains_key(".") {
                found.insert(path.clone());
            }
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
        let mut paths = Paths::new();
        if let Some(set) = entry["fieldsV1"]["f:spec"]["f:any"].as_object() {
            walk(set, &mut Path::new(), &mut paths);
        }
        if !paths.is_empty() {
            owners.insert((manager, way), paths);
        }
    }
    owners
}
