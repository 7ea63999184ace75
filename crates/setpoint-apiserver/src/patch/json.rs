//! JSON patch, RFC 6902, with the liberties of the Go library in kube-apiserver: `replace` may add a field, a `test`
//! for null passes where there is nothing, negative indices count from the end. Clients rely on the first two, so
//! the stricter `json-patch` crate serves only as a model in the tests (its `patch` can also panic).

use serde_json::{Map, Value};

use super::{Patched, malformed};
use crate::body;
use crate::bounds::{self, Exceeded, MAX_NODES, Room};
use crate::status::{Result, Status};

const MAX_OPERATIONS: usize = 10_000;

pub(super) fn apply(current: &Value, patch: &[u8]) -> Result<Patched> {
    let decoded = body::parse_json(patch).map_err(|bad| bad.status(malformed))?;
    let (is_clean, mut unknown) = (decoded.duplicates.is_empty(), Vec::new());
    let operations = operations(decoded.value, &mut unknown)?;
    let strict_errors = if is_clean && unknown.is_empty() {
        Vec::new()
    } else {
        let errors = body::strict_errors(patch, unknown.into_iter());
        errors.into_iter().map(|error| format!("json patch {error}")).collect()
    };
    if operations.len() > MAX_OPERATIONS {
        let mut status = Status::too_large(0);
        status.message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(status);
    }
    let mut document = Document::new(current.clone());
    for operation in operations {
        let applied = document.apply(operation);
        if let Some(exceeded) = document.exceeded {
            return Err(exceeded.into());
        }
        applied.map_err(|why| does_not_apply(&why))?;
    }
    Patched::new(current, document.value, strict_errors, None)
}

/// 422 in kube-apiserver's words, which do not say why; the log does.
fn does_not_apply(why: &str) -> Status {
    tracing::debug!(why, "a JSON patch does not apply");
    Status::unprocessable("the server rejected our request due to an error in our request")
}

#[derive(Default)]
struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

/// The operations of a patch. The paths of unknown fields are added to `unknown`.
fn operations(patch: Value, unknown: &mut Vec<String>) -> Result<Vec<Operation>> {
    let items = match patch {
        Value::Array(items) => items,
        Value::Null => vec![],
        other => {
            let found = body::go_type(&other);
            return Err(malformed(&format!(
                "json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
            )));
        }
    };
    let parse = |(i, item)| Operation::parse(i, item, unknown);
    items.into_iter().enumerate().map(parse).collect()
}

impl Operation {
    fn parse(index: usize, item: Value, unknown: &mut Vec<String>) -> Result<Operation> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => {
                let found = body::go_type(&other);
                return Err(malformed(&format!(
                    "json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"
                )));
            }
        };
        let mut operation = Operation::default();
        for (name, value) in fields {
            let slot = match name.as_str() {
                "value" => {
                    operation.value = Some(value);
                    continue;
                }
                "op" => &mut operation.op,
                "path" => &mut operation.path,
                "from" => &mut operation.from,
                _ => {
                    unknown.push(format!("[{index}].{name}"));
                    continue;
                }
            };
            match value {
                Value::String(text) => *slot = Some(text),
                Value::Null => {}
                other => {
                    let found = body::go_type(&other);
                    return Err(malformed(&format!(
                        "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
                    )));
                }
            }
        }
        Ok(operation)
    }

    fn path(&mut self, op: &str) -> Result<String, String> {
        self.path.take().ok_or_else(|| match op {
            "add" | "remove" | "copy" => format!("{op} operation failed to decode path: {MISSING}"),
            _ => format!("{op} operation failed to decode path: operation missing path field: {MISSING}"),
        })
    }

    fn from(&mut self, op: &str) -> Result<String, String> {
        let missing =
            || format!("{op} operation failed to decode from: operation, missing from field: {MISSING}");
        self.from.take().ok_or_else(missing)
    }
}

