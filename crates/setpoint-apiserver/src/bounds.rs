//! How large an object may be, whoever makes it: a body, a patch, defaults, a webhook, a conversion.
//!
//! A [`Value`] recurses when it is cloned, compared, written or dropped, and so does all that handlers do to objects. A
//! stack that overflows ends the process, not the request. So no handler gets a value that is not [`Bounded`], and what
//! makes values larger (the copies of a JSON patch, the defaults of a schema) has a [`Room`] to fill, and checks it first.

use std::cell::Cell;
use std::ops::Deref;

use serde_json::{Map, Value};

use crate::body::MAX_BODY;

/// How deep arrays and objects may be nested in an object: 119 levels. (kube-apiserver: 10,000.) With its owners, and
/// within a review, it can then still be read.
pub(crate) const MAX_DEPTH: usize = READABLE - OWNERS_DEPTH - REVIEW_DEPTH;
/// What `serde_json` reads, here and in most clients in Rust.
const READABLE: usize = 127;
/// `managedFields` repeat the object in `metadata.managedFields[].fieldsV1`, and have an object for each scalar.
const OWNERS_DEPTH: usize = 5;
/// A ConversionReview has its objects in `response.convertedObjects[]`.
const REVIEW_DEPTH: usize = 3;
/// How many values an object may have, each item and each field counted. A value takes up to 600 bytes of memory.
pub(crate) const MAX_NODES: usize = 250_000;
/// The largest object that is stored: whatever is read can be sent back, since a body may be a little larger.
pub(crate) const MAX_OBJECT: usize = MAX_BODY - 4096;
/// How many bytes of text an object may have before its encoded form is looked at: more than any store can hold already, or
/// what is too large could not shrink.
const MAX_TEXT: usize = 2 * MAX_BODY;
/// By how much an object may be larger when it is marked as deleted: otherwise the largest could not be deleted.
const MARK: usize = 1024;
const _: () = assert!(MAX_OBJECT + MARK < MAX_BODY, "a marked object can be sent back, too");

/// Which bound an object is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exceeded {
    #[error("an object may be nested {MAX_DEPTH} levels deep, and this one would be deeper")]
    Depth,
    #[error("an object may have {MAX_NODES} values, and this one would have more")]
    Nodes,
    #[error("an object may take {MAX_OBJECT} bytes as JSON, and this one would take more")]
    Bytes,
    #[error("the patch changes too large values too often")]
    Work,
}

/// How large an object may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    depth: usize,
    nodes: usize,
    bytes: usize,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { depth: MAX_DEPTH, nodes: MAX_NODES, bytes: MAX_TEXT }
    }
}

impl Allowance {
    /// That of an object that takes the place of `old`. What is beyond a bound already, from before there was one, may stay
    /// so, or nobody could make it smaller or take its finalizers away.
    fn of_change(old: &Value) -> Allowance {
        let all = Allowance { depth: MAX_DEPTH + OWNERS_DEPTH, nodes: usize::MAX, bytes: usize::MAX };
        let Ok(room) = all.measure(old) else { return Allowance::default() };
        let is_deep = Allowance { depth: MAX_DEPTH, ..all }.measure(old).is_err();
        Allowance {
            depth: if is_deep { all.depth } else { MAX_DEPTH },
            nodes: MAX_NODES.max(all.nodes - room.nodes),
            bytes: MAX_TEXT.max(all.bytes - room.bytes),
        }
    }

    /// Whether an object is within it.
    pub(crate) fn check(self, object: &Value) -> Result<(), Exceeded> {
        self.measure(object).map(drop)
    }

    /// What an object leaves of it.
    fn measure(self, object: &Value) -> Result<Room, Exceeded> {
        let mut room = Room { nodes: self.nodes, bytes: self.bytes };
        let Value::Object(fields) = object else { return room.take(object, self.depth).map(|()| room) };
        for (name, value) in fields {
            let depth = if name == "metadata" { MAX_DEPTH + OWNERS_DEPTH } else { self.depth };
            room.bytes(name.len())?;
            room.take(value, depth - 1)?;
        }
        Ok(room)
    }
}

/// An object that is not too deep and not too large.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bounded {
    value: Value,
    allowance: Allowance,
}

impl Bounded {
    /// Checks an object. This and [`Bounded::change`] are the only ways to make one.
    pub(crate) fn new(value: Value) -> Result<Bounded, Exceeded> {
        Bounded::within(value, Allowance::default())
    }

    /// Checks an object that takes the place of `old`.
    pub(crate) fn change(value: Value, old: &Value) -> Result<Bounded, Exceeded> {
        let is_usual = check(&value).is_ok();
        Bounded::within(value, if is_usual { Allowance::default() } else { Allowance::of_change(old) })
    }

    fn within(value: Value, allowance: Allowance) -> Result<Bounded, Exceeded> {
        match allowance.check(&value) {
            Ok(()) => Ok(Bounded { value, allowance }),
            Err(exceeded) => {
                dismantle(value);
                Err(exceeded)
            }
        }
    }

