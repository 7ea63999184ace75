//! The protobuf form of Kubernetes objects (`application/vnd.kubernetes.protobuf`).
//!
//! A body is four magic bytes and a `runtime.Unknown` message, which names the kind and wraps the
//! bytes of the object. The object is decoded through the table, field number by field number, into
//! the JSON that Kubernetes has for it. That JSON is not protobuf's canonical JSON: quantities,
//! times, int-or-strings and raw extensions are messages on the wire and scalars in JSON.
//!
//! `prost` would bring no more than its varint functions here: its decoder is made of generated Rust
//! structs, and the table is there to have none. The wire format is a page of code (`wire.rs`).

mod check;
mod de;
mod decode;
mod encode;
mod field_head;
mod fields;
mod watch;
mod wire;

use serde_json::Value;

pub use self::check::check_message;
pub use self::de::{TypeMeta, from_message, in_order};
pub use self::decode::decode_message;
pub(crate) use self::encode::Layout;
pub use self::encode::{EncodeError, Json, append_field, append_length, encode_message};
pub use self::field_head::FieldHead;
pub use self::fields::{Field, Fields};
pub use self::watch::{WatchEvent, append_event};
pub use self::wire::text;
use self::wire::{BYTES, Reader, Writer};
use crate::table::table;
use crate::types::Type;

/// The bytes that every body starts with.
pub const MAGIC: &[u8; 4] = b"k8s\0";
/// The media type of a body.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// How deep messages may nest: half of what JSON may, since a message in a map or list is two levels of JSON. Twice as
/// deep, a schema within schemas takes more stack than a thread has in a debug build.
const MAX_DEPTH: usize = 64;
/// How many messages an object may be made of.
const MAX_MESSAGES: usize = 100_000;

/// An object decoded from a body.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decoded {
    /// `group/version`, or the version alone for the core group.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The object in Kubernetes' JSON form, `apiVersion` and `kind` included.
    pub value: Value,
}

/// Why bytes are not a Kubernetes object in protobuf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The magic bytes are missing.
    #[error("the body does not start with the magic bytes of Kubernetes protobuf")]
    Magic,
    /// The kind is not a built-in one.
    #[error(
        "no built-in kind {kind:?} in version {api_version:?}: custom resources have no protobuf form, send JSON"
    )]
    Kind {
        /// The version that the body names.
        api_version: String,
        /// The kind that the body names.
        kind: String,
    },
    /// The object is not plain protobuf.
    #[error("the object is encoded as {0:?}: send plain protobuf")]
    Encoding(String),
    /// The bytes end within a value.
    #[error("unexpected end of the message")]
    Truncated,
    /// A varint is longer than ten bytes.
    #[error("a varint is too long")]
    Varint,
    /// A tag has field number 0 or a wire type that does not exist.
    #[error("illegal tag {0}")]
    Tag(u64),
    /// A field has another wire type than its number says.
    #[error("wrong wire type {wire} of field {field}")]
    WireType {
        /// The field's type and name.
        field: String,
        /// The wire type found.
        wire: u8,
    },
    /// A field's bytes do not have the form that its type asks for.
    #[error("{field}: {reason}")]
    Field {
        /// The field's type and name.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// Messages nest too deep.
    #[error("messages nest deeper than {MAX_DEPTH} levels")]
    Depth,
    /// The object is made of too many messages.
    #[error("an object may be made of {MAX_MESSAGES} messages, and this one has more")]
    Messages,
    /// The fields do not come as Go writes them: in the order of their numbers, all items of a list together.
    #[error("the fields are not in order")]
    Order,
    /// The Rust type that is read does not take it.
    #[error("{0}")]
    Type(String),
}

/// The `runtime.Unknown` message around an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope<'a> {
    /// `group/version` of the object.
    pub api_version: &'a str,
    /// The kind of the object.
    pub kind: &'a str,
    /// The bytes of the object.
    pub raw: &'a [u8],
    /// How `raw` is compressed or otherwise encoded; empty when it is not.
    pub content_encoding: &'a str,
    /// The media type of `raw`; empty for protobuf.
    pub content_type: &'a str,
}