const MISSING: &str = "missing value";

struct Document {
    value: Value,
    /// What `copy` operations may still add.
    room: Room,
    /// How many values may still be looked at or moved: ten thousand operations on one large list would take long.
    work: usize,
    /// The bound at which the patch was stopped.
    exceeded: Option<Exceeded>,
}

/// How many values the operations of a patch may look at, or move, together.
const MOST_WORK: usize = 100 * MAX_NODES;

impl Document {
    fn new(value: Value) -> Document {
        Document { value, room: Room::default(), work: MOST_WORK, exceeded: None }
    }

    /// Notes that a bound is exceeded.
    fn bounded<T>(&mut self, outcome: Result<T, Exceeded>) -> Result<T, String> {
        outcome.map_err(|exceeded| {
            self.exceeded = Some(exceeded);
            exceeded.to_string()
        })
    }

    /// Whether a value can be put at a path: it is never made deeper than it may be, not even for a moment.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), String> {
        self.bounded(bounds::check_depth(value, path.matches('/').count()))
    }

    /// Counts the values that an operation on an item of a list moves.
    fn charge(&mut self, path: &str) -> Result<(), String> {
        let length = match self.find(path) {
            Some((Parent::Array(items), _)) => items.len(),
            _ => 1,
        };
        self.spend(length)
    }

    fn spend(&mut self, work: usize) -> Result<(), String> {
        let left = self.work.checked_sub(work).ok_or(Exceeded::Work);
        self.work = self.bounded(left)?;
        Ok(())
    }

    fn apply(&mut self, mut operation: Operation) -> Result<(), String> {
        match operation.op.take().as_deref() {
            Some("add") => self.add(operation),
            Some("remove") => self.remove(operation),
            Some("replace") => self.replace(operation),
            Some("move") => self.relocate(operation),
            Some("copy") => self.copy(operation),
            Some("test") => self.test(operation),
            Some(other) => Err(format!("Unexpected kind: {other}")),
            None => Err("Unexpected kind: unknown".to_owned()),
        }
    }

    fn add(&mut self, mut operation: Operation) -> Result<(), String> {
        let path = operation.path("add")?;
        let value = operation.value.unwrap_or_default();
        self.check_depth(&path, &value)?;
        self.charge(&path)?;
        let Some((mut parent, key)) = self.find(&path) else {
            return Err(format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"));
        };
        let added = parent.add(&key, value);
        added.map_err(|why| format!("error in add for path: '{path}': {why}"))
    }

    fn remove(&mut self, mut operation: Operation) -> Result<(), String> {
        let path = operation.path("remove")?;
        self.charge(&path)?;
        let Some((mut parent, key)) = self.find(&path) else {
            return Err(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        let removed = parent.remove(&key).map(drop);
        removed.map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn replace(&mut self, mut operation: Operation) -> Result<(), String> {
        let path = operation.path("replace")?;
        let value = operation.value.unwrap_or_default();
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            self.value = value;
            return Ok(());
        }
        self.check_depth(&path, &value)?;
        let Some((mut parent, key)) = self.find(&path) else {
            return Err(format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"));
        };
        if parent.get(&key).is_err() {
            return Err(format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"));
        }
        // The path is the one that the Go library names, too.
        parent.set(&key, value).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn relocate(&mut self, mut operation: Operation) -> Result<(), String> {
        let from = operation.from("move")?;
        self.charge(&from)?;
        let Some((mut parent, key)) = self.find(&from) else {
            return Err(format!(
                "move operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let value = parent.remove(&key);
        let value = value.map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        let path = operation.path("move")?;
        let mut all = Room::default();
        let counted = all.take_part(&value);
        self.bounded(counted)?;
        self.spend(MAX_NODES - all.nodes())?;
        self.check_depth(&path, &value)?;
        self.charge(&path)?;
        let Some((mut parent, key)) = self.find(&path) else {
            return Err(format!(
                "move operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        parent.add(&key, value).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn copy(&mut self, mut operation: Operation) -> Result<(), String> {
        let from = operation.from("copy")?;
        let mut room = self.room.clone();
        let Some((parent, key)) = self.find(&from) else {
            return Err(format!(
                "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let value = parent.get(&key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        let value = value.unwrap_or(&Value::Null);
        let counted = room.take_part(value).map(|()| value.clone());
        let value = self.bounded(counted)?;
        self.room = room;
        let path = operation.path("copy")?;
        self.check_depth(&path, &value)?;
        self.charge(&path)?;
        let Some((mut parent, key)) = self.find(&path) else {
            return Err(format!(
                "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        parent.add(&key, value).map_err(|why| format!("error while adding value during copy: {why}"))
    }

    fn test(&mut self, mut operation: Operation) -> Result<(), String> {
        let path = operation.path("test")?;
        let expected = operation.value.unwrap_or_default();
        let equal = if path.is_empty() {
            self.value == expected
        } else {
            let Some((parent, key)) = self.find(&path) else {
                return Err(format!("test operation does not apply: is missing path: {path}: {MISSING}"));
            };
            let found = parent.get(&key).map_err(|why| format!("error in test for path: '{path}': {why}"))?;
            *found.unwrap_or(&Value::Null) == expected
        };
        if equal { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
    }

    /// The object or list that the last token of `path` belongs to, and that token.
    fn find(&mut self, path: &str) -> Option<(Parent<'_>, String)> {
        // What comes before the first slash does not count.
        let (_, path) = path.split_once('/')?;
        let (parents, key) =
            path.rsplit_once('/').map_or((None, path), |(parents, key)| (Some(parents), key));
        let mut value = &mut self.value;
        for token in parents.into_iter().flat_map(|parents| parents.split('/')) {
            value = Parent::of(value)?.into_child(&unescape(token))?;
        }
        Some((Parent::of(value)?, unescape(key)))
    }
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

enum Parent<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

impl<'a> Parent<'a> {
    fn of(value: &'a mut Value) -> Option<Parent<'a>> {
        match value {
            Value::Object(fields) => Some(Parent::Object(fields)),
            Value::Array(items) => Some(Parent::Array(items)),
            _ => None,
        }
    }

    fn into_child(self, key: &str) -> Option<&'a mut Value> {
        match self {
            Parent::Object(fields) => fields.get_mut(key),
            Parent::Array(items) => {
                let at = existing(key, items.len()).ok()?;
                items.get_mut(at)
            }
        }
    }

    /// A missing field is no error, a missing item is one.
    fn get(&self, key: &str) -> Result<Option<&Value>, String> {
        match self {
            Parent::Object(fields) => Ok(fields.get(key)),
            Parent::Array(items) => existing(key, items.len()).map(|at| items.get(at)),
        }
    }

    fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Parent::Object(fields) => drop(fields.insert(key.to_owned(), value)),
            Parent::Array(items) => {
                let at = existing(key, items.len())?;
                items[at] = value;
            }
        }
        Ok(())
    }

    fn add(&mut self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Parent::Object(fields) => drop(fields.insert(key.to_owned(), value)),
            Parent::Array(items) if key == "-" => items.push(value),
            Parent::Array(items) => {
                let index = index(key)
                    .map_err(|why| format!("value was not a proper array index: '{key}': {why}"))?;
                let at = within(index, items.len() + 1)?;
                items.insert(at, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<Value, String> {
        match self {
            Parent::Object(fields) => fields
                .remove(key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
            Parent::Array(items) => existing(key, items.len()).map(|at| items.remove(at)),
        }
    }
}

fn index(key: &str) -> Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    key.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {key:?}: {why}")
    })
}

/// The place of an item in a list of this length.
fn existing(key: &str, length: usize) -> Result<usize, String> {
    within(index(key)?, length)
}

fn within(index: i64, length: usize) -> Result<usize, String> {
    let bad = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let at = match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).map_err(|_| bad())?),
    };
    at.filter(|at| *at < length).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(current: Value, patch: Value, expect: Value) {
        let patched = apply(&current, patch.to_string().as_bytes());
        assert_eq!(patched.map(|patched| patched.value.into_value()), Ok(expect));
    }

    #[test]
    fn operations_change_the_object_in_order() {
        let pod = || json!({"a": {"b": 1}, "l": [1, 2, 3], "n": null});
        check(pod(), json!([]), pod());
        check(pod(), json!(null), pod());
        check(
            json!({}),
            json!([{"op": "add", "path": "/x", "value": 1}, {"op": "remove", "path": "/x"}]),
            json!({}),
        );
        check(json!({"l": [1]}), json!([{"op": "add", "path": "/l/-", "value": 2}]), json!({"l": [1, 2]}));
        check(json!({"l": [1]}), json!([{"op": "add", "path": "/l/0", "value": 2}]), json!({"l": [2, 1]}));
        check(
            json!({"l": [1, 2]}),
            json!([{"op": "add", "path": "/l/-1", "value": 3}]),
            json!({"l": [1, 2, 3]}),
        );
        check(json!({"l": [1, 2]}), json!([{"op": "remove", "path": "/l/-1"}]), json!({"l": [1]}));
        check(json!({"a/b~": 1}), json!([{"op": "remove", "path": "/a~1b~0"}]), json!({}));
        check(json!({}), json!([{"op": "replace", "path": "/new", "value": 1}]), json!({"new": 1}));
        check(json!({}), json!([{"op": "test", "path": "/none", "value": null}]), json!({}));
        check(json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1}));
        check(
            json!({"a": [1]}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            json!({"a": [1], "b": [1]}),
        );
        check(json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2}));
        check(json!({"a": 1}), json!([{"op": "test", "path": "", "value": {"a": 1}}]), json!({"a": 1}));
        check(json!({}), json!([{"op": "add", "path": "/a"}]), json!({"a": null}));
    }

    #[track_caller]
    fn check_refused(current: Value, operation: Value, expect: &str) {
        let status = apply(&current, json!([operation]).to_string().as_bytes()).unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (422, "Invalid"));
        assert_eq!(status.message, "the server rejected our request due to an error in our request");
        let operation = operations(json!([operation]), &mut Vec::new()).unwrap().remove(0);
        assert_eq!(Document::new(current).apply(operation).unwrap_err(), expect);
    }

    #[test]
    fn an_operation_that_does_not_apply_says_why() {
        let list = || json!({"l": [1], "s": "x", "n": null});
        check_refused(
            list(),
            json!({"op": "test", "path": "/s", "value": "y"}),
            "testing value /s failed: test failed",
        );
        check_refused(
            list(),
            json!({"op": "add", "path": "/a/b", "value": 1}),
            "add operation does not apply: doc is missing path: \"/a/b\": missing value",
        );
        check_refused(
            list(),
            json!({"op": "add", "path": "/n/b", "value": 1}),
            "add operation does not apply: doc is missing path: \"/n/b\": missing value",
        );
        check_refused(
            list(),
            json!({"op": "add", "path": "", "value": {}}),
            "add operation does not apply: doc is missing path: \"\": missing value",
        );
        check_refused(
            list(),
            json!({"op": "remove", "path": "/a"}),
            "error in remove for path: '/a': Unable to remove nonexistent key: a: missing value",
        );
        check_refused(
            list(),
            json!({"op": "remove", "path": "/l/1"}),
            "error in remove for path: '/l/1': Unable to access invalid index: 1: invalid index referenced",
        );
        check_refused(
            list(),
            json!({"op": "add", "path": "/l/x", "value": 1}),
            "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": \
             invalid syntax",
        );
        check_refused(
            list(),
            json!({"op": "replace", "path": "/s/x", "value": 1}),
            "replace operation does not apply: doc is missing path: /s/x: missing value",
        );
        check_refused(
            list(),
            json!({"op": "replace", "path": "/l/7", "value": 1}),
            "replace operation does not apply: doc is missing key: /l/7: missing value",
        );
        check_refused(list(), json!({"op": "jump", "path": "/l"}), "Unexpected kind: jump");
        check_refused(list(), json!(null), "Unexpected kind: unknown");
        check_refused(list(), json!({"op": "add"}), "add operation failed to decode path: missing value");
        check_refused(
            list(),
            json!({"op": "copy", "from": "/x/y", "path": "/z"}),
            "copy operation does not apply: doc is missing from path: /x/y: missing value",
        );
    }

    #[track_caller]
    fn check_malformed(patch: &str, expect: &str) {
        let status = apply(&json!({}), patch.as_bytes()).unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (400, "BadRequest"));
        assert_eq!(status.message, format!("error decoding patch: {expect}"));
    }

    #[test]
    fn a_malformed_patch_is_a_bad_request() {
        check_malformed("[", "unexpected end of JSON input");
        check_malformed("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
        check_malformed("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp");
        check_malformed(
            r#"[{"op": 1}]"#,
            "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        );
        let odd = br#"[{"zoo": 1, "op": "add", "bar": 2, "op": "add", "path": "/a", "zoo": 3, "x": {"k": 1, "k": 2}}]"#;
        assert_eq!(
            apply(&json!({}), odd).unwrap().strict_errors,
            [
                r#"json patch unknown field "[0].zoo""#,
                r#"json patch unknown field "[0].bar""#,
                r#"json patch duplicate field "[0].op""#,
                r#"json patch unknown field "[0].x""#,
            ]
        );
    }

    #[test]
    fn patches_are_bounded_in_operations_and_in_copies() {
        let many = vec![json!({"op": "test", "path": "/a", "value": null}); 10_001];
        let status = apply(&json!({}), json!(many).to_string().as_bytes()).unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(
            status.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        let doubling: Vec<Value> =
            (0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
        let status =
            apply(&json!({"a": ["x".repeat(1000)]}), json!(doubling).to_string().as_bytes()).unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (413, "RequestEntityTooLarge"));
    }

    fn operation() -> impl Strategy<Value = Value> {
        let path =
            || prop::sample::select(vec!["/a", "/b", "/a/b", "/l", "/l/0", "/l/1", "/l/-", "/a/b/c", ""]);
        let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
        let value = prop::sample::select(vec![json!(1), json!({"b": 1}), json!([1, 2]), json!(null)]);
        (op, path(), path(), value)
            .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
    }

    proptest! {
        #[test]
        fn where_the_rfc_allows_a_patch_we_agree_with_it(patch in prop::collection::vec(operation(), 0..5)) {
            let current = json!({"a": {"b": {"c": 1}}, "l": [1, {"x": 2}]});
            let mut model = current.clone();
            let text = json!(patch).to_string();
            let rfc: json_patch::Patch = serde_json::from_str(&text).unwrap();
            let ours = apply(&current, text.as_bytes());
            // The Go library cannot replace or move the whole document with these.
            let root = patch.iter().any(|op| op["path"] == "" || op["from"] == "");
            if json_patch::patch_unsafe(&mut model, &rfc).is_ok() && !root {
                prop_assert_eq!(ours.unwrap().value.into_value(), model);
            }
        }

        #[test]
        fn no_patch_makes_it_panic(path in "[/~0-9a-z-]{0,12}", op in "add|remove|replace|test") {
            let patch = json!([{"op": op, "path": path, "value": 1}]).to_string();
            let _ = apply(&json!({"a": [[], {}], "0": {"-1": 2}}), patch.as_bytes());
        }
    }
}
