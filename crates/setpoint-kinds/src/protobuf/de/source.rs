//! One value, as serde reads it.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error as _, Expected, Unexpected, Visitor};
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

impl Single<'_> {
    /// What is JSON here, or was built. Nothing else stands for what is expected.
    fn tree(self, expected: &dyn Expected) -> Result<Value, Error> {
        let other = match self {
            Single::Json(text) => return serde_json::from_slice(text).map_err(Error::custom),
            Single::Value(value) => return Ok(value),
            other => other,
        };
        let unexpected = match &other {
            Single::Null => Unexpected::Unit,
            Single::Bool(flag) => Unexpected::Bool(*flag),
            Single::Int(number) => Unexpected::Signed(*number),
            Single::Float(number) => Unexpected::Float(*number),
            Single::Text(text) => Unexpected::Str(text),
            Single::Time(text) => Unexpected::Str(text.as_str()),
            Single::Bytes(_) => Unexpected::Other("string"),
            Single::Struct(..) | Single::Json(_) | Single::Value(_) => Unexpected::Map,
        };
        Err(Error::invalid_type(unexpected, expected))
    }
}

/// Whoever says which form he expects gets that one. Most of what could be handed to each of thousands of visitors is not
/// compiled.
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

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Struct(ty, message) => {
                visitor.visit_map(Members::new(ty, message, self.types, self.depth + 1)?)
            }
            other => other.tree(&visitor)?.deserialize_map(visitor).map_err(Error::custom),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.single.tree(&visitor)?.deserialize_seq(visitor).map_err(Error::custom)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Single::Text(Cow::Owned(text)) => visitor.visit_string(text),
            Single::Time(text) => visitor.visit_str(text.as_str()),
            Single::Bytes(bytes) => visitor.visit_string(base64::encode(bytes)),
            other => other.tree(&visitor)?.deserialize_string(visitor).map_err(Error::custom),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Bool(flag) => visitor.visit_bool(flag),
            other => other.tree(&visitor)?.deserialize_bool(visitor).map_err(Error::custom),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single {
            Single::Int(number) => visitor.visit_i64(number),
            Single::Float(number) => visitor.visit_f64(number),
            other => other.tree(&visitor)?.deserialize_i64(visitor).map_err(Error::custom),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_i32(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_i32(visitor)
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
        i8 i16 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}
