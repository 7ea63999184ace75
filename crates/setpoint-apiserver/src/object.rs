//! Objects as bytes: how they are stored, and how they are sent.
//!
//! An object is stored as the JSON that clients get, but without its resourceVersion, which is not known
//! before the commit. `kind`, `apiVersion` and `metadata` come first, so that sending an object is a copy of
//! its bytes with the resourceVersion put in at a place that is found at once.
//!
//! The order of the fields is kube-apiserver's. Its built-in kinds are Go structs, which begin with `kind`; custom resources
//! are maps, which are written in alphabetical order, `apiVersion` first. Nothing but this file knows the order.

mod fields;

use std::fmt::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_env::Env;
use setpoint_kinds::FieldLabel;

use crate::bounds;

const METADATA: &[u8] = b"\"metadata\":{";

/// The stored form of an object.
///
/// # Panics
/// If the object has no `metadata.name`; every object that reaches storage has one.
pub(crate) fn encode(object: &Value) -> Bytes {
    let object = object.as_object().expect("only objects are stored");
    let metadata = object["metadata"].as_object().expect("stored objects have metadata");
    assert!(metadata.contains_key("name"), "stored objects have a name");
    let mut out = Vec::with_capacity(1024);
    let [first, second] = type_fields(object);
    out.push(b'{');
    append_field(&mut out, first, &object[first]);
    out.push(b',');
    append_field(&mut out, second, &object[second]);
    out.push(b',');
    out.extend_from_slice(METADATA);
    append_fields(&mut out, metadata, &["resourceVersion"], true);
    out.push(b'}');
    append_fields(&mut out, object, &[first, second, "metadata"], false);
    out.push(b'}');
    out.shrink_to_fit();
    Bytes::from(out)
}

/// `apiVersion` and `kind`, in the order in which the object has them.
fn type_fields(object: &Map<String, Value>) -> [&'static str; 2] {
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let is_struct = match version.split_once('/') {
        None | Some(("meta.k8s.io" | "apidiscovery.k8s.io", _)) => true,
        Some((group, _)) => setpoint_kinds::table().group(group).is_some(),
    };
    if is_struct { ["kind", "apiVersion"] } else { ["apiVersion", "kind"] }
}

/// Appends an object that is not stored as clients see it.
pub(crate) fn append_object(out: &mut Vec<u8>, object: &Value) {
    let Some(fields) = object.as_object() else { return append(out, object) };
    let [first, second] = type_fields(fields);
    let head = [first, second, "metadata"];
    let mut is_first = true;
    out.push(b'{');
    for (name, value) in head.iter().filter_map(|name| Some((name, fields.get(*name)?))) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        append_field(out, name, value);
    }
    append_fields(out, fields, &head, is_first);
    out.push(b'}');
}

fn append_field(out: &mut Vec<u8>, name: &str, value: &Value) {
    append(out, name);
    out.push(b':');
    append(out, value);
}

fn append_fields(out: &mut Vec<u8>, fields: &Map<String, Value>, except: &[&str], mut first: bool) {
    for (name, value) in fields {
        if except.contains(&name.as_str()) {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        append_field(out, name, value);
    }
}

fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON values always serialise into memory");
}

/// Appends a stored object as clients see it: with a resourceVersion.
pub(crate) fn write(value: &[u8], revision: u64, out: &mut Vec<u8>) {
    let at = metadata_start(value);
    out.reserve(value.len() + 40);
    out.extend_from_slice(&value[..at]);
    write_rest(&value[at..], revision, out);
}

/// The same for an item of a list of a built-in kind, where the list alone says apiVersion and kind.
pub(crate) fn write_item(value: &[u8], revision: u64, out: &mut Vec<u8>) {
    let at = metadata_start(value);
    out.reserve(value.len() + 40);
    out.push(b'{');
    out.extend_from_slice(METADATA);
    write_rest(&value[at..], revision, out);
}

/// Appends the metadata alone of an object that is served as it is stored.
pub(crate) fn write_metadata(value: &[u8], revision: u64, api_version: &str, out: &mut Vec<u8>) {
    let at = metadata_start(value);
    // With its opening brace.
    let metadata = &value[at - 1..];
    let mut values = serde_json::Deserializer::from_slice(metadata).into_iter::<serde::de::IgnoredAny>();
    assert!(matches!(values.next(), Some(Ok(_))), "what was stored is JSON, since encode made it");
    let end = values.byte_offset();
    out.reserve(end + 120);
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(api_version.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(METADATA);
    write_rest(&metadata[1..end], revision, out);
    out.push(b'}');
}

fn write_rest(rest: &[u8], revision: u64, out: &mut Vec<u8>) {
    // What is not stored has none.
    if revision != 0 {
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(rest);
}

fn metadata_start(value: &[u8]) -> usize {
    // Only apiVersion and kind come before it, and neither can hold a quotation mark.
    let at = value.windows(METADATA.len()).position(|window| window == METADATA);
    at.expect("stored objects have metadata") + METADATA.len()
}

/// A stored object as a value, with a resourceVersion.
pub(crate) fn decode(value: &[u8], revision: u64) -> Value {
    let mut object = parse(value);
    if revision != 0 {
        set_resource_version(&mut object, revision);
    }
    object
}

/// The JSON of a stored object. What was stored deeper than objects may be now is cut.
fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_else(|_| {
        tracing::warn!("a stored object is nested too deep; values beyond the limit are read as null");
        bounds::parse_cut(value).expect("what was stored is JSON, since encode made it")
    })
}

/// Puts a resourceVersion into an object.
pub(crate) fn set_resource_version(object: &mut Value, revision: u64) {
    object["metadata"]["resourceVersion"] = Value::String(revision.to_string());
}

/// The metadata of an object, made if it is missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("it is an object now")
}

