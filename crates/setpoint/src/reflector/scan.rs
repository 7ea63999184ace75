//! Finds its way through JSON bytes without building anything.
//!
//! The scanner trusts its input to be JSON and only looks for where values end; what it finds is parsed by
//! serde_json afterwards, which notices anything wrong.

use std::ops::Range;

/// The first position at or after `at` that is not white space.
pub(super) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The position after the string whose opening quote is before `at`; `None` if it does not end here.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += next_quote_or_backslash(&bytes[at.min(bytes.len())..])?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Eight bytes a step: the strings of Kubernetes objects are too short for a call to memchr to pay.
fn next_quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_byte(word ^ (ONES * b'"' as u64)) | zero_byte(word ^ (ONES * b'\\' as u64));
        if found != 0 {
            return Some(i * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + at)
}

/// A place inside a value, from which a scan can go on when more bytes have come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) at: usize,
    depth: usize,
}

impl Place {
    pub(super) fn new(at: usize) -> Place {
        Place { at, depth: 0 }
    }

    /// Moves past the end of the value; false if the bytes end first (then call again with more of them).
    pub(super) fn skip_value(&mut self, bytes: &[u8]) -> bool {
        if self.depth == 0 {
            self.at = skip_space(bytes, self.at);
        }
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'"' => match string_end(bytes, self.at + 1) {
                    Some(end) => self.at = end,
                    None => return false,
                },
                b'{' | b'[' => {
                    self.depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.at += 1;
                }
                _ if self.depth == 0 => return self.skip_scalar(bytes),
                _ => self.at += 1,
            }
            if self.depth == 0 {
                return true;
            }
        }
        false
    }

    /// A number or a word ends only where something else begins.
    fn skip_scalar(&mut self, bytes: &[u8]) -> bool {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let mut end = self.at;
        while bytes.get(end).is_some_and(is_part) {
            end += 1;
        }
        if end == bytes.len() {
            return false;
        }
        // What is not JSON counts as a value of one byte, so that no caller loops; serde_json will say what
        // is wrong.
        self.at = end.max(self.at + 1);
        true
    }
}

/// The members of one JSON object, found one after the other.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A member: where its key (with quotes) starts, the key as it is spelled, where its value starts.
pub(super) struct Member<'a> {
    pub(super) start: usize,
    pub(super) key: &'a [u8],
    pub(super) value: usize,
}

impl<'a> Members<'a> {
    /// The members of the object that begins at or after `at`; `None` if there is no object.
    pub(super) fn of(bytes: &'a [u8], at: usize) -> Option<Members<'a>> {
        let at = skip_space(bytes, at);
        (bytes.get(at) == Some(&b'{')).then_some(Members { bytes, at: at + 1 })
    }

    /// The next member. The caller then says where its value ended, with [`Members::go_on`].
    pub(super) fn next(&mut self) -> Option<Member<'a>> {
        let mut start = skip_space(self.bytes, self.at);
        if self.bytes.get(start) == Some(&b',') {
            start = skip_space(self.bytes, start + 1);
        }
        if self.bytes.get(start) != Some(&b'"') {
            return None;
        }
        let end = string_end(self.bytes, start + 1)?;
        let colon = skip_space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return None;
        }
        let value = skip_space(self.bytes, colon + 1);
        self.at = value;
        Some(Member { start, key: &self.bytes[start + 1..end - 1], value })
    }

    /// Skips the value of the last member, and gives the position after it.
    pub(super) fn skip_value(&mut self) -> Option<usize> {
        let mut place = Place::new(self.at);
        place.skip_value(self.bytes).then(|| {
            self.at = place.at;
            place.at
        })
    }
}

