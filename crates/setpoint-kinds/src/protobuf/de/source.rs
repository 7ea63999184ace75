//! One value, as serde reads it.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::value::Single;
use super::{Error, Members, TypeMeta};
use crate::base64;
use crate::types::Type;

/// Hands a value out, in the struct that is so many structs deep.
pub(super) struct Source<'de, 't> {
    single: Single<'de>,
    depth: usize,
    /// What the object says about its kind, if it is an object and that is wanted.
    types: Option<&'t TypeMeta<'t>>,
}

impl<'de, 't> Source<'de, 't> {
    pub(super) fn new(single: Single<'de>, depth: usize) -> Source<'de, 'static> {
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
