//! Strict decoding: what is wrong with the fields of a JSON text, as Go's decoder comes upon it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::MAX_DUPLICATES;
use super::json::Path;

/// What is wrong with the fields of a JSON text, in the order of the text: duplicates, and fields that are unknown, which
/// are given by their paths. What is in an unknown field is not looked at.
pub(crate) fn errors(text: &[u8], unknown: impl Iterator<Item = String>) -> Vec<String> {
    let text: Cow<'_, str> = String::from_utf8_lossy(text);
    let unknown: BTreeSet<String> = unknown.collect();
    let (found, spelled) = (RefCell::new(Vec::new()), Cell::new(0));
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let review = Review { path: &Path::Root, unknown: &unknown, found: &found, spelled: &spelled };
    // It was read before, so it can be read again.
    let _read = review.deserialize(&mut deserializer);
    let mut found = found.into_inner();
    // Nothing is left, unless the paths were too long to look at all of them.
    for path in &unknown {
        note(&mut found, format!("unknown field {path:?}"));
    }
    found
}

fn note(found: &mut Vec<String>, problem: String) {
    if found.len() < MAX_DUPLICATES && !found.contains(&problem) {
        found.push(problem);
    }
}

/// Looks at a value once more for the order of its problems.
#[derive(Clone, Copy)]
struct Review<'a> {
    path: &'a Path<'a>,
    unknown: &'a BTreeSet<String>,
    found: &'a RefCell<Vec<String>>,
    spelled: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Review<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Review<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let path = Path::Item(self.path, index);
            if items.next_element_seed(Review { path: &path, ..self })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let Some(text) = path.spell(self.spelled) else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.unknown.contains(&text) {
                note(&mut self.found.borrow_mut(), format!("unknown field {text:?}"));
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            if seen.contains(&name) {
                note(&mut self.found.borrow_mut(), format!("duplicate field {text:?}"));
            }
            fields.next_value_seed(Review { path: &path, ..self })?;
            seen.insert(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, unknown: &[&str], expected: &[&str]) {
        assert_eq!(errors(text.as_bytes(), unknown.iter().map(ToString::to_string)), expected, "{text}");
    }

    #[test]
    fn problems_come_in_the_order_of_the_text() {
        check(
            r#"{"b": 1, "a": {"x": [{"y": 1, "y": 2}]}, "c": {"z": 1, "z": 2}, "a": {}}"#,
            &["c", "b"],
            &[
                r#"unknown field "b""#,
                r#"duplicate field "a.x[0].y""#,
                r#"unknown field "c""#,
                r#"duplicate field "a""#,
            ],
        );
    }

    #[test]
    fn what_cannot_be_found_again_is_told_at_the_end() {
        check(r#"{"a": 1, "a": 2}"#, &["q"], &[r#"duplicate field "a""#, r#"unknown field "q""#]);
    }

    #[test]
    fn many_problems_at_the_end_of_a_long_path_are_not_all_spelled_out() {
        let many = r#""k":1,"#.repeat(100_000);
        let long = "x".repeat(1 << 20);
        let text = format!(r#"{{"{long}":{{{many}"z":1}},"unknown":1}}"#);
        let found = errors(text.as_bytes(), ["unknown".to_owned()].into_iter());
        assert_eq!((found.len(), found.last().unwrap().as_str()), (2, r#"unknown field "unknown""#));
        assert_eq!(super::super::parse_json(text.as_bytes()).unwrap().duplicates.len(), 1);
    }
}
