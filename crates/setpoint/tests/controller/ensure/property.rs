//! Any object of the built-in kinds: ensured twice, it is written once; and what drifts is repaired.

use kube::api::{Api, DynamicObject, PostParams};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use setpoint::{Ensured, ensure};
use setpoint_kinds::{FieldType, Type, table};
use setpoint_sim::World;

use super::{api_of, dynamic, tracked, writes};

/// Objects that the server takes: others are made of them by adding fields.
fn seeds() -> Vec<Value> {
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x", "env": [{"name": "E", "value": ""}],
            "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "1000m"}}}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}]}});
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let bodies = [
        ("v1", "ConfigMap", json!({"data": {"k": ""}})),
        ("v1", "Secret", json!({"data": {"k": "YQ=="}, "stringData": {"s": "t"}})),
        ("v1", "ServiceAccount", json!({})),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("v1", "ResourceQuota", json!({"spec": {"hard": {"cpu": "1000m"}}})),
        ("v1", "LimitRange", json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2000m"}}]}})),
        ("v1", "PodTemplate", json!({"template": template})),
        ("v1", "Node", json!({"spec": {}})),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}),
        ),
        ("apps/v1", "Deployment", json!({"spec": {"selector": selector, "template": template}})),
        ("apps/v1", "DaemonSet", json!({"spec": {"selector": selector, "template": template}})),
        ("apps/v1", "ReplicaSet", json!({"spec": {"selector": selector, "template": template}})),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"selector": selector, "serviceName": "s", "template": template}}),
        ),
        ("batch/v1", "Job", json!({"spec": {"template": job_template}})),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_template}}}}),
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"renewTime": "2026-01-01T01:00:00.500000+01:00"}}),
        ),
        ("rbac.authorization.k8s.io/v1", "Role", json!({"rules": rules})),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"rules": rules})),
        ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}, "ingress": [{}]}})),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"selector": selector, "maxUnavailable": 1}})),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 0})),
        ("storage.k8s.io/v1", "StorageClass", json!({"provisioner": "p"})),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef":
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
        ),
    ];
    let whole = |(api_version, kind, body): (&str, &str, Value)| {
        let mut object = body;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "one"});
        object
    };
    bodies.into_iter().map(whole).collect()
}

/// Numbers that are always the same for one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick(&mut self, choices: &[Value]) -> Value {
        choices[self.below(choices.len())].clone()
    }
}

fn type_of(object: &Value) -> &'static Type {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    table().by_kind(group, version, object["kind"].as_str().unwrap()).unwrap().ty()
}

/// Adds one in so many of the fields that the type has and the object does not mention.
fn grow(ty: &Type, object: &mut Map<String, Value>, random: &mut Random, one_in: usize, is_root: bool) {
    for field in ty.fields() {
        if is_root && ["apiVersion", "kind", "metadata", "status"].contains(&field.name) {
            continue;
        }
        match (object.get_mut(field.name), &field.ty) {
            (Some(Value::Object(inner)), FieldType::Struct(id)) => {
                grow(id.get(), inner, random, one_in, false)
            }
            (Some(Value::Array(items)), FieldType::List(item)) => {
                let FieldType::Struct(id) = &**item else { continue };
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    grow(id.get(), item, random, one_in, false);
                }
            }
            (None, ty) if random.below(one_in) == 0 => {
                object.insert(field.name.to_owned(), leaf(ty, random));
            }
            _ => {}
        }
    }
}

/// A value, most often one that Go leaves out or writes otherwise.
fn leaf(ty: &FieldType, random: &mut Random) -> Value {
    match ty {
        FieldType::String => random.pick(&[json!(""), json!("x"), json!(null)]),
        FieldType::Bool => random.pick(&[json!(false), json!(true)]),
        FieldType::Int32 | FieldType::Int64 => random.pick(&[json!(0), json!(1), json!(null)]),
        FieldType::Float64 => json!(0.0),
        FieldType::Quantity => random.pick(&[json!("1000m"), json!("0.5"), json!("1024Ki"), json!(1)]),
        FieldType::IntOrString => random.pick(&[json!(1), json!("50%")]),
        FieldType::Time => random.pick(&[json!("2026-01-01T01:00:00.5+01:00"), json!(null)]),
        FieldType::MicroTime => random.pick(&[json!("2026-01-01T01:00:00.500000+01:00"), json!(null)]),
        FieldType::List(_) | FieldType::WrappedList(_) => random.pick(&[json!([]), json!(null)]),
        FieldType::Map(_) => random.pick(&[json!({}), json!(null)]),
        FieldType::Struct(_) => random.pick(&[json!({}), json!(null)]),
        _ => json!(null),
    }
}

/// The paths of all values in an object that are no struct, list or map.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                paths(value, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                paths(value, &format!("{path}/{at}"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// Another value of the same sort. What is not there is a zero that the server has dropped.
fn other(now: Option<&Value>, wanted: &Value) -> Vec<Value> {
    match now.unwrap_or(wanted) {
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) => vec![json!(number.as_i64().unwrap_or(0) + 1)],
        Value::String(text) => ["Never", "2", "IfNotPresent", "b", "2030-01-01T00:00:00.000000Z"]
            .into_iter()
            .filter(|value| value != text)
            .map(Value::from)
            .collect(),
        _ => vec![json!(true), json!(7), json!("b"), json!("Never")],
    }
}