    /// Drops a field.
    pub(crate) fn remove(&mut self, field: &str) {
        if let Some(fields) = self.value.as_object_mut() {
            fields.remove(field);
        }
    }

    /// How large it may be.
    pub(crate) fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// The object, for changes that cannot make it much larger.
    pub(crate) fn into_value(self) -> Value {
        self.value
    }
}

impl Deref for Bounded {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// Whether an object is within the bounds.
pub(crate) fn check(object: &Value) -> Result<(), Exceeded> {
    Allowance::default().check(object)
}

/// Whether `value` can be put `levels` deep into an object.
pub(crate) fn check_depth(value: &Value, levels: usize) -> Result<(), Exceeded> {
    match (MAX_DEPTH + OWNERS_DEPTH).checked_sub(levels) {
        Some(left) if !is_deeper(value, left) => Ok(()),
        _ => Err(Exceeded::Depth),
    }
}

/// Recurses no deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// Whether the bytes of an object can be stored. What is larger already, from before there was a limit, may shrink.
pub(crate) fn check_stored(new: &[u8], old: Option<&[u8]>) -> Result<(), Exceeded> {
    if new.len() <= MAX_OBJECT || old.is_some_and(|old| new.len() <= old.len()) {
        return Ok(());
    }
    let is_marked = memchr::memmem::find(new, b"\"deletionTimestamp\"").is_some();
    if is_marked && new.len() <= MAX_OBJECT + MARK { Ok(()) } else { Err(Exceeded::Bytes) }
}

/// What may still be added to an object.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    nodes: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { nodes: MAX_NODES, bytes: MAX_TEXT }
    }
}

impl Room {
    /// Takes the room that `value` needs, if it is no deeper than `depth`. Recurses no deeper than that.
    pub(crate) fn take(&mut self, value: &Value, depth: usize) -> Result<(), Exceeded> {
        self.nodes = self.nodes.checked_sub(1).ok_or(Exceeded::Nodes)?;
        match value {
            Value::Array(_) | Value::Object(_) if depth == 0 => Err(Exceeded::Depth),
            Value::Array(items) => items.iter().try_for_each(|item| {
                self.bytes(1)?;
                self.take(item, depth - 1)
            }),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                self.bytes(name.len() + 4)?;
                self.take(value, depth - 1)
            }),
            Value::String(text) => self.bytes(text.len() + 2),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.bytes(1),
        }
    }

    /// The same for a value that an object may hold at some place.
    pub(crate) fn take_part(&mut self, value: &Value) -> Result<(), Exceeded> {
        self.take(value, MAX_DEPTH + OWNERS_DEPTH)
    }

    /// How many values it has room for.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    fn bytes(&mut self, more: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.checked_sub(more).ok_or(Exceeded::Bytes)?;
        Ok(())
    }
}

/// Counts what a decoder makes while it makes it: aliases and short texts make much of little.
#[derive(Debug)]
pub(crate) struct Meter {
    nodes: Cell<usize>,
    bytes: Cell<usize>,
    exceeded: Cell<Option<Exceeded>>,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter::of(MAX_NODES)
    }

    /// One for so many values.
    pub(crate) fn of(nodes: usize) -> Meter {
        Meter { nodes: Cell::new(nodes), bytes: Cell::new(MAX_BODY), exceeded: Cell::new(None) }
    }

    /// Counts a value.
    pub(crate) fn value(&self) -> Result<(), Exceeded> {
        self.take(&self.nodes, 1, Exceeded::Nodes)
    }

    /// Counts the bytes of a text.
    pub(crate) fn text(&self, length: usize) -> Result<(), Exceeded> {
        self.take(&self.bytes, length, Exceeded::Bytes)
    }

    fn take(&self, left: &Cell<usize>, amount: usize, bound: Exceeded) -> Result<(), Exceeded> {
        match left.get().checked_sub(amount) {
            Some(rest) => left.set(rest),
            None => {
                self.exceeded.set(Some(bound));
                return Err(bound);
            }
        }
        Ok(())
    }

    /// What it did not let pass.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded.get()
    }
}

