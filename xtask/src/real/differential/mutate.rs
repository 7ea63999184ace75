//! Mutations of single fields, chosen with a fixed seed: what nobody thought of.

use serde_json::{Value, json};

use super::kinds::{Change, Kind};

/// How many mutations of each good object of a kind are sent.
const MUTATIONS: usize = 24;

/// The mutated objects of a kind, with what was done to them.
pub(super) fn all(kind: &Kind) -> Vec<(String, Value)> {
    let mut random = Random::new(&kind.name);
    let mut mutated = Vec::new();
    // A generated name is in every message.
    for (name, object) in kind.good().filter(|(_, object)| object["metadata"]["name"].is_string()) {
        let mut places = Vec::new();
        collect(object, String::new(), &mut places);
        places.retain(|place| !matches!(place.as_str(), "/apiVersion" | "/kind" | "/metadata"));
        for _ in 0..MUTATIONS.min(places.len() * 3) {
            let place = random.choose(&places).clone();
            let Some(value) = object.pointer(&place) else { continue };
            let change = Change::one(&place, mutation(value, &mut random));
            let mut object = object.clone();
            change.apply(&mut object);
            mutated.push((format!("{name} and {change}"), object));
        }
    }
    mutated.sort_by(|a, b| a.0.cmp(&b.0));
    mutated.dedup_by(|a, b| a.0 == b.0);
    mutated
}

/// Every place in an object.
fn collect(value: &Value, path: String, places: &mut Vec<String>) {
    if !path.is_empty() {
        places.push(path.clone());
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{path}/{key}"), places);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("{path}/{index}"), places);
            }
        }
        _ => {}
    }
}

/// What to put there instead; none: nothing.
fn mutation(value: &Value, random: &mut Random) -> Option<Value> {
    let choices: Vec<Option<Value>> = match value {
        Value::String(_) => vec![
            None,
            Some(json!("")),
            Some(json!("Not_Valid!")),
            Some(json!("x".repeat(300))),
            Some(json!("-a")),
            Some(json!("a.b")),
            Some(json!("12")),
        ],
        Value::Number(_) => {
            vec![None, Some(json!(-1)), Some(json!(0)), Some(json!(70000)), Some(json!(2_000_000_000))]
        }
        Value::Bool(flag) => vec![None, Some(json!(!flag))],
        Value::Array(items) => {
            let mut twice = items.clone();
            twice.extend(items.first().cloned());
            vec![None, Some(json!([])), Some(twice.into())]
        }
        Value::Object(_) => vec![None, Some(json!({}))],
        Value::Null => vec![None],
    };
    random.choose(&choices).clone()
}

/// A small generator of numbers; the same name gives the same numbers.
struct Random(u64);

impl Random {
    fn new(name: &str) -> Random {
        Random(name.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        &choices[(self.0 % choices.len() as u64) as usize]
    }
}