/// A string inside an object: `text(pod, &["spec", "nodeName"])`.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(object, |value, name| value.get(name))?.as_str()
}

/// The object's name; empty if it has none.
pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"]).unwrap_or_default()
}

/// Whether the object waits for its finalizers.
pub(crate) fn is_being_deleted(object: &Value) -> bool {
    text(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// What selectors look at in an object, worked out when they first ask.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    labels: OnceLock<Labels>,
    fields: OnceLock<Box<[Box<str>]>>,
}

impl Attributes {
    /// The value of a label.
    pub(crate) fn label<'a>(&'a self, value: &[u8], key: &str) -> Option<&'a str> {
        self.labels.get_or_init(|| Labels::read(value)).get(key)
    }

    /// The values of the fields that the kind can be selected by, in the order of `labels`.
    pub(crate) fn fields<'a>(&'a self, value: &[u8], labels: &[FieldLabel]) -> &'a [Box<str>] {
        self.fields.get_or_init(|| {
            let object = fields::prune(value, labels).unwrap_or_else(|_| parse(value));
            labels.iter().map(|label| label.value(&object).into()).collect()
        })
    }
}

impl Attributes {
    /// The same if they are worked out already.
    pub(crate) fn known_fields(&self) -> Option<&[Box<str>]> {
        self.fields.get().map(|fields| &**fields)
    }

    /// How many bytes they take so far, about.
    pub(crate) fn weight(&self) -> usize {
        // A pointer and a length, and a piece of memory of 16 bytes at least.
        const TEXT: usize = 32;
        let labels = self.labels.get().map_or(0, |labels| labels.0.len());
        let fields = self
            .fields
            .get()
            .map_or(0, |fields| fields.iter().map(|value| TEXT + value.len()).sum::<usize>());
        labels + fields
    }
}

/// Keys and values in turn, each with [`END`] behind it. One piece of memory: a list looks at the labels of each object that
/// there is, and of very many none is in the processor's cache.
#[derive(Debug)]
struct Labels(Box<str>);

/// It is in no label.
const END: char = '\0';

impl Labels {
    fn read(value: &[u8]) -> Labels {
        #[derive(serde::Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: std::collections::BTreeMap<String, String>,
        }
        let object: Object = serde_json::from_slice(value).expect("what was stored is a valid object");
        let labels = object.metadata.labels.iter().flat_map(|(key, value)| [key, value]);
        let mut text = String::with_capacity(labels.clone().map(|part| part.len() + END.len_utf8()).sum());
        for part in labels {
            text.push_str(part);
            text.push(END);
        }
        Labels(text.into())
    }

    fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(END);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            if name == key {
                return Some(value);
            }
        }
        None
    }
}

/// What makes a generated name unlike others: five characters that spell no words.
pub(crate) fn random_suffix(env: &Env) -> String {
    const CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let character = || {
        let at = env.random_range(0..=CHARACTERS.len() as u64 - 1);
        char::from(CHARACTERS[usize::try_from(at).unwrap_or(0)])
    };
    (0..5).map(|_| character()).collect()
}

