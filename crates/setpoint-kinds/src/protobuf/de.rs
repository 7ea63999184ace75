//! Protobuf → any type that reads Kubernetes' JSON, through the table, with nothing built in between.
//!
//! What a type reads here is what it would read in the JSON of the same object (`decode.rs` makes that JSON): a field
//! that Go leaves out of JSON is left out, one that Go always writes is there.

mod repeated;
mod source;
mod value;

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, MapAccess};
use serde_json::Value;

use self::source::Source;
use self::value::{FieldValue, Single};
use super::decode::decode_message;
use super::encode::encode_message;
use super::wire::{Reader, WireError};
use super::{DecodeError, MAX_DEPTH};
use crate::types::{Field, Slot, Type};

/// What an object says about its own kind. It is not in its message, but around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeMeta<'a> {
    /// `group/version`, or the version alone for the core group.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl<'a> TypeMeta<'a> {
    /// Names a kind.
    pub fn new(api_version: &'a str, kind: &'a str) -> TypeMeta<'a> {
        TypeMeta { api_version, kind }
    }
}

/// Reads the bytes of one message of type `ty` into a Rust type that reads the JSON of it. With `types`, the type finds
/// `apiVersion` and `kind`, too.
///
/// ```
/// use std::collections::BTreeMap;
/// use setpoint_kinds::protobuf::{encode_message, from_message};
///
/// #[derive(serde::Deserialize)]
/// struct ConfigMap {
///     data: BTreeMap<String, String>,
/// }
/// let ty = setpoint_kinds::table().type_named("core.v1.ConfigMap").unwrap();
/// let message = encode_message(ty, &serde_json::json!({"data": {"color": "blue"}})).unwrap();
/// let map: ConfigMap = from_message(ty, None, &message).unwrap();
/// assert_eq!(map.data["color"], "blue");
/// ```
pub fn from_message<K: DeserializeOwned>(
    ty: &'static Type,
    types: Option<TypeMeta<'_>>,
    message: &[u8],
) -> Result<K, DecodeError> {
    let read = |message| K::deserialize(Source::root(ty, types.as_ref(), message));
    match read(message) {
        Ok(object) => Ok(object),
        // The items of a list may come in several places, and a message in several parts. Nobody writes that.
        Err(Error(error)) if *error == DecodeError::Order => {
            read(&in_order(ty, message)?).map_err(|Error(error)| *error)
        }
        Err(Error(error)) => Err(*error),
    }
}

/// The same message as Go writes it: fields in the order of their numbers, without those that the table does not know.
pub fn in_order(ty: &Type, message: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let value = Value::Object(decode_message(ty, message)?);
    encode_message(ty, &value).map_err(|error| DecodeError::Type(error.to_string()))
}

/// An error in a box: results are passed through many hands, and nearly all are good.
#[derive(Debug)]
struct Error(Box<DecodeError>);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        DecodeError::Type(message.to_string()).into()
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Error {
        DecodeError::from(error).into()
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        Error(Box::new(error))
    }
}

/// The fields of a struct, as the members of a JSON object.
struct Members<'de, 't> {
    ty: &'static Type,
    depth: usize,
    part: Part<'de>,
    /// The messages around the one that is read: of structs that Go embeds, which JSON has inline.
    outer: Vec<Part<'de>>,
    /// A bit for each field that was there.
    seen: u128,
    types: Types<'t>,
    /// How many of the fields that are always there have been looked at, after the last of the message.
    filled: usize,
    value: Option<FieldValue<'de, 't>>,
}

/// A message, up to where it was read.
struct Part<'de> {
    ty: &'static Type,
    reader: Reader<'de>,
    last: u32,
}

/// Which of `apiVersion` and `kind` comes next.
#[derive(Clone, Copy)]
enum Types<'t> {
    Both(&'t TypeMeta<'t>),
    Kind(&'t str),
    Done,
}

impl Part<'_> {
    /// Each number once, in order: then nothing has to be merged with what was read before.
    fn in_order(&mut self, number: u32) -> Result<(), DecodeError> {
        if number <= self.last {
            return Err(DecodeError::Order);
        }
        self.last = number;
        Ok(())
    }
}

impl<'de, 't> Members<'de, 't> {
    fn new(
        ty: &'static Type,
        message: &'de [u8],
        types: Option<&'t TypeMeta<'t>>,
        depth: usize,
    ) -> Result<Self, Error> {
        if depth >= MAX_DEPTH {
            return Err(DecodeError::Depth.into());
        }
        let part = Part { ty, reader: Reader::new(message), last: 0 };
        let types = types.map_or(Types::Done, Types::Both);
        Ok(Members { ty, depth, part, outer: Vec::new(), seen: 0, types, filled: 0, value: None })
    }

    fn next_name(&mut self) -> Result<Option<&'static str>, Error> {
        match self.types {
            Types::Both(types) => {
                self.types = Types::Kind(types.kind);
                self.value = Some(FieldValue::Word(types.api_version));
                Ok(Some("apiVersion"))
            }
            Types::Kind(kind) => {
                self.types = Types::Done;
                self.value = Some(FieldValue::Word(kind));
                Ok(Some("kind"))
            }
            Types::Done => match self.next_field()? {
                Some(field) => Ok(Some(field.name)),
                None => Ok(self.next_zero().map(|field| field.name)),
            },
        }
    }

    /// The next field of the message that is in the JSON, too.
    fn next_field(&mut self) -> Result<Option<&'static Field>, Error> {
        loop {
            let Some((number, wire)) = self.part.reader.tag()? else {
                let Some(outer) = self.outer.pop() else { return Ok(None) };
                self.part = outer;
                continue;
            };
            let ty = self.part.ty;
            match ty.slot(number) {
                None => self.part.reader.skip(wire)?,
                Some(Slot::Embedded(at)) => {
                    let embedded = &ty.embedded[usize::from(at)];
                    self.part.in_order(number)?;
                    let message = self.part.reader.bytes(embedded.name, wire)?;
                    let part = Part { ty: embedded.ty.get(), reader: Reader::new(message), last: 0 };
                    self.outer.push(std::mem::replace(&mut self.part, part));
                }
                Some(Slot::Field(at)) => {
                    let field = &ty.fields[usize::from(at)];
                    self.part.in_order(number)?;
                    let value = FieldValue::read(ty, field, self.depth, wire, &mut self.part.reader)?;
                    if value.is_omitted(field) {
                        continue;
                    }
                    self.see(field, at);
                    self.value = Some(value);
                    return Ok(Some(field));
                }
            }
        }
    }

    fn see(&mut self, field: &Field, at: u16) {
        if self.outer.is_empty() {
            self.seen |= 1 << at;
        } else if field.always()
            && let Ok(at) = self.ty.fields.binary_search_by(|own| own.name.cmp(field.name))
        {
            self.seen |= 1 << at;
        }
    }

    /// The next field that Go always writes, and that was not there.
    fn next_zero(&mut self) -> Option<&'static Field> {
        while let Some(at) = self.ty.always.get(self.filled) {
            self.filled += 1;
            if self.seen & 1 << at == 0 {
                let field = &self.ty.fields[usize::from(*at)];
                self.value = Some(FieldValue::Single(match field.pointer {
                    true => Single::Null,
                    false => Single::zero(&field.ty),
                }));
                return Some(field);
            }
        }
        None
    }
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        match self.next_name()? {
            Some(name) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::custom("a value without a name"))?;
        value.deserialize(seed, &mut self.part.reader, self.depth)
    }
}
