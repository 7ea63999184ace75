//! Lists and maps: fields that come as often as they have items or entries.

use std::borrow::Cow;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::Error;
use super::source::Source;
use super::value::Single;
use crate::protobuf::decode::{At, wire_of};
use crate::protobuf::wire::{BYTES, Reader, text};
use crate::types::{Field, FieldType, Type};

/// A field that comes as often as it has items or entries.
#[derive(Clone, Copy)]
pub(super) struct Repeated {
    pub(super) ty: &'static Type,
    pub(super) field: &'static Field,
    pub(super) item: &'static FieldType,
    pub(super) depth: usize,
}

impl Repeated {
    /// Hands a list to who wants it. The reader is at the first item, and comes after the last.
    pub(super) fn deserialize_list<'de, S: DeserializeSeed<'de>>(
        self,
        seed: S,
        reader: &mut Reader<'de>,
    ) -> Result<S::Value, Error> {
        let mut items = Items { of: self, reader, is_at_item: true };
        let list = seed.deserialize(Several::List(&mut items))?;
        items.skip_rest()?;
        Ok(list)
    }

    /// Hands a map to who wants it. The reader is at the first entry, and comes after the last.
    pub(super) fn deserialize_map<'de, S: DeserializeSeed<'de>>(
        self,
        seed: S,
        reader: &mut Reader<'de>,
    ) -> Result<S::Value, Error> {
        let mut items = Items { of: self, reader, is_at_item: true };
        let map = seed.deserialize(Several::Map(Entries { items: &mut items, value: None }))?;
        items.skip_rest()?;
        Ok(map)
    }
}

/// The items of a list, or the entries of a map, which follow each other in the message.
struct Items<'a, 'de> {
    of: Repeated,
    reader: &'a mut Reader<'de>,
    /// Whether the reader is at an item, or at a tag that may be of another field.
    is_at_item: bool,
}

impl<'de> Items<'_, 'de> {
    fn at(&self) -> At<'static> {
        At { ty: self.of.ty, field: self.of.field.name, depth: self.of.depth, left: None }
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

struct Entries<'a, 'b, 'de> {
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

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Several::List(items) => visitor.visit_seq(items),
            Several::Map(_) => Err(Error::invalid_type(Unexpected::Map, &visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Several::List(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            Several::Map(entries) => visitor.visit_map(entries),
        }
    }

    /// A map may be read as a struct by a type of somebody else.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Value::deserialize(self)?.deserialize_map(visitor).map_err(Error::custom)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        Err(Error::invalid_type(
            if let Several::List(_) = self { Unexpected::Seq } else { Unexpected::Map },
            &visitor,
        ))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
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
        i8 i16 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

/// What an entry of a map stands for that has no value.
fn empty(ty: &'static FieldType) -> Single<'static> {
    match ty {
        // Go leaves out the value of an entry only when it is nil, and reads it back as empty.
        FieldType::Bytes => Single::Bytes(&[]),
        FieldType::WrappedList(_) => Single::Value(Value::Array(Vec::new())),
        other => Single::zero(other),
    }
}
