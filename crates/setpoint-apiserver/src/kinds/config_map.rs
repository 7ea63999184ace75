//! Config maps.

use serde_json::Value;

use super::at::{At, same};
use super::formats;

/// What all values of a config map or of a secret may take together.
pub(super) const MAX_SIZE: usize = 1024 * 1024;

pub(super) fn validate(map: &At, old: Option<&Value>) {
    if let Some(old) = old {
        immutable(map, old, &["data", "binaryData"]);
    }
    let (data, binary) = (map.field("data"), map.field("binaryData"));
    let mut size = 0;
    for (key, value) in data.entries() {
        problems_of_key(key, &value);
        if binary.field(key).exists() {
            value.invalid_as(key, "duplicate of key present in binaryData");
        }
        size += value.text().len();
    }
    for (key, value) in binary.entries() {
        problems_of_key(key, &value);
        size += decoded_len(value.text());
    }
    if size > MAX_SIZE {
        map.alias("").too_long(MAX_SIZE);
    }
}

pub(super) fn problems_of_key(key: &str, value: &At) {
    for problem in formats::config_key(key) {
        value.invalid_as(key, problem);
    }
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take(2).filter(|byte| *byte == b'=').count()
}

/// What is marked as immutable stays as it is, and stays marked.
pub(super) fn immutable(object: &At, old: &Value, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if !object.field("immutable").is_true() {
        object.field("immutable").forbidden(DETAIL);
    }
    for field in fields.iter().filter(|field| !same(object.field(field).value(), &old[**field])) {
        object.field(field).forbidden(DETAIL);
    }
}