/// Puts a value at a path whose last step may not be there yet.
fn put(object: &mut Value, path: &str, value: Value) -> bool {
    let (above, last) = path.rsplit_once('/').unwrap();
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(above) {
        Some(Value::Object(fields)) => {
            fields.insert(last, value);
            true
        }
        Some(Value::Array(items)) => match last.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
            Some(item) => {
                *item = value;
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// What became of one object.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    drifts: usize,
}

async fn check(world: &World, wanted: &Value, random: &mut Random) -> Tally {
    let (client, _running) = tracked(world).await;
    let (api, direct) = (api_of(client, wanted), api_of(world.direct(), wanted));
    let wish = dynamic(wanted);
    let mut tally = Tally::default();
    let Ok(_created) = ensure(&api, None, &wish).await else { return tally };
    tally.accepted = 1;
    second_writes_nothing(world, &api, &direct, &wish, wanted).await;
    let mut all = Vec::new();
    paths(wanted, "", &mut all);
    for _ in 0..6 {
        let path = all[random.below(all.len())].clone();
        if drift(&direct, &path, wanted).await {
            tally.drifts += 1;
            repaired(world, &api, &direct, &wish, &path).await;
        }
    }
    tally
}

async fn second_writes_nothing(
    world: &World,
    api: &Api<DynamicObject>,
    direct: &Api<DynamicObject>,
    wish: &DynamicObject,
    wanted: &Value,
) {
    let live = direct.get("one").await.unwrap();
    let before = writes(world, "controller");
    let done = ensure(api, Some(&live), wish).await.unwrap();
    assert_eq!(done, Ensured::Unchanged, "{wanted}\nis {}", live.data);
    assert_eq!(writes(world, "controller"), before);
}

/// Changes one mentioned field. Says whether the server let us.
async fn drift(direct: &Api<DynamicObject>, path: &str, wanted: &Value) -> bool {
    let before = serde_json::to_value(direct.get("one").await.unwrap()).unwrap();
    for value in other(before.pointer(path), wanted.pointer(path).unwrap()) {
        let mut drifted = before.clone();
        if !put(&mut drifted, path, value) {
            return false;
        }
        let Ok(drifted) = serde_json::from_value::<DynamicObject>(drifted) else { continue };
        let Ok(after) = direct.replace("one", &PostParams::default(), &drifted).await else { continue };
        let after = serde_json::to_value(after).unwrap();
        if after.pointer(path) != before.pointer(path) {
            return true;
        }
    }
    false
}

async fn repaired(
    world: &World,
    api: &Api<DynamicObject>,
    direct: &Api<DynamicObject>,
    wish: &DynamicObject,
    path: &str,
) {
    let drifted = direct.get("one").await.unwrap();
    let before = writes(world, "controller");
    let done = ensure(api, Some(&drifted), wish).await;
    assert_eq!(writes(world, "controller"), before + 1, "{path} of {}", drifted.data);
    // What cannot be changed back is not our fault: it was tried.
    let Ok(done) = done else { return };
    let Ensured::Updated(_) = done else { panic!("{path} of {} was left: {done:?}", drifted.data) };
    let live = direct.get("one").await.unwrap();
    let (was, is) = (serde_json::to_value(&drifted).unwrap(), serde_json::to_value(&live).unwrap());
    assert_ne!(was.pointer(path), is.pointer(path), "{path} has not changed back");
    assert_eq!(ensure(api, Some(&live), wish).await.unwrap(), Ensured::Unchanged, "{path}");
}

fn grown(seed: &Value, random: &mut Random) -> Value {
    let mut object = seed.clone();
    let ty = type_of(&object);
    // The more fields, the more often the server refuses the object.
    let one_in = [usize::MAX, 64, 32, 16, 8][random.below(5)];
    grow(ty, object.as_object_mut().unwrap(), random, one_in, true);
    object["metadata"]["labels"] = random.pick(&[json!({}), json!({"l": ""})]);
    object["metadata"]["annotations"] = random.pick(&[json!({}), json!({"a": ""})]);
    object
}

fn run_one(seed: &Value, number: u64) -> Tally {
    let mut random = Random(number);
    let wanted = grown(seed, &mut random);
    World::run(number, async |world| check(&world, &wanted, &mut random).await)
}

/// Each kind as it is, and with more and more fields: the server takes enough of them for the test to mean something.
#[test]
fn every_kind_is_ensured_once_and_repaired() {
    for seed in seeds() {
        let mut tally = Tally::default();
        for number in 0..12 {
            let Tally { accepted, drifts } = run_one(&seed, number);
            tally.accepted += accepted;
            tally.drifts += drifts;
        }
        assert!(tally.accepted > 0 && tally.drifts > 0, "{}: {tally:?}", seed["kind"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_wanted_is_ensured_once_and_repaired(kind in 0..seeds().len(), number in any::<u64>()) {
        run_one(&seeds()[kind], number);
    }
}
