//! JSON → protobuf, through the table.
//!
//! The bytes are those that Go writes: fields in the order of their numbers, maps in the order of
//! their keys, and zero values of fields that are no pointers written out.

use serde_json::Value;

use super::MAX_DEPTH;
use super::wire::{BYTES, Writer};
use crate::base64;
use crate::conform::schema_type;
use crate::time::{self, Precision};
use crate::types::{Field, FieldType, Slot, Type};

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
}

/// Encodes an object of type `ty`, which [`conform`](crate::conform) has put in order, without an
/// envelope.
pub fn encode_message(ty: &Type, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::with_capacity(512);
    structure(ty, object, &mut writer, 0)?;
    Ok(writer.finish())
}

/// Appends an object of type `ty` as field `number` of the message in `out`: an item of a list, or metadata.
///
/// If it fails, `out` has a part of it.
pub fn append_field(number: u32, ty: &Type, object: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut writer = Writer::from(std::mem::take(out));
    let result = writer.message(number, |writer| structure(ty, object, writer, 0));
    *out = writer.finish();
    result
}

/// Appends bytes as field `number` of the message in `out`.
pub fn append_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    let mut writer = Writer::from(std::mem::take(out));
    writer.bytes(number, bytes);
    *out = writer.finish();
}

/// Appends the tag of field `number`, whose `length` bytes follow.
pub fn append_length(number: u32, length: usize, out: &mut Vec<u8>) {
    let mut writer = Writer::from(std::mem::take(out));
    writer.tag(number, BYTES);
    writer.varint(length as u64);
    *out = writer.finish();
}