/// Drops a value without recursion.
fn dismantle(value: Value) {
    let mut parts = vec![value];
    while let Some(part) = parts.pop() {
        match part {
            Value::Array(items) => parts.extend(items),
            Value::Object(fields) => parts.extend(fields.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Reads JSON that may be deeper than `serde_json` reads: what is too deep becomes null. Only a server from before there
/// was a bound can have stored such an object, and it must be possible to replace and to delete it.
pub(crate) fn parse_cut(text: &[u8]) -> serde_json::Result<Value> {
    use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

    struct Cut(usize);

    impl<'de> DeserializeSeed<'de> for Cut {
        type Value = Value;

        fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
            if self.0 == 0 {
                // Skipping does not recurse. A scalar at this place is lost, too.
                return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null);
            }
            deserializer.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for Cut {
        type Value = Value;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a JSON value")
        }

        fn visit_unit<E>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }

        fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
            Ok(value.into())
        }

        fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
            Ok(value.into())
        }

        fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
            Ok(value.into())
        }

        fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
            Ok(value.into())
        }

        fn visit_str<E>(self, value: &str) -> Result<Value, E> {
            Ok(value.into())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = items.next_element_seed(Cut(self.0 - 1))? {
                values.push(value);
            }
            Ok(Value::Array(values))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
            let mut values = Map::new();
            while let Some(name) = fields.next_key::<String>()? {
                let value = fields.next_value_seed(Cut(self.0 - 1))?;
                values.insert(name, value);
            }
            Ok(Value::Object(values))
        }
    }

    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Cut(MAX_DEPTH + OWNERS_DEPTH).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |value, _| json!({ "a": value }))
    }

    #[test]
    fn an_object_is_bounded_in_depth_and_its_metadata_a_little_deeper() {
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH + 1)), Err(Exceeded::Depth));
        assert_eq!(check(&json!({"metadata": nested(MAX_DEPTH + OWNERS_DEPTH - 1)})), Ok(()));
        assert_eq!(check(&json!({"metadata": nested(MAX_DEPTH + OWNERS_DEPTH)})), Err(Exceeded::Depth));
        assert_eq!(check_depth(&nested(4), 120), Ok(()));
        assert_eq!(check_depth(&nested(4), 121), Err(Exceeded::Depth));
        assert_eq!(check_depth(&json!(1), 125), Err(Exceeded::Depth));
    }

    #[test]
    fn an_object_is_bounded_in_values_and_bytes() {
        assert_eq!(check(&json!({"a": vec![0; MAX_NODES - 1]})), Ok(()));
        assert_eq!(check(&json!({"a": vec![0; MAX_NODES]})), Err(Exceeded::Nodes));
        assert_eq!(check(&json!({"a": "x".repeat(MAX_TEXT)})), Err(Exceeded::Bytes));
        assert_eq!(check(&json!({ "x".repeat(MAX_TEXT + 1): 1 })), Err(Exceeded::Bytes));
    }

    #[test]
    fn what_is_beyond_a_bound_already_may_stay_so_but_not_grow() {
        let (large, larger) = (json!({"a": vec![0; MAX_NODES + 5]}), json!({"a": vec![0; MAX_NODES + 6]}));
        let long = json!({"a": "x".repeat(MAX_TEXT + 5), "b": "x"});
        let (deep, deeper) = (nested(MAX_DEPTH + OWNERS_DEPTH), nested(MAX_DEPTH + OWNERS_DEPTH + 1));
        for old in [&large, &long, &deep] {
            assert!(Bounded::new(old.clone()).is_err());
            assert!(Bounded::change(old.clone(), old).is_ok());
        }
        assert_eq!(Bounded::change(larger.clone(), &large).unwrap_err(), Exceeded::Nodes);
        assert_eq!(
            Bounded::change(large.clone(), &long).unwrap_err(),
            Exceeded::Nodes,
            "each bound by itself"
        );
        assert!(Bounded::change(large.clone(), &larger).unwrap().allowance().check(&larger).is_ok());
        assert_eq!(Bounded::change(deeper, &deep).unwrap_err(), Exceeded::Depth);
        assert_eq!(Bounded::change(deep, &large).unwrap_err(), Exceeded::Depth);
    }

    #[test]
    fn a_value_far_too_deep_is_refused_and_dropped_on_a_small_stack() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let deep = small.spawn(|| {
            let mut value = json!(1);
            for _ in 0..100_000 {
                value = Value::Array(vec![value]);
            }
            Bounded::new(value).unwrap_err()
        });
        assert_eq!(deep.unwrap().join().unwrap(), Exceeded::Depth);
    }

    #[test]
    fn what_is_stored_is_bounded_and_can_always_be_marked_and_shrink() {
        let full = vec![b' '; MAX_OBJECT];
        let more = vec![b' '; MAX_OBJECT + 1];
        assert_eq!(check_stored(&full, None), Ok(()));
        assert_eq!(check_stored(&more, None), Err(Exceeded::Bytes));
        assert_eq!(check_stored(&more, Some(&full)), Err(Exceeded::Bytes));
        assert_eq!(check_stored(&more, Some(&more)), Ok(()));
        let marked = [full.as_slice(), b"\"deletionTimestamp\""].concat();
        assert_eq!(check_stored(&marked, Some(&full)), Ok(()));
    }

    #[test]
    fn what_was_stored_too_deep_is_read_down_to_the_bound() {
        let deep = format!(
            r#"{{"kind":"A","b":{}{},"z":[1,"x",1.5,null,true,-1]}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        );
        let read = parse_cut(deep.as_bytes()).unwrap();
        assert_eq!((&read["kind"], &read["z"]), (&json!("A"), &json!([1, "x", 1.5, null, true, -1])));
        assert_eq!(check_depth(&read, 0), Ok(()));
        assert!(parse_cut(b"{} x").is_err());
    }
}
