//! Request bodies: read within a limit, then decoded to a `Value` with the fields that occur twice.

mod json;
mod strict;
mod syntax;
mod yaml;

use std::fmt;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use setpoint_kinds::protobuf;

use crate::bounds::Exceeded;
use crate::status::{Result, Status};

pub(crate) use json::{parse as parse_json, parse_metered as parse_json_metered};
pub(crate) use strict::errors as strict_errors;
pub(crate) use yaml::parse as parse_yaml;

/// The largest body that a request may have, as in kube-apiserver.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// Beyond this many duplicates no more are noted, so that a hostile body cannot make a long answer.
const MAX_DUPLICATES: usize = 100;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the whole body. One that announces more than `limit` bytes is refused before any is read; `grown` hears the size
/// after each part, and may refuse the rest. A `Content-Encoding` means nothing here: kube-apiserver does not take
/// compressed bodies either.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    mut grown: impl FnMut(usize) -> Result<()>,
) -> std::result::Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Unread::TooLarge(limit));
    }
    let mut body = std::pin::pin!(body);
    let mut only = Bytes::new();
    // Parts are joined as they come: thousands of tiny ones would take far more than their bytes.
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unread::Broken(error.into()))?;
        let Ok(part) = frame.into_data() else { continue };
        let size = only.len() + joined.len() + part.len();
        if size > limit {
            return Err(Unread::TooLarge(limit));
        }
        grown(size).map_err(Unread::Refused)?;
        if size == part.len() {
            only = part;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut only));
            joined.extend_from_slice(&part);
        }
    }
    Ok(if joined.is_empty() { only } else { joined.freeze() })
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It has more bytes than this.
    TooLarge(usize),
    Broken(BoxError),
    /// There is no room for it.
    Refused(Status),
}

impl From<Unread> for Status {
    fn from(unread: Unread) -> Status {
        match unread {
            Unread::TooLarge(limit) => Status::too_large(limit),
            Unread::Broken(error) => Status::bad_request(format!("error reading the request body: {error}")),
            Unread::Refused(status) => status,
        }
    }
}

/// The object in the body of an answer, whichever form it has; for the audit log.
pub(crate) fn answered(body: &[u8]) -> Option<Value> {
    if body.starts_with(protobuf::MAGIC) {
        return protobuf::decode(body).ok().map(|decoded| decoded.value);
    }
    serde_json::from_slice(body).ok()
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// In the order of the text. Of a field that occurs twice, `value` has the last.
    pub(crate) duplicates: Vec<Duplicate>,
}

/// A field that occurs more than once in an object. Its `Display` is the text of a `Warning` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duplicate {
    /// In JSON: the path of the field.
    Field(String),
    /// In YAML: the line of the second occurrence, and the key.
    Line { line: u64, key: String },
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duplicate::Field(path) => write!(f, "duplicate field {path:?}"),
            Duplicate::Line { line, key } => write!(f, "line {line}: key {key:?} already set in map"),
        }
    }
}

impl Decoded {
    /// The duplicates as `fieldValidation=Strict` reports them after `strict decoding error: `: those of YAML are one
    /// error of several lines.
    pub(crate) fn strict_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut lines = String::new();
        for duplicate in &self.duplicates {
            match duplicate {
                Duplicate::Field(_) => errors.push(duplicate.to_string()),
                Duplicate::Line { .. } => lines.push_str(&format!("\n  {duplicate}")),
            }
        }
        if !lines.is_empty() {
            errors.push(format!("yaml: unmarshal errors:{lines}"));
        }
        errors
    }
}

/// Why a text was not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undecoded {
    /// It is not JSON or YAML; what is wrong with it, in the words of Go's decoder.
    #[error("{0}")]
    Malformed(String),
    /// It makes too much.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

impl Undecoded {
    /// The answer to a request with such a body; `malformed` words it if the text itself is bad.
    pub(crate) fn status(&self, malformed: impl FnOnce(&str) -> Status) -> Status {
        match self {
            Undecoded::Malformed(why) => malformed(why),
            Undecoded::Exceeded(exceeded) => Status::exceeds(*exceeded),
        }
    }
}

/// Decodes an object in JSON that should be of the kind `expected`.
pub(crate) fn decode_json(body: &[u8], expected: &str) -> Result<Decoded> {
    let decoded =
        parse_json(body).map_err(|bad| bad.status(|why| unrecognized(expected, &json_error(why), body)))?;
    object(decoded, expected, body)
}

/// Decodes an object in YAML that should be of the kind `expected`.
pub(crate) fn decode_yaml(body: &[u8], expected: &str) -> Result<Decoded> {
    let decoded = parse_yaml(body).map_err(|bad| bad.status(|why| unrecognized(expected, why, body)))?;
    object(decoded, expected, body)
}

/// The object must be one, and must be able to say what it is.
fn object(mut decoded: Decoded, expected: &str, body: &[u8]) -> Result<Decoded> {
    // As Go's decoder does, take null for an object without fields.
    if decoded.value.is_null() {
        decoded.value = Value::Object(Map::new());
    }
    match no_object(&decoded.value) {
        Some(why) => Err(unrecognized(expected, &why, body)),
        None => Ok(decoded),
    }
}