pub(super) fn structure(
    ty: &Type,
    object: &Value,
    writer: &mut Writer,
    depth: usize,
) -> Result<(), EncodeError> {
    if depth >= MAX_DEPTH {
        return Err(EncodeError::Depth);
    }
    for (number, slot) in &ty.numbers {
        match slot {
            Slot::Embedded(at) => {
                let embedded = &ty.embedded[usize::from(*at)];
                writer.message(*number, |writer| structure(embedded.ty.get(), object, writer, depth + 1))?;
            }
            Slot::Field(at) => {
                let field = &ty.fields[usize::from(*at)];
                At { ty, field, depth }.field(object.get(field.name), writer)?;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct At<'a> {
    ty: &'a Type,
    field: &'a Field,
    depth: usize,
}

impl At<'_> {
    fn wrong(self, reason: impl ToString) -> EncodeError {
        let field = format!("{}.{}", self.ty.go_name(), self.field.name);
        EncodeError::Value { field, reason: reason.to_string() }
    }

    fn field(self, value: Option<&Value>, writer: &mut Writer) -> Result<(), EncodeError> {
        let number = self.field.number;
        match (&self.field.ty, value.unwrap_or(&Value::Null)) {
            (_, Value::Null) if !self.writes_null(value.is_some()) => Ok(()),
            (FieldType::List(item), Value::Array(items)) => {
                items.iter().try_for_each(|value| self.value(item, number, value, writer))
            }
            (FieldType::Map(item), Value::Object(map)) => map.iter().try_for_each(|(key, value)| {
                writer.message(number, |writer| {
                    writer.bytes(1, key.as_bytes());
                    match (&**item, value) {
                        (FieldType::Bytes, Value::Null) => Ok(()),
                        _ => self.value(item, 2, value, writer),
                    }
                })
            }),
            (ty, value) => self.value(ty, number, value, writer),
        }
    }

    /// Whether Go writes a field that is null or absent. It writes the zero value of what is no
    /// pointer, list, map or byte slice; a null behind a pointer that omits null is the JSON of
    /// something that is there, such as a zero time.
    fn writes_null(self, present: bool) -> bool {
        let nil = matches!(
            self.field.ty,
            FieldType::List(_) | FieldType::WrappedList(_) | FieldType::Map(_) | FieldType::Bytes
        );
        if self.field.pointer { present && self.field.omit_empty } else { !nil }
    }

    /// Writes one value; null stands for Go's zero value.
    fn value(
        self,
        ty: &FieldType,
        number: u32,
        value: &Value,
        writer: &mut Writer,
    ) -> Result<(), EncodeError> {
        match (ty, value) {
            (FieldType::String, Value::String(text)) => writer.bytes(number, text.as_bytes()),
            (FieldType::String | FieldType::Bytes, Value::Null) => writer.bytes(number, b""),
            (FieldType::Bytes, Value::String(text)) => {
                let bytes = base64::decode(text).map_err(|error| self.wrong(error))?;
                writer.bytes(number, &bytes);
            }
            (FieldType::Bool, Value::Bool(flag)) => writer.number(number, i64::from(*flag)),
            (FieldType::Bool | FieldType::Int32 | FieldType::Int64, Value::Null) => writer.number(number, 0),
            (FieldType::Int32 | FieldType::Int64, Value::Number(value)) => {
                let value = value.as_i64().ok_or_else(|| self.wrong("not an integer"))?;
                writer.number(number, value);
            }
            (FieldType::Float64, Value::Number(value)) => {
                writer.float(number, value.as_f64().ok_or_else(|| self.wrong("not a number"))?);
            }
            (
                FieldType::Bool
                | FieldType::Int32
                | FieldType::Int64
                | FieldType::Float64
                | FieldType::String
                | FieldType::Bytes,
                _,
            ) => return Err(self.wrong("another type is expected")),
            _ => return writer.message(number, |writer| self.message(ty, value, writer)),
        }
        Ok(())
    }

    /// Writes the inside of what is a message on the wire.
    fn message(self, ty: &FieldType, value: &Value, writer: &mut Writer) -> Result<(), EncodeError> {
        match (ty, value) {
            (FieldType::Struct(id), _) => return structure(id.get(), value, writer, self.depth + 1),
            (FieldType::Quantity, Value::String(text)) => writer.bytes(1, text.as_bytes()),
            (FieldType::Quantity, Value::Null) => writer.bytes(1, b"0"),
            (FieldType::IntOrString, Value::String(text)) => int_or_string(1, 0, text, writer),
            (FieldType::IntOrString, Value::Null) => int_or_string(0, 0, "", writer),
            (FieldType::IntOrString, Value::Number(int)) => {
                let int = int.as_i64().ok_or_else(|| self.wrong("not an integer"))?;
                int_or_string(0, int, "", writer);
            }
            (FieldType::Time, Value::String(text)) => self.time(text, Precision::Seconds, writer)?,
            (FieldType::MicroTime, Value::String(text)) => self.time(text, Precision::Micros, writer)?,
            (FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json, value) if !value.is_null() => {
                writer.json(1, value);
            }
            (FieldType::SchemaOrBool, Value::Bool(allows)) => writer.number(1, i64::from(*allows)),
            (FieldType::SchemaOrBool, Value::Object(_)) => {
                writer.number(1, 1);
                return self.schema(2, value, writer);
            }
            (FieldType::SchemaOrArray | FieldType::SchemaOrStrings, Value::Object(_)) => {
                return self.schema(1, value, writer);
            }
            (FieldType::SchemaOrArray, Value::Array(items)) => {
                return items.iter().try_for_each(|item| self.schema(2, item, writer));
            }
            (FieldType::SchemaOrStrings, Value::Array(items)) => {
                return items.iter().try_for_each(|item| self.value(&FieldType::String, 2, item, writer));
            }
            (FieldType::WrappedList(item), Value::Array(items)) => {
                return items.iter().try_for_each(|value| self.value(item, 1, value, writer));
            }
            (_, Value::Null) => {}
            _ => return Err(self.wrong("another type is expected")),
        }
        Ok(())
    }

    fn time(self, text: &str, precision: Precision, writer: &mut Writer) -> Result<(), EncodeError> {
        let (seconds, nanos) = time::to_unix(text, precision).map_err(|error| self.wrong(error))?;
        writer.number(1, seconds);
        writer.number(2, if precision == Precision::Micros { nanos.into() } else { 0 });
        Ok(())
    }

    fn schema(self, number: u32, value: &Value, writer: &mut Writer) -> Result<(), EncodeError> {
        writer.message(number, |writer| structure(schema_type(), value, writer, self.depth + 1))
    }
}

fn int_or_string(kind: i64, int: i64, text: &str, writer: &mut Writer) {
    writer.number(1, kind);
    writer.number(2, int);
    writer.bytes(3, text.as_bytes());
}
