//! How an object is, in a few words.

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use tokio::time::timeout;

use super::tree::Node;
use super::{ANSWER_TIME, Objects, Shown};

/// Of how many objects of a tree the state is read.
const MOST: usize = 60;
const AT_ONCE: usize = 8;

impl Objects {
    /// Adds the states of the first objects. One that was read at the same version is not read again.
    pub(super) async fn add_states(&self, shown: &Shown, nodes: &mut [Node]) {
        let mut reading: Vec<BoxFuture<'_, ()>> = Vec::new();
        for node in nodes {
            if node.resource != "secrets" && reading.len() < MOST {
                reading.push(Box::pin(self.add_state(shown, node)));
            }
        }
        stream::iter(reading).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    async fn add_state(&self, shown: &Shown, node: &mut Node) {
        let place = (node.resource.clone(), node.key.clone());
        if let Some((version, state)) = self.states.lock().get(&place)
            && *version == node.version
        {
            node.state = state.clone();
            return;
        }
        let Ok(kind) = shown.kind(&node.resource) else { return };
        let api = kind.resource.objects(&self.client, node.key.namespace());
        // What cannot be read has no state; the tree shows that it is there.
        if let Ok(Ok(object)) = timeout(ANSWER_TIME, api.get(node.key.name())).await {
            node.state = in_words(&object.data);
            self.states.lock().put(place, (node.version.clone(), node.state.clone()));
        }
    }
}

/// What `status` says, shortly: a phase, how many are ready, the condition that matters.
fn in_words(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut words = Vec::new();
    if let Some(phase) = status["phase"].as_str() {
        words.push(phase.to_owned());
    }
    let ready = status["readyReplicas"].as_i64().or_else(|| status["availableReplicas"].as_i64());
    let wanted = spec["replicas"].as_i64();
    if let Some(wanted) = wanted.filter(|_| status.is_object()) {
        words.push(format!("{} of {wanted} ready", ready.unwrap_or(0)));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let matters = ["Ready", "Available", "Complete", "Failed", "Established"];
    let of_note = conditions.filter(|condition| matters.iter().any(|name| condition["type"] == **name));
    let of_note: Vec<&Value> = of_note.collect();
    let is_true = |condition: &&&Value| condition["status"] == "True";
    let worst = of_note.iter().find(|condition| is_bad(condition)).or_else(|| of_note.iter().find(is_true));
    if let Some(condition) = worst {
        let name = condition["type"].as_str().unwrap_or_default();
        match condition["status"].as_str() {
            Some("True") => words.push(name.to_owned()),
            _ => {
                let why = condition["reason"].as_str().unwrap_or("no reason given");
                words.push(format!("not {name} ({why})"));
            }
        }
    }
    words.join(", ")
}

/// Whether a condition says that something is wrong. What is not complete is not wrong: it is under way.
fn is_bad(condition: &Value) -> bool {
    let is_true = condition["status"] == "True";
    match condition["type"].as_str() {
        Some("Failed") => is_true,
        Some("Complete") => false,
        _ => !is_true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_a_few_words() {
        let check = |object: Value, expect: &str| assert_eq!(in_words(&object), expect);
        check(json!({"data": {}}), "");
        check(json!({"status": {"phase": "Running"}}), "Running");
        let ready = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady"});
        check(
            json!({"status": {"phase": "Pending", "conditions": [ready]}}),
            "Pending, not Ready (ContainersNotReady)",
        );
        let available = json!({"type": "Available", "status": "True"});
        check(
            json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2, "conditions": [available]}}),
            "2 of 3 ready, Available",
        );
        let conditions =
            json!([{"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True"}]);
        check(json!({"status": {"conditions": conditions}}), "Failed");
    }
}
