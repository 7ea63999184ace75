//! What a script has printed, without what differs from run to run.

use std::time::Duration;

use serde_json::Value;

/// All parts, in order.
#[derive(Default)]
pub(super) struct Transcript {
    parts: Vec<Part>,
    /// From the APIService to the first answer of its server.
    pub(super) first_answer: Duration,
}

pub(super) struct Part {
    pub(super) name: String,
    /// What was done, and what was printed.
    pub(super) steps: Vec<(String, String)>,
}

impl Transcript {
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn begin(&mut self, name: String) {
        self.parts.push(Part { name, steps: Vec::new() });
    }

    pub(super) fn step(&mut self, done: &str, printed: String) {
        if let Some(part) = self.parts.last_mut() {
            part.steps.push((done.to_owned(), printed));
        }
    }
}

impl Transcript {
    /// Keeps only this of the last step.
    pub(super) fn keep_last(&mut self, words: &str) {
        if let Some((_, text)) = self.parts.last_mut().and_then(|part| part.steps.last_mut()) {
            words.clone_into(text);
        }
    }

    /// Keeps only the first bytes of the last step.
    pub(super) fn shorten_last(&mut self, length: usize) {
        if let Some((_, text)) = self.parts.last_mut().and_then(|part| part.steps.last_mut()) {
            text.truncate(length);
        }
    }
}

/// A text without ports, times, and words that are new in each run.
pub(super) fn plain(text: &str, port: u16) -> String {
    // How the name of this machine is found out is the resolver's business.
    let text = text.replace(&port.to_string(), "PORT").replace("dial tcp 127.0.0.1:", "dial tcp localhost:");
    if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
        scrub(&mut value);
        return value.to_string();
    }
    let word = |word: &str| match word {
        time if is_time(time) => "TIME".to_owned(),
        age if is_age(age) => "AGE".to_owned(),
        word => word.to_owned(),
    };
    let is_of_run =
        |line: &&str| !["UID:", "Resource Version:"].iter().any(|field| line.trim().starts_with(field));
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().filter(is_of_run).map(line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn is_time(word: &str) -> bool {
    word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T'
}

fn is_age(word: &str) -> bool {
    let number = word.trim_end_matches(['s', 'm', 'h']);
    number.len() < word.len()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'm')
}

/// Takes out of an object what each server decides for itself.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime", "hash"]
            {
                fields.remove(name);
            }
            fields.values_mut().for_each(scrub);
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        _ => {}
    }
}