/// Where `metadata.managedFields` is in the bytes of an object: the member with one comma, so that what is
/// left without it is JSON again.
pub(super) fn find_managed_fields(object: &[u8]) -> Option<Range<usize>> {
    let mut members = Members::of(object, 0)?;
    while let Some(member) = members.next() {
        if member.key == b"metadata" {
            let mut metadata = Members::of(object, member.value)?;
            // Up to where the member before ended.
            let mut kept = None;
            while let Some(member) = metadata.next() {
                let end = metadata.skip_value()?;
                if member.key == b"managedFields" {
                    return Some(with_comma(object, kept, member.start..end));
                }
                kept = Some(end);
            }
            return None;
        }
        members.skip_value()?;
    }
    None
}

/// Adds to the range of a member the comma before it, or the one after it if it is the first member.
pub(super) fn with_comma(bytes: &[u8], kept: Option<usize>, member: Range<usize>) -> Range<usize> {
    match kept {
        Some(kept) => kept..member.end,
        None => {
            let after = skip_space(bytes, member.end);
            member.start..if bytes.get(after) == Some(&b',') { after + 1 } else { member.end }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    pub(in crate::reflector) fn any_json() -> impl Strategy<Value = Value> {
        let text = "[a-z\"\\\\{}\\[\\],: \n\u{e9}\u{1f980}]{0,12}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i16>().prop_map(|n| Value::from(f64::from(n) / 16.0)),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let key = prop_oneof![
                1 => Just("metadata".to_owned()),
                1 => Just("managedFields".to_owned()),
                4 => text.prop_map(|text: String| text),
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    /// An object with metadata in some place, which has managedFields in some place, or not.
    pub(in crate::reflector) fn any_object() -> impl Strategy<Value = Value> {
        let members = || proptest::collection::vec(("[a-zA-Z\"\\\\]{1,6}", any_json()), 0..4);
        (members(), members(), proptest::option::of(any_json()), any::<prop::sample::Index>()).prop_map(
            |(outer, inner, managed, at)| {
                let build = |members: Vec<(String, Value)>, name: &str, value: Option<Value>| {
                    let mut members: Vec<_> = members.into_iter().filter(|(key, _)| key != name).collect();
                    let place = at.index(members.len() + 1);
                    members.splice(place..place, value.map(|value| (name.to_owned(), value)));
                    Value::Object(members.into_iter().collect())
                };
                let metadata = build(inner, "managedFields", managed);
                build(outer, "metadata", Some(metadata))
            },
        )
    }

    fn spellings(value: &Value) -> [String; 2] {
        [serde_json::to_string(value).unwrap(), serde_json::to_string_pretty(value).unwrap()]
    }

    proptest! {
        #[test]
        fn a_skipped_value_ends_where_serde_json_ends(value in any_json(), cut in any::<prop::sample::Index>()) {
            for text in spellings(&value) {
                let bytes = format!(" {text} ,").into_bytes();
                let mut whole = Place::new(0);
                prop_assert!(whole.skip_value(&bytes));
                prop_assert_eq!(whole.at, text.len() + 1);

                // In two pieces, it goes on from where it was.
                let mut pieces = Place::new(0);
                if !pieces.skip_value(&bytes[..cut.index(bytes.len())]) {
                    prop_assert!(pieces.skip_value(&bytes));
                    prop_assert_eq!(pieces.at, text.len() + 1);
                }
            }
        }

        #[test]
        fn cutting_managed_fields_out_is_the_same_as_removing_them(object in any_object()) {
            for text in spellings(&object) {
                let mut bytes = text.into_bytes();
                if let Some(range) = find_managed_fields(&bytes) {
                    bytes.drain(range);
                }
                let mut expected = object.clone();
                if let Some(metadata) = expected["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                prop_assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), expected);
            }
        }

        #[test]
        fn the_scanner_survives_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            find_managed_fields(&bytes);
            Place::new(0).skip_value(&bytes);
        }
    }

    #[test]
    fn managed_fields_of_something_inside_the_object_stay() {
        let text = r#"{"spec":{"metadata":{"managedFields":[1]}},"metadata":{"name":"a","x":{"managedFields":[2]}}}"#;
        assert_eq!(find_managed_fields(text.as_bytes()), None);
    }
}
