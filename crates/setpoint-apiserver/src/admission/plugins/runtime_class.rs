//! `RuntimeClass`: what the class of a pod's runtime asks for.

use serde_json::{Map, Value};
use setpoint_kinds::Quantity;

use super::super::{Attributes, Operation};
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;

/// The class that a pod names, if it names one.
async fn class_of(core: &Core, attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    let classes = Registry::built_in().expect("node.k8s.io", "v1", "runtimeclasses");
    match read(core, &classes.key(None, name)).await? {
        Some(record) => Ok(Some(object::decode(&record.value, record.revision))),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(attributes.forbidden(Some(pod), &why))
        }
    }
}

/// Puts what the class says into a new pod: what the runtime itself takes, and where it runs.
pub(super) async fn admit(core: &Core, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    let Some(class) = class_of(core, attributes, pod).await? else { return Ok(()) };
    if let Some(overhead) = overhead_of(&class) {
        if has_overhead(pod) && !are_same_amounts(overhead, &pod["spec"]["overhead"]) {
            return Err(attributes.forbidden(Some(pod), DIFFERS));
        }
        pod["spec"]["overhead"] = overhead.clone();
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        match pod["spec"]["nodeSelector"].get(key) {
            Some(given) if given != value => {
                let (value, given) = (value.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = \
                     {given}"
                );
                return Err(attributes.forbidden(Some(pod), &why));
            }
            _ => pod["spec"]["nodeSelector"][key] = value.clone(),
        }
    }
    if let Some(more) = scheduling["tolerations"].as_array() {
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        all.extend(more.iter().cloned());
        pod["spec"]["tolerations"] = Value::Array(merged(&all));
    }
    Ok(())
}

const DIFFERS: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub(super) async fn validate(core: &Core, attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let class = class_of(core, attributes, pod).await?;
    match class.as_ref().and_then(overhead_of) {
        Some(overhead) if are_same_amounts(overhead, &pod["spec"]["overhead"]) => Ok(()),
        Some(_) => Err(attributes.forbidden(Some(pod), DIFFERS)),
        None if pod["spec"].get("overhead").is_some_and(|overhead| !overhead.is_null()) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(attributes.forbidden(Some(pod), why))
        }
        None => Ok(()),
    }
}

fn overhead_of(class: &Value) -> Option<&Value> {
    class.get("overhead")?.get("podFixed")
}

fn has_overhead(pod: &Value) -> bool {
    pod["spec"]["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty())
}

/// Whether two lists of resources mean the same.
fn are_same_amounts(one: &Value, other: &Value) -> bool {
    let empty = Map::new();
    let of = |amounts: &Value| amounts.as_object().unwrap_or(&empty).clone();
    let (one, other) = (of(one), of(other));
    let amount = |value: &Value| value.as_str().map(Quantity::of);
    one.len() == other.len()
        && one.iter().all(|(name, value)| other.get(name).is_some_and(|found| amount(found) == amount(value)))
}

/// Tolerations without those that another one covers.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|other| covers(other, one))
            || all[at + 1..].iter().any(|other| other != one && covers(other, one));
        if !is_covered {
            merged.push(one.clone());
        }
    }
    merged
}

/// Whether a toleration tolerates all that another one does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    if effect == "NoExecute"
        && let Some(seconds) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|other| other > seconds)
    {
        return false;
    }
    let key = text(wide, "key");
    match text(wide, "operator").as_str() {
        "Exists" => key.is_empty() || key == text(narrow, "key"),
        "Equal" | "" => {
            narrow["operator"] == "Equal"
                && key == text(narrow, "key")
                && text(wide, "value") == text(narrow, "value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_that_another_one_covers_is_left_out() {
        let exists = json!({"key": "a", "operator": "Exists"});
        let equal = json!({"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"});
        let short = json!({"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "b", "operator": "Exists", "effect": "NoExecute"});
        for (all, expect) in [
            (vec![&equal, &exists], vec![&exists]),
            (vec![&exists, &equal, &exists], vec![&exists]),
            (vec![&short, &long], vec![&long]),
            (vec![&equal, &short], vec![&equal, &short]),
        ] {
            let all: Vec<Value> = all.into_iter().cloned().collect();
            assert_eq!(merged(&all).iter().collect::<Vec<_>>(), expect);
        }
    }
}
