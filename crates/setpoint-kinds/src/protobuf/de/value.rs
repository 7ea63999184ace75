//! The values of fields.

use std::borrow::Cow;

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::Error;
use super::repeated::Repeated;
use super::source::Source;
use crate::protobuf::DecodeError;
use crate::protobuf::decode::{At, decode_message, wire_of};
use crate::protobuf::wire::{BYTES, Reader, text};
use crate::quantity::canonical_quantity;
use crate::time::{self, Precision};
use crate::types::{Field, FieldType, Type};

/// The value of a field.
pub(super) enum FieldValue<'de, 't> {
    Single(Single<'de>),
    /// A word that is not in the message.
    Word(&'t str),
    /// The reader is at the first item; others may follow.
    List(Repeated),
    /// The reader is at the first entry; others may follow.
    Map(Repeated),
}

/// What comes once.
pub(super) enum Single<'de> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'de, str>),
    Time(time::Text),
    /// Base64 in JSON.
    Bytes(&'de [u8]),
    /// JSON as it is.
    Json(&'de [u8]),
    Struct(&'static Type, &'de [u8]),
    /// What is rare enough to be built first.
    Value(Value),
}

impl<'de> FieldValue<'de, '_> {
    /// Reads a field, or as much of it as comes first.
    pub(super) fn read(
        ty: &'static Type,
        field: &'static Field,
        depth: usize,
        wire: u8,
        reader: &mut Reader<'de>,
    ) -> Result<Self, DecodeError> {
        let at = At { ty, field: field.name, depth, left: None };
        let repeated = |item| Repeated { ty, field, item, depth };
        match &field.ty {
            FieldType::List(item) if wire == wire_of(item) => Ok(FieldValue::List(repeated(item))),
            // Numbers in one piece: nobody writes that.
            FieldType::List(_) if wire == BYTES => Err(DecodeError::Order),
            FieldType::Map(item) if wire == BYTES => Ok(FieldValue::Map(repeated(item))),
            FieldType::List(_) | FieldType::Map(_) => Err(at.wrong_wire(wire)),
            ty => Single::read(at, ty, reader, wire).map(FieldValue::Single),
        }
    }

    /// Whether Go leaves the field out of JSON when it has this value.
    pub(super) fn is_omitted(&self, field: &Field) -> bool {
        match self {
            FieldValue::Single(single) if !field.pointer => {
                field.omit_zero && single.is_zero(&field.ty)
                    || field.omit_empty && !field.ty.is_go_struct() && single.is_empty()
            }
            _ => false,
        }
    }

    /// Hands the value to who wants it.
    pub(super) fn deserialize<S: DeserializeSeed<'de>>(
        self,
        seed: S,
        reader: &mut Reader<'de>,
        depth: usize,
    ) -> Result<S::Value, Error> {
        match self {
            FieldValue::Single(single) => seed.deserialize(Source::new(single, depth)),
            FieldValue::Word(word) => {
                seed.deserialize(Source::new(Single::Text(Cow::Owned(word.to_owned())), depth))
            }
            FieldValue::List(of) => of.deserialize_list(seed, reader),
            FieldValue::Map(of) => of.deserialize_map(seed, reader),
        }
    }
}

impl<'de> Single<'de> {
    pub(super) fn zero(ty: &'static FieldType) -> Self {
        match ty.zero() {
            Value::Null => Single::Null,
            other => Single::Value(other),
        }
    }

    pub(super) fn read(
        at: At<'_>,
        ty: &'static FieldType,
        reader: &mut Reader<'de>,
        wire: u8,
    ) -> Result<Self, DecodeError> {
        if wire != wire_of(ty) {
            return Err(at.wrong_wire(wire));
        }
        Ok(match ty {
            FieldType::String => Single::Text(text(reader.delimited()?)),
            FieldType::Bool => Single::Bool(reader.varint()? != 0),
            // As in Go, the high bits of a number that is too large are lost.
            FieldType::Int32 => Single::Int((reader.varint()? as i32).into()),
            FieldType::Int64 => Single::Int(reader.varint()? as i64),
            FieldType::Float64 => {
                let float = f64::from_bits(reader.fixed64()?);
                match float.fract() == 0.0 && float.abs() < 1e18 {
                    true => Single::Int(float as i64),
                    false if float.is_finite() => Single::Float(float),
                    false => return Err(at.wrong("JSON has no such number")),
                }
            }
            FieldType::Bytes => Single::Bytes(reader.delimited()?),
            FieldType::Struct(id) => Single::Struct(id.get(), reader.delimited()?),
            FieldType::Quantity => quantity(at, reader.delimited()?)?,
            FieldType::Time => timestamp(at, reader.delimited()?, Precision::Seconds)?,
            FieldType::MicroTime => timestamp(at, reader.delimited()?, Precision::Micros)?,
            FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json => {
                match inner(reader.delimited()?, at)? {
                    None | Some([]) => Single::Null,
                    Some(text) if text.trim_ascii() == b"null" => Single::Null,
                    Some(text) => Single::Json(text),
                }
            }
            // Unions, which say only at their end what they are, and lists in messages of their own.
            _ => match at.message(ty, reader.delimited()?)? {
                Value::Null => Single::Null,
                value => Single::Value(value),
            },
        })
    }

    fn is_zero(&self, ty: &FieldType) -> bool {
        match self {
            Single::Struct(id, message) => {
                decode_message(id, message).is_ok_and(|map| Value::Object(map) == ty.zero())
            }
            Single::Null => ty.zero().is_null(),
            Single::Value(value) => *value == ty.zero(),
            other => other.is_empty(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Single::Null => true,
            Single::Bool(flag) => !flag,
            Single::Int(number) => *number == 0,
            Single::Float(number) => *number == 0.0,
            Single::Text(text) => text.is_empty(),
            Single::Bytes(bytes) => bytes.is_empty(),
            Single::Value(Value::Array(items)) => items.is_empty(),
            Single::Time(_) | Single::Json(_) | Single::Struct(..) | Single::Value(_) => false,
        }
    }
}

fn quantity<'de>(at: At<'_>, message: &'de [u8]) -> Result<Single<'de>, DecodeError> {
    let text = match inner(message, at)? {
        None | Some([]) => return Ok(Single::Text(Cow::Borrowed("0"))),
        Some(bytes) => text(bytes),
    };
    match canonical_quantity(&text) {
        Ok(None) => Ok(Single::Text(text)),
        Ok(Some(canonical)) => Ok(Single::Text(canonical.into())),
        Err(error) => Err(at.wrong(error)),
    }
}

fn timestamp<'de>(at: At<'_>, message: &[u8], precision: Precision) -> Result<Single<'de>, DecodeError> {
    let Some((seconds, nanos)) = at.timestamp(message)? else { return Ok(Single::Null) };
    let text =
        time::Text::from_unix(seconds, nanos, precision).map_err(|()| at.wrong("time out of range"))?;
    Ok(text.map_or(Single::Null, Single::Time))
}

/// The bytes of the only field of a small message.
fn inner<'de>(message: &'de [u8], at: At<'_>) -> Result<Option<&'de [u8]>, DecodeError> {
    let mut found = None;
    let mut reader = Reader::new(message);
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => found = Some(at.delimited(&mut reader, wire)?),
            _ => reader.skip(wire)?,
        }
    }
    Ok(found)
}
