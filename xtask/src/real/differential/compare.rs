//! How two answers differ.

use std::fmt;

use serde_json::Value;

use super::{Answer, mask};

/// One difference: where, and what each server says.
pub(super) struct Difference {
    pub(super) place: String,
    ours: Value,
    theirs: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Value| if value.is_null() { "nothing".to_owned() } else { value.to_string() };
        write!(f, "{}: {}, should be {}", self.place, show(&self.ours), show(&self.theirs))
    }
}

pub(super) fn answers(ours: &Answer, theirs: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    if ours.code != theirs.code {
        // The bodies are about different things then: their messages say enough.
        let brief = |answer: &Answer| match answer.body["message"].as_str() {
            Some(message) if answer.code >= 300 => format!("{}: {message}", answer.code),
            _ => answer.code.to_string(),
        };
        found.push(Difference {
            place: "code".to_owned(),
            ours: brief(ours).into(),
            theirs: brief(theirs).into(),
        });
        return found;
    }
    let [ours, theirs] = [ours, theirs].map(|answer| mask::body(answer.body.clone()));
    collect(String::new(), &ours, &theirs, &mut found);
    found
}

fn collect(path: String, ours: &Value, theirs: &Value, found: &mut Vec<Difference>) {
    match (ours, theirs) {
        _ if ours == theirs => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let absent = Value::Null;
                collect(path, a.get(key).unwrap_or(&absent), b.get(key).unwrap_or(&absent), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (ours, theirs)) in a.iter().zip(b).enumerate() {
                collect(format!("{path}[{index}]"), ours, theirs, found);
            }
        }
        _ => found.push(Difference { place: path, ours: ours.clone(), theirs: theirs.clone() }),
    }
}