impl<'a> Envelope<'a> {
    /// Reads the magic bytes and the envelope, but not the object in it.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let message = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
        let mut envelope = Self::default();
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => {
                    let mut meta = Reader::new(reader.bytes("Unknown.typeMeta", wire)?);
                    while let Some((number, wire)) = meta.tag()? {
                        match number {
                            1 => envelope.api_version = meta.text("TypeMeta.apiVersion", wire)?,
                            2 => envelope.kind = meta.text("TypeMeta.kind", wire)?,
                            _ => meta.skip(wire)?,
                        }
                    }
                }
                2 => envelope.raw = reader.bytes("Unknown.raw", wire)?,
                3 => envelope.content_encoding = reader.text("Unknown.contentEncoding", wire)?,
                4 => envelope.content_type = reader.text("Unknown.contentType", wire)?,
                _ => reader.skip(wire)?,
            }
        }
        Ok(envelope)
    }

    /// Writes the magic bytes and the envelope.
    pub fn write(&self) -> Vec<u8> {
        let mut writer = Writer::from(Self::start(self.api_version, self.kind, self.raw.len()));
        writer.raw(self.raw);
        writer.bytes(3, self.content_encoding.as_bytes());
        writer.bytes(4, self.content_type.as_bytes());
        writer.finish()
    }

    /// The beginning of a body whose object is plain protobuf of `length` bytes: these bytes follow, and then
    /// [`Envelope::END`]. There is room for all of it.
    pub fn start(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
        let mut writer = Writer::with_capacity(length.min(1 << 20) + api_version.len() + kind.len() + 32);
        head(&mut writer, api_version, kind);
        writer.tag(2, BYTES);
        writer.varint(length as u64);
        writer.finish()
    }

    /// The end of a body that [`Envelope::start`] began: no encoding, no other media type.
    pub const END: &'static [u8] = &[3 << 3 | BYTES, 0, 4 << 3 | BYTES, 0];
}

/// Writes the magic bytes and what the envelope says of the object.
fn head(writer: &mut Writer, api_version: &str, kind: &str) {
    writer.raw(MAGIC);
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
}

/// Decodes a body: the magic bytes and a `runtime.Unknown` around an object of a built-in kind.
///
/// ```
/// use setpoint_kinds::protobuf;
/// use serde_json::json;
///
/// let scale = json!({
///     "apiVersion": "autoscaling/v1", "kind": "Scale",
///     "metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"replicas": 1},
/// });
/// let body = protobuf::encode(&scale).unwrap();
/// let decoded = protobuf::decode(&body).unwrap();
/// assert_eq!(decoded.kind, "Scale");
/// assert_eq!(decoded.value, scale);
/// ```
pub fn decode(body: &[u8]) -> Result<Decoded, DecodeError> {
    let envelope = Envelope::parse(body)?;
    if !envelope.content_encoding.is_empty() {
        return Err(DecodeError::Encoding(envelope.content_encoding.to_owned()));
    }
    if !envelope.content_type.is_empty() && envelope.content_type != MEDIA_TYPE {
        return Err(DecodeError::Encoding(envelope.content_type.to_owned()));
    }
    let (api_version, kind) = (envelope.api_version.to_owned(), envelope.kind.to_owned());
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(ty) = table().type_of_kind(group, version, &kind) else {
        return Err(DecodeError::Kind { api_version, kind });
    };
    let mut map = decode_message(ty, envelope.raw)?;
    map.insert("apiVersion".to_owned(), Value::String(api_version.clone()));
    map.insert("kind".to_owned(), Value::String(kind.clone()));
    Ok(Decoded { api_version, kind, value: Value::Object(map) })
}

/// Encodes an object of a built-in kind, as its `apiVersion` and `kind` name it, into a body.
///
/// The object must have the form that [`conform`](crate::conform) gives it.
pub fn encode(object: &Value) -> Result<Vec<u8>, EncodeError> {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let ty = table()
        .type_of_kind(group, version, kind)
        .ok_or_else(|| EncodeError::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() })?;
    encode_as(ty, api_version, kind, object)
}

/// Encodes an object of type `ty` into a body that names this kind, whatever the object itself says.
///
/// ```
/// use setpoint_kinds::protobuf::{self, Json};
/// use setpoint_kinds::table;
///
/// let ty = table().type_of_kind("", "v1", "ConfigMap").unwrap();
/// let stored = br#"{"metadata":{"name":"settings"},"data":{"color":"blue"}}"#;
/// let body = protobuf::encode_as(ty, "v1", "ConfigMap", Json::text(stored).with_resource_version(7)).unwrap();
/// let decoded = protobuf::decode(&body).unwrap();
/// assert_eq!(decoded.value["metadata"]["resourceVersion"], "7");
/// assert_eq!(decoded.value["data"]["color"], "blue");
/// ```
pub fn encode_as<'a>(
    ty: &Type,
    api_version: &str,
    kind: &str,
    object: impl Into<Json<'a>>,
) -> Result<Vec<u8>, EncodeError> {
    let object = object.into();
    let mut writer = Writer::with_capacity(object.size_hint() + api_version.len() + kind.len() + 32);
    head(&mut writer, api_version, kind);
    encode::write(ty, object, Some(2), &mut writer)?;
    writer.raw(Envelope::END);
    Ok(writer.finish())
}