/// Why a value cannot be an object that says what it is, in the words of Go's decoder.
pub(crate) fn no_object(value: &Value) -> Option<String> {
    let Value::Object(fields) = value else {
        return Some(json_error(&format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(value)
        )));
    };
    let wrong = |name| Some((name, fields.get(name).filter(|value| !value.is_string() && !value.is_null())?));
    let (name, value) = wrong("apiVersion").or_else(|| wrong("kind"))?;
    let found = go_type(value);
    Some(json_error(&format!("json: cannot unmarshal {found} into Go struct field .{name} of type string")))
}

fn json_error(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// What Go's decoder calls a value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// 400: the body does not say what kind of object it is; `why` explains.
pub(crate) fn unrecognized(expected: &str, why: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): {why} ({})",
        summary(body)
    ))
}

/// The beginning of the body: as text if it may be JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let more = if body.len() > LENGTH { " ..." } else { "" };
    let start = &body[..body.len().min(LENGTH)];
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt as _;
    use http_body_util::{Full, StreamBody};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    async fn read<B: Body<Data = Bytes, Error: Into<BoxError>>>(body: B, limit: usize) -> Result<Bytes> {
        Ok(super::read(body, limit, |_| Ok(())).await?)
    }

    fn chunked(parts: impl IntoIterator<Item = Bytes>) -> impl Body<Data = Bytes, Error = BoxError> {
        let frames: Vec<_> = parts.into_iter().map(|part| Ok(http_body::Frame::data(part))).collect();
        StreamBody::new(futures::stream::iter(frames))
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        assert_eq!(read(Full::new(Bytes::from("1234")), 4).await.unwrap(), "1234");
        let refused = read(Full::new(Bytes::from("12345")), 4).await.unwrap_err();
        assert_eq!(
            (refused.code.as_u16(), refused.message.as_str()),
            (413, "Request entity too large: limit is 4")
        );
        let parts = |n| (0..n).map(|_| Bytes::from("12"));
        assert_eq!(read(chunked(parts(2)), 4).await.unwrap(), "1212");
        assert_eq!(read(chunked(parts(3)), 4).await.unwrap_err().code, 413);
    }

    #[tokio::test]
    async fn what_grows_beyond_its_room_is_refused() {
        let parts = (0..3).map(|_| Bytes::from("12"));
        let grown = |size| if size > 4 { Err(Status::too_many_requests("no room", 1)) } else { Ok(()) };
        assert_eq!(Status::from(super::read(chunked(parts), 100, grown).await.unwrap_err()).code, 429);
    }

    #[tokio::test]
    async fn tiny_parts_are_not_kept() {
        struct Part {
            _kept: Arc<()>,
        }
        impl AsRef<[u8]> for Part {
            fn as_ref(&self) -> &[u8] {
                b"1"
            }
        }
        let kept = Arc::new(());
        let part = || {
            Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_owner(Part { _kept: Arc::clone(&kept) })))
        };
        let parts = futures::stream::iter(0..1000).map(|_| part());
        let mut most = 0;
        let count = |_| {
            most = most.max(Arc::strong_count(&kept));
            Ok(())
        };
        assert_eq!(super::read(StreamBody::new(parts), 1000, count).await.unwrap().len(), 1000);
        assert!(most <= 3, "{most} parts at the same time");
    }

    #[test]
    fn json_duplicates_are_noted_by_path_and_the_last_one_counts() {
        let decoded = parse_json(br#"{"a":1,"a":2,"b":{"c":1,"c":2,"c":3},"d":[{"x":1,"x":2}]}"#).unwrap();
        assert_eq!(decoded.value, json!({"a": 2, "b": {"c": 3}, "d": [{"x": 2}]}));
        assert_eq!(
            decoded.strict_errors(),
            [r#"duplicate field "a""#, r#"duplicate field "b.c""#, r#"duplicate field "d[0].x""#]
        );
    }

    #[test]
    fn yaml_duplicates_are_noted_by_line() {
        let decoded = parse_yaml(b"a: 1\na: 2\nb: {c: 1, c: 2}").unwrap();
        assert_eq!(decoded.value, json!({"a": 2, "b": {"c": 2}}));
        assert_eq!(
            decoded.strict_errors(),
            [
                "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  line 3: key \"c\" already set in map"
            ]
        );
        assert_eq!(decoded.duplicates[0].to_string(), "line 2: key \"a\" already set in map");
    }

    #[test]
    fn numbers_keep_64_bits() {
        let text = br#"[9223372036854775807, -9223372036854775808, 9223372036854775808, 1e3]"#;
        let value = parse_json(text).unwrap().value;
        assert_eq!(value, json!([i64::MAX, i64::MIN, 9_223_372_036_854_775_808f64, 1000.0]));
    }

    #[track_caller]
    fn check_json(body: &[u8], expect: &str) {
        let status = decode_json(body, "Pod").unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (400, "BadRequest"));
        assert_eq!(
            status.message,
            format!("the object provided is unrecognized (must be of type Pod): {expect}")
        );
    }

    #[test]
    fn malformed_json_says_what_is_wrong() {
        let prefix = "couldn't get version/kind; json parse error:";
        check_json(b"", &format!("{prefix} unexpected end of JSON input (<empty>)"));
        check_json(b"{\"kind\":", &format!("{prefix} unexpected end of JSON input ({{\"kind\":)"));
        check_json(
            b"kind: Pod",
            &format!("{prefix} invalid character 'k' looking for beginning of value (6b696e643a20506f64)"),
        );
        check_json(
            b"{\"kind\": 1, \"some\": \"more text than thirty bytes\"}",
            &format!(
                "{prefix} json: cannot unmarshal number into Go struct field .kind of type string ({{\"kind\": 1, \
                 \"some\": \"more text ...)"
            ),
        );
        check_json(
            b"[]",
            &format!(
                "{prefix} json: cannot unmarshal array into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} (5b5d)"
            ),
        );
        assert_eq!(decode_json(b"null", "Pod").unwrap().value, json!({}));
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(parse_json(deep.as_bytes()).unwrap_err().to_string(), "exceeded max depth");
    }

    #[track_caller]
    fn check_yaml(text: &str, expect: Value) {
        assert_eq!(parse_yaml(text.as_bytes()).map(|decoded| decoded.value), Ok(expect), "{text}");
    }

    /// The right sides come from sigs.k8s.io/yaml.
    #[test]
    fn yaml_reads_as_kubectl_reads_it() {
        for (text, expect) in [
            ("yes", json!(true)),
            ("y", json!(true)),
            ("NO", json!(false)),
            ("Off", json!(false)),
            ("'yes'", json!("yes")),
            ("~", json!(null)),
            ("", json!(null)),
            ("Null", json!(null)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("017", json!(15)),
            ("0b11", json!(3)),
            ("-0x1f", json!(-31)),
            ("1_000", json!(1000)),
            ("+1", json!(1)),
            ("-0", json!(0)),
            ("0.1", json!(0.1)),
            (".5", json!(0.5)),
            ("1.5e300", json!(1.5e300)),
            ("1:30", json!("1:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("0x", json!("0x")),
            ("_1", json!("_1")),
            ("NaN", json!("NaN")),
            ("!!str 1", json!("1")),
            ("!foo x", json!("x")),
            ("!!int \"3\"", json!(3)),
            ("!!binary aGk=", json!("hi")),
            ("=", json!("=")),
            ("|\n  x\n  y\n", json!("x\ny\n")),
            (">\n  x\n  y\n", json!("x y\n")),
        ] {
            check_yaml(&format!("a: {text}"), json!({"a": expect}));
        }
        check_yaml("", json!(null));
        check_yaml("1: x\ntrue: t\n1.5: z\nno: f", json!({"1": "x", "true": "t", "1.5": "z", "false": "f"}));
        check_yaml("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}}));
        check_yaml("c:\n  <<: {d: 1}\n  e: 2", json!({"c": {"d": 1, "e": 2}}));
        check_yaml("a: 1\n---\nb: 2", json!({"a": 1}));
        check_yaml("# x\n---\na: 1\n...\nb: 2", json!({"a": 1}));
        check_yaml("---\n---\na: 1", json!(null));
        check_yaml("a: |\n  ---\n  x\n", json!({"a": "---\nx\n"}));
        check_yaml("{\"a\": [1, \"x\"]}", json!({"a": [1, "x"]}));
    }

    #[test]
    fn malformed_yaml_is_refused_with_its_line() {
        for text in ["a: b: c", "a: [", "a: *x", "null: x", "[a]: x", "a: .inf", "a: 1\nb: {"] {
            let why = parse_yaml(text.as_bytes()).expect_err(text).to_string();
            assert!(why.starts_with("yaml: "), "{why}");
        }
        let status = decode_yaml(b"a: 1\nb: c: d", "Pod").unwrap_err();
        assert!(
            status
                .message
                .starts_with("the object provided is unrecognized (must be of type Pod): yaml: line 2: "),
            "{status}"
        );
    }

    #[test]
    fn yaml_that_blows_up_is_refused() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            let list = vec![format!("*a{}", i - 1); 10].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
        }
        assert!(parse_yaml(bomb.as_bytes()).is_err());
        assert!(parse_yaml("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse_yaml("- ".repeat(10_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_body_makes_a_decoder_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode_json(&body, "Pod");
            let _ = decode_yaml(&body, "Pod");
        }

        #[test]
        fn numbers_are_kept_to_the_last_digit(number in prop::num::f64::NORMAL) {
            let body = serde_json::to_vec(&json!({ "number": number })).unwrap();
            prop_assert_eq!(parse_json(&body).unwrap().value["number"].as_f64(), Some(number));
        }

        #[test]
        fn almost_json_is_either_decoded_or_explained(text in "[\\[\\]{}\",:a0-9.eE+tfn\\\\ -]{0,16}") {
            let plain = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(parse_json(text.as_bytes()).is_ok(), plain.is_ok());
            prop_assert_eq!(syntax::explain(text.as_bytes()).is_none(), plain.is_ok());
        }
    }
}
