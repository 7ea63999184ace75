//! The values of fields.

use std::borrow::Cow;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::{Error, Members, TypeMeta, empty};
use crate::base64;
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

/// A field that comes as often as it has items or entries.
#[derive(Clone, Copy)]
pub(super) struct Repeated {
    ty: &'static Type,
    field: &'static Field,
    item: &'static FieldType,
    depth: usize,
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
        let at = At { ty, field: field.name, depth };
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
            FieldValue::List(of) => {
                let mut items = Items { of, reader, is_at_item: true };
                let list = seed.deserialize(Several::List(&mut items))?;
                items.skip_rest()?;
                Ok(list)
            }
            FieldValue::Map(of) => {
                let mut items = Items { of, reader, is_at_item: true };
                let map = seed.deserialize(Several::Map(Entries { items: &mut items, value: None }))?;
                items.skip_rest()?;
                Ok(map)
            }
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

    fn read(
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

/// The items of a list, or the entries of a map, which follow each other in the message.
pub(super) struct Items<'a, 'de> {
    of: Repeated,
    reader: &'a mut Reader<'de>,
    /// Whether the reader is at an item, or at a tag that may be of another field.
    is_at_item: bool,
}

impl<'de> Items<'_, 'de> {
    fn at(&self) -> At<'static> {
        At { ty: self.of.ty, field: self.of.field.name, depth: self.of.depth }
    }

    /// Goes to the next item, if there is one.
    fn seek(&mut self, wire: u8) -> Result<bool, Error> {
        if !std::mem::take(&mut self.is_at_item) {
            let mut ahead = *self.reader;
            if ahead.tag()? != Some((self.of.field.number, wire)) {
                return Ok(false);
            }
            *self.reader = ahead;
        }
        Ok(true)
    }

    fn count(&self, wire: u8) -> usize {
        let mut ahead = Items { of: self.of, reader: &mut self.reader.clone(), is_at_item: self.is_at_item };
        let mut count = 0;
        while ahead.seek(wire).unwrap_or(false) && ahead.reader.skip(wire).is_ok() {
            count += 1;
        }
        count
    }

    fn skip_rest(&mut self) -> Result<(), Error> {
        // An entry of a map is a message, whatever its value is.
        let wire = if let FieldType::Map(_) = self.of.field.ty { BYTES } else { wire_of(self.of.item) };
        while self.seek(wire)? {
            self.reader.skip(wire)?;
        }
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let wire = wire_of(self.of.item);
        if !self.seek(wire)? {
            return Ok(None);
        }
        let single = Single::read(self.at(), self.of.item, self.reader, wire)?;
        seed.deserialize(Source::new(single, self.of.depth)).map(Some)
    }

    /// Vectors get exactly the room that they need.
    fn size_hint(&self) -> Option<usize> {
        Some(self.count(wire_of(self.of.item)))
    }
}

pub(super) struct Entries<'a, 'b, 'de> {
    items: &'a mut Items<'b, 'de>,
    value: Option<Single<'de>>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if !self.items.seek(BYTES)? {
            return Ok(None);
        }
        let (at, item) = (self.items.at(), self.items.of.item);
        let mut entry = Reader::new(self.items.reader.delimited()?);
        let (mut key, mut value) = (Cow::Borrowed(""), None);
        while let Some((number, wire)) = entry.tag()? {
            match number {
                1 => key = text(at.delimited(&mut entry, wire)?),
                2 => value = Some(Single::read(at, item, &mut entry, wire)?),
                _ => entry.skip(wire)?,
            }
        }
        self.value = Some(value.unwrap_or_else(|| empty(item)));
        seed.deserialize(Source::new(Single::Text(key), self.items.of.depth)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let single = self.value.take().ok_or_else(|| Error::custom("a value without a key"))?;
        seed.deserialize(Source::new(single, self.items.of.depth))
    }
}

/// A list or a map.
enum Several<'a, 'b, 'de> {
    List(&'a mut Items<'b, 'de>),
    Map(Entries<'a, 'b, 'de>),
}

impl<'de> Deserializer<'de> for Several<'_, '_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Several::List(items) => visitor.visit_seq(items),
            Several::Map(entries) => visitor.visit_map(entries),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// What is not read is skipped by who asked.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

/// Hands a value out, in the struct that is so many structs deep.
pub(super) struct Source<'de, 't> {
    single: Single<'de>,
    depth: usize,
    /// What the object says about its kind, if it is an object and that is wanted.
    types: Option<&'t TypeMeta<'t>>,
}

impl<'de, 't> Source<'de, 't> {
    fn new(single: Single<'de>, depth: usize) -> Source<'de, 'static> {
        Source { single, depth, types: None }
    }

    /// The whole object.
    pub(super) fn root(
        ty: &'static Type,
        types: Option<&'t TypeMeta<'t>>,
        message: &'de [u8],
    ) -> Source<'de, 't> {
        Source { single: Single::Struct(ty, message), depth: 0, types }
    }
}

impl<'de> Deserializer<'de> for Source<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Null => visitor.visit_unit(),
            Single::Bool(flag) => visitor.visit_bool(flag),
            Single::Int(number) => visitor.visit_i64(number),
            Single::Float(number) => visitor.visit_f64(number),
            Single::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Single::Text(Cow::Owned(text)) => visitor.visit_string(text),
            Single::Time(text) => visitor.visit_str(text.as_str()),
            Single::Bytes(bytes) => visitor.visit_string(base64::encode(bytes)),
            Single::Json(text) => {
                let mut json = serde_json::Deserializer::from_slice(text);
                let value = json.deserialize_any(visitor).map_err(Error::custom)?;
                json.end().map_err(Error::custom)?;
                Ok(value)
            }
            Single::Struct(ty, message) => {
                visitor.visit_map(Members::new(ty, message, self.types, self.depth + 1)?)
            }
            Single::Value(value) => value.deserialize_any(visitor).map_err(Error::custom),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant is named by a string, or by the only member of an object, as in JSON.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = Value::deserialize(self)?;
        value.deserialize_enum(name, variants, visitor).map_err(Error::custom)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}