/// The metadata of a list.
#[derive(Debug, Default)]
pub(crate) struct ListMeta {
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

/// The beginning of a list; its items, with commas between them, and [`LIST_END`] follow.
pub(crate) fn list_start(api_version: &str, kind: &str, meta: &ListMeta) -> String {
    let ListMeta { revision, next, remaining } = meta;
    let mut start = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"#);
    if *revision != 0 {
        let _infallible = write!(start, r#""resourceVersion":"{revision}""#);
    }
    if let Some(next) = next {
        // Continue tokens are base64: nothing in them needs an escape.
        let _infallible = write!(start, r#","continue":"{next}""#);
    }
    if let Some(remaining) = remaining {
        let _infallible = write!(start, r#","remainingItemCount":{remaining}"#);
    }
    start.push_str(r#"},"items":["#);
    start
}

/// The beginning and the end of a list of custom resources, whose fields are in alphabetical order.
pub(crate) fn custom_list(api_version: &str, kind: &str, meta: &ListMeta) -> (String, String) {
    let mut metadata = Map::new();
    // What is made when somebody asks may have none.
    if meta.revision != 0 {
        metadata.insert("resourceVersion".to_owned(), meta.revision.to_string().into());
    }
    if let Some(next) = &meta.next {
        metadata.insert("continue".to_owned(), next.as_str().into());
    }
    if let Some(remaining) = meta.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    let start = format!(r#"{{"apiVersion":"{api_version}","items":["#);
    (start, format!("],\"kind\":\"{kind}\",\"metadata\":{}}}\n", Value::Object(metadata)))
}

/// The end of a list.
pub(crate) const LIST_END: &str = "]}\n";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::Record;

    fn stored(object: &Value, revision: u64) -> Record {
        Record::new("default/a".into(), revision, encode(object))
    }

    #[test]
    fn an_object_comes_back_as_it_was_with_the_revision_of_its_commit() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"metadata": "\"metadata\":{"},
            "metadata": {"name": "a", "resourceVersion": "1", "labels": {"x": "y"}}
        });
        let record = stored(&object, 7);
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = "7".into();
        let mut sent = Vec::new();
        write(&record.value, record.revision, &mut sent);
        assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap(), expected);
        assert_eq!(decode(&record.value, record.revision), expected);
    }

    #[test]
    fn metadata_are_cut_out_of_an_object() {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"metadata": {"name": "no"}},
            "metadata": {"name": "a", "labels": {"x": "}\\\"{"}, "managedFields": [{"fieldsV1": {"f:a": {}}}]}
        });
        for revision in [0, 7] {
            let mut out = Vec::new();
            write_metadata(&encode(&object), revision, "meta.k8s.io/v1", &mut out);
            let mut metadata = object["metadata"].clone();
            if revision != 0 {
                metadata["resourceVersion"] = "7".into();
            }
            let expected = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
            assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        }
    }

    #[test]
    fn an_object_that_an_older_server_stored_too_deep_can_be_read() {
        let deep = format!(
            r#"{{"apiVersion":"v1","kind":"X","metadata":{{"name":"a"}},"spec":{}{}}}"#,
            "[".repeat(600),
            "]".repeat(600)
        );
        let object = decode(deep.as_bytes(), 7);
        assert_eq!((name(&object), &object["metadata"]["resourceVersion"]), ("a", &json!("7")));
        let again = decode(&encode(&object), 8);
        assert_eq!(again["spec"], object["spec"]);
        let attributes = Attributes::default();
        assert_eq!(attributes.label(deep.as_bytes(), "x"), None);
        let labels = setpoint_kinds::table().resource("", "v1", "pods").unwrap().behavior().field_labels;
        assert_eq!(attributes.fields(deep.as_bytes(), labels).len(), labels.len());
    }

    #[test]
    fn the_stored_form_does_not_depend_on_the_resource_version() {
        let with =
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "resourceVersion": "9"}});
        let without = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}});
        assert_eq!(encode(&with), encode(&without));
    }

    #[test]
    fn built_in_kinds_begin_with_their_kind_and_custom_ones_with_their_version() {
        for (version, start) in [
            ("v1", r#"{"kind":"X","apiVersion":"v1","metadata":{"#),
            ("apps/v1", r#"{"kind":"X","apiVersion":"apps/v1","metadata":{"#),
            ("meta.k8s.io/v1", r#"{"kind":"X","apiVersion":"meta.k8s.io/v1","metadata":{"#),
            ("apps.example.com/v1", r#"{"apiVersion":"apps.example.com/v1","kind":"X","metadata":{"#),
        ] {
            let object =
                json!({"apiVersion": version, "kind": "X", "metadata": {"name": "a"}, "data": {"a": "b"}});
            let mut appended = Vec::new();
            append_object(&mut appended, &object);
            for text in [String::from_utf8(encode(&object).to_vec()), String::from_utf8(appended)] {
                let text = text.unwrap();
                assert!(text.starts_with(start), "{text}");
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
            }
        }
    }

    #[test]
    fn whatever_is_no_whole_object_is_written_too() {
        for value in
            [json!(null), json!({}), json!({"kind": "X"}), json!({"a": 1}), json!({"metadata": {}, "a": 1})]
        {
            let mut out = Vec::new();
            append_object(&mut out, &value);
            assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), value);
        }
    }

    #[test]
    fn selectors_see_labels_and_fields() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "hostNetwork": true}
        });
        let record = stored(&pod, 1);
        let attributes = &record.attributes;
        assert_eq!(attributes.label(&record.value, "app"), Some("web"));
        assert_eq!(attributes.label(&record.value, "tier"), None);
        let pods = setpoint_kinds::table().resource("", "v1", "pods").unwrap().behavior();
        let fields = attributes.fields(&record.value, pods.field_labels);
        let value = |name| {
            let at = pods.field_labels.iter().position(|label| label.label == name).unwrap();
            &*fields[at]
        };
        assert_eq!(value("spec.nodeName"), "n1");
        assert_eq!(value("spec.hostNetwork"), "true");
        assert_eq!(value("status.phase"), "");
    }
}
