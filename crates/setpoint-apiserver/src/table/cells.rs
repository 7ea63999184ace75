//! Pieces that many cells are made of.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Context;
use crate::label_query;

/// The text at a pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The same, with something to say when it is empty.
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => otherwise,
        text => text,
    }
}

/// The number at a pointer; 0 if there is none.
pub(super) fn int(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The flag at a pointer; false if there is none.
pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a pointer; empty if there is none.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How many entries the map at a pointer has.
pub(super) fn count(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// Whether there is anything at a pointer.
pub(super) fn has(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

/// A number or a text, as text.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A quantity at a pointer; one that nobody set is 0.
pub(super) fn quantity(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).map_or_else(|| "0".to_owned(), scalar)
}

/// Labels as text: `a=1,b=2`.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let labels = object.pointer(pointer).and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", scalar(value)));
    or_none(pairs.collect::<Vec<_>>().join(","))
}

/// A label selector as text, or `<none>`.
pub(super) fn selector(object: &Value, pointer: &str) -> String {
    or_none(label_query::of(object.pointer(pointer).unwrap_or(&Value::Null)))
}

pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// The names and the images of the containers at a pointer.
pub(super) fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let join = |field: &str| {
        let texts = list(object, pointer).iter().map(|container| text(container, field));
        Value::from(texts.collect::<Vec<_>>().join(","))
    };
    [join("/name"), join("/image")]
}

/// At most so many items, and how many there are beyond.
pub(super) fn first_of(items: &[String], most: usize, separator: &str) -> String {
    let shown = items[..items.len().min(most)].join(separator);
    match items.len().checked_sub(most) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} + {more} more..."),
    }
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// The time at a pointer.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

impl Context {
    /// The time since a time: `5d4h`.
    pub(super) fn since(&self, time: Option<Timestamp>) -> String {
        match time {
            None => "<unknown>".to_owned(),
            Some(time) => human_duration(self.now.duration_since(time)),
        }
    }

    /// The time since the object was created.
    pub(super) fn age(&self, object: &Value) -> Value {
        self.since(time(object, "/metadata/creationTimestamp")).into()
    }
}

/// A duration with two or three digits that matter. Clocks may differ by a second.
pub(super) fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_have_the_digits_that_matter() {
        let check = |seconds: i64, expect: &str| {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expect, "{seconds}");
        };
        let (minute, hour, day) = (60, 3600, 86400);
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(2 * minute, "2m");
        check(2 * minute + 3, "2m3s");
        check(10 * minute + 3, "10m");
        check(3 * hour - 1, "179m");
        check(3 * hour + 5 * minute, "3h5m");
        check(8 * hour + 5 * minute, "8h");
        check(2 * day - 1, "47h");
        check(5 * day + 4 * hour, "5d4h");
        check(8 * day + 4 * hour, "8d");
        check(365 * day, "365d");
        check(730 * day, "2y");
        check(740 * day, "2y10d");
        check(8 * 365 * day, "8y");
        let half = SignedDuration::from_millis(-500);
        assert_eq!(human_duration(half), "0s");
    }

    #[test]
    fn long_lists_are_cut() {
        let items: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        assert_eq!(first_of(&items, 3, ","), "a,b,c + 2 more...");
        assert_eq!(first_of(&items[..3], 3, ","), "a,b,c");
        assert_eq!(first_of(&[], 3, ","), "");
    }

    #[test]
    fn labels_and_selectors_read_as_people_type_them() {
        let object =
            json!({"labels": {"b": "2", "a": "1"}, "selector": {"matchLabels": {"a": "1"}}, "none": {}});
        assert_eq!(labels(&object, "/labels"), "a=1,b=2");
        assert_eq!(labels(&object, "/none"), "<none>");
        assert_eq!(selector(&object, "/selector"), "a=1");
        assert_eq!(selector(&object, "/missing"), "<none>");
    }
}
