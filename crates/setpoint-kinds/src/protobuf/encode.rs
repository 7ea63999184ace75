//! JSON → protobuf, through the table, in one pass: fields are written as they are read.
//!
//! The bytes are those that Go writes: fields in the order of their numbers, maps in the order of
//! their keys, and zero values of fields that are no pointers written out.

mod encoder;
mod field;
mod json;
mod layout;
mod scanner;

use self::encoder::Encoder;
pub use self::json::Json;
pub(crate) use self::layout::Layout;
use super::MAX_DEPTH;
use super::wire::{BYTES, Writer};
use crate::types::Type;

/// Why an object has no protobuf form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The kind is not a built-in one.
    #[error("no built-in kind {kind:?} in version {api_version:?}")]
    Kind {
        /// The version that the object names.
        api_version: String,
        /// The kind that the object names.
        kind: String,
    },
    /// A value that its field cannot hold: conform the object first.
    #[error("{field} cannot hold this value: {reason}")]
    Value {
        /// The field's type and name.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// Structs nest too deep.
    #[error("structs nest deeper than {MAX_DEPTH} levels")]
    Depth,
    /// The text is not the JSON of an object.
    #[error("this is not the JSON of an object: {0}")]
    Json(String),
}

/// Encodes an object of type `ty`, which [`conform`](crate::conform) has put in order, without an
/// envelope.
///
/// ```
/// use serde_json::json;
/// use setpoint_kinds::protobuf::{Json, encode_message};
/// use setpoint_kinds::table;
///
/// let ty = table().type_named("meta.v1.LabelSelector").unwrap();
/// let message = encode_message(ty, &json!({"matchLabels": {"app": "web"}})).unwrap();
/// assert_eq!(message, b"\x0a\x0a\x0a\x03app\x12\x03web");
/// assert_eq!(encode_message(ty, Json::text(br#"{"matchLabels":{"app":"web"}}"#)), Ok(message));
/// ```
pub fn encode_message<'a>(ty: &Type, object: impl Into<Json<'a>>) -> Result<Vec<u8>, EncodeError> {
    let object = object.into();
    let mut writer = Writer::with_capacity(object.size_hint());
    write(ty, object, None, &mut writer)?;
    Ok(writer.finish())
}

/// Appends an object of type `ty` as field `number` of the message in `out`: an item of a list, or metadata.
///
/// If it fails, `out` has a part of it.
pub fn append_field<'a>(
    number: u32,
    ty: &Type,
    object: impl Into<Json<'a>>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut writer = Writer::from(std::mem::take(out));
    let result = write(ty, object.into(), Some(number), &mut writer);
    *out = writer.finish();
    result
}

/// Appends the tag of field `number`, whose `length` bytes follow.
pub fn append_length(number: u32, length: usize, out: &mut Vec<u8>) {
    let mut writer = Writer::from(std::mem::take(out));
    writer.tag(number, BYTES);
    writer.varint(length as u64);
    *out = writer.finish();
}

/// Writes an object as field `number`, or as a message of its own.
pub(super) fn write(
    ty: &Type,
    object: Json<'_>,
    number: Option<u32>,
    writer: &mut Writer,
) -> Result<(), EncodeError> {
    let text = object.as_text()?;
    let encoder = Encoder::new(&text, object.resource_version(), writer);
    encoder.object(ty, number).map_err(|fault| match *fault {
        // It is the object itself.
        EncodeError::Value { field, reason } if field.is_empty() => EncodeError::Json(reason),
        fault => fault,
    })
}
