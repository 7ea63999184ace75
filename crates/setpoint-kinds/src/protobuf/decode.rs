//! Protobuf → JSON, through the table.

use std::cell::Cell;

use serde_json::{Map, Number, Value};

use super::wire::{BYTES, FIXED64, Reader, VARINT, text};
use super::{DecodeError, MAX_DEPTH, MAX_MESSAGES};
use crate::base64;
use crate::conform::schema_type;
use crate::quantity::canonical_quantity;
use crate::time::{self, Precision};
use crate::types::{FieldType, Slot, Type};
use crate::zero;

/// Decodes the bytes of one message of type `ty`, without an envelope, into the JSON that
/// Kubernetes has for it.
pub fn decode_message(ty: &Type, message: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut map = Map::new();
    Message { ty, bytes: message, depth: 0, left: Some(&Cell::new(MAX_MESSAGES)) }.structure(&mut map)?;
    Ok(map)
}

/// The bytes of one message, and where it is.
#[derive(Clone, Copy)]
struct Message<'a> {
    ty: &'a Type,
    bytes: &'a [u8],
    depth: usize,
    /// How many messages there may still be: one of two bytes becomes an object with all its zero values.
    left: Option<&'a Cell<usize>>,
}

impl Message<'_> {
    /// Reads the message into `map`, with the zero values that its type has.
    fn structure(self, map: &mut Map<String, Value>) -> Result<(), DecodeError> {
        if let Some(left) = self.left {
            left.set(left.get().checked_sub(1).ok_or(DecodeError::Messages)?);
        }
        self.fields(map)?;
        zero::fill(self.ty, map);
        Ok(())
    }

    /// Reads the fields of the message into `map`. An embedded struct is a message of its own on the wire
    /// and shares the map of the struct around it in JSON.
    fn fields(self, map: &mut Map<String, Value>) -> Result<(), DecodeError> {
        let Message { ty, bytes, depth, left } = self;
        if depth >= MAX_DEPTH {
            return Err(DecodeError::Depth);
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            match ty.slot(number) {
                None => reader.skip(wire)?,
                Some(Slot::Embedded(at)) => {
                    let embedded = &ty.embedded[usize::from(at)];
                    let bytes = reader.bytes(embedded.name, wire)?;
                    Message { ty: embedded.ty.get(), bytes, depth: depth + 1, left }.fields(map)?;
                }
                Some(Slot::Field(at)) => {
                    let field = &ty.fields[usize::from(at)];
                    let at = At { ty, field: field.name, depth, left };
                    let previous = if accumulates(&field.ty) { map.remove(field.name) } else { None };
                    let value = at.field(&field.ty, previous, &mut reader, wire)?;
                    if field.omits(&value) {
                        map.remove(field.name);
                    } else {
                        map.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where in the document a value is, for errors and the limit of depth.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) ty: &'a Type,
    pub(super) field: &'a str,
    pub(super) depth: usize,
    /// How many messages there may still be, where they are counted.
    pub(super) left: Option<&'a Cell<usize>>,
}

impl At<'_> {
    /// A message at this place, into `map`.
    fn structure(self, ty: &Type, bytes: &[u8], map: &mut Map<String, Value>) -> Result<(), DecodeError> {
        Message { ty, bytes, depth: self.depth + 1, left: self.left }.structure(map)
    }

    fn name(self) -> String {
        format!("{}.{}", self.ty.go_name(), self.field)
    }

    #[cold]
    pub(super) fn wrong_wire(self, wire: u8) -> DecodeError {
        DecodeError::WireType { field: self.name(), wire }
    }

    #[cold]
    pub(super) fn wrong(self, reason: impl ToString) -> DecodeError {
        DecodeError::Field { field: self.name(), reason: reason.to_string() }
    }

    /// Reads one occurrence of a field: an item of a list or map, or the whole of anything else.
    fn field(
        self,
        ty: &FieldType,
        previous: Option<Value>,
        reader: &mut Reader<'_>,
        wire: u8,
    ) -> Result<Value, DecodeError> {
        match ty {
            FieldType::List(item) => {
                let mut items = match previous {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                };
                if wire == BYTES && is_packable(item) {
                    let mut packed = Reader::new(reader.delimited()?);
                    while !packed.is_empty() {
                        items.push(self.value(item, &mut packed, wire_of(item))?);
                    }
                } else {
                    items.push(self.value(item, reader, wire)?);
                }
                Ok(Value::Array(items))
            }
            FieldType::Map(item) => {
                let mut map = match previous {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                let (key, value) = self.entry(item, self.delimited(reader, wire)?)?;
                map.insert(key, value);
                Ok(Value::Object(map))
            }
            FieldType::Struct(id) => {
                // A message that comes in two parts is merged.
                let mut map = match previous {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                self.structure(id.get(), self.delimited(reader, wire)?, &mut map)?;
                Ok(Value::Object(map))
            }
            _ => self.value(ty, reader, wire),
        }
    }

    fn entry(self, item: &FieldType, message: &[u8]) -> Result<(String, Value), DecodeError> {
        let mut reader = Reader::new(message);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => key = text(self.delimited(&mut reader, wire)?).into_owned(),
                2 => value = Some(self.value(item, &mut reader, wire)?),
                _ => reader.skip(wire)?,
            }
        }
        // Go leaves out the value of an entry only when it is nil, and reads it back as empty.
        let value = value.unwrap_or_else(|| match item {
            FieldType::Bytes => Value::String(String::new()),
            FieldType::WrappedList(_) => Value::Array(Vec::new()),
            other => other.zero(),
        });
        Ok((key, value))
    }

    pub(super) fn value(
        self,
        ty: &FieldType,
        reader: &mut Reader<'_>,
        wire: u8,
    ) -> Result<Value, DecodeError> {
        if wire != wire_of(ty) {
            return Err(self.wrong_wire(wire));
        }
        Ok(match ty {
            FieldType::Bool => Value::Bool(reader.varint()? != 0),
            // As in Go, the high bits of a number that is too large are lost.
            FieldType::Int32 => Value::from(reader.varint()? as i32),
            FieldType::Int64 => Value::from(reader.varint()? as i64),
            FieldType::Float64 => self.float(f64::from_bits(reader.fixed64()?))?,
            _ => return self.message(ty, reader.delimited()?),
        })
    }

    fn float(self, float: f64) -> Result<Value, DecodeError> {
        if float.fract() == 0.0 && float.abs() < 1e18 {
            return Ok(Value::from(float as i64));
        }
        Number::from_f64(float).map(Value::Number).ok_or_else(|| self.wrong("JSON has no such number"))
    }

    /// Reads what is length-delimited on the wire.
    pub(super) fn message(self, ty: &FieldType, bytes: &[u8]) -> Result<Value, DecodeError> {
        Ok(match ty {
            FieldType::String => Value::String(text(bytes).into_owned()),
            FieldType::Bytes => Value::String(base64::encode(bytes)),
            FieldType::Quantity => {
                let text = text(self.inner(bytes, 1)?.unwrap_or_default());
                match &*text {
                    "" => ty.zero(),
                    text => canonical_quantity(text)
                        .map(|canonical| Value::String(canonical.unwrap_or_else(|| text.to_owned())))
                        .map_err(|error| self.wrong(error))?,
                }
            }
            FieldType::IntOrString => self.int_or_string(bytes)?,
            FieldType::Time => self.time(bytes, Precision::Seconds)?,
            FieldType::MicroTime => self.time(bytes, Precision::Micros)?,
            FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json => match self.inner(bytes, 1)? {
                None | Some([]) => Value::Null,
                Some(text) => serde_json::from_slice(text).map_err(|error| self.wrong(error))?,
            },
            FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings => {
                self.schema_or(ty, bytes)?
            }
            FieldType::Struct(id) => {
                let mut map = Map::new();
                self.structure(id.get(), bytes, &mut map)?;
                Value::Object(map)
            }
            FieldType::WrappedList(item) => {
                let mut list = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, wire)) = reader.tag()? {
                    match number {
                        1 => list.push(self.value(item, &mut reader, wire)?),
                        _ => reader.skip(wire)?,
                    }
                }
                Value::Array(list)
            }
            // The remaining types are numbers, or lists and maps within lists and maps, which the
            // API does not have.
            _ => return Err(self.wrong("unexpected bytes")),
        })
    }

    #[inline]
    pub(super) fn delimited<'a>(self, reader: &mut Reader<'a>, wire: u8) -> Result<&'a [u8], DecodeError> {
        if wire == BYTES { Ok(reader.delimited()?) } else { Err(self.wrong_wire(wire)) }
    }

    /// The bytes of one field of a small message.
    pub(super) fn inner(self, message: &[u8], wanted: u32) -> Result<Option<&[u8]>, DecodeError> {
        let mut found = None;
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.tag()? {
            if number == wanted {
                found = Some(self.delimited(&mut reader, wire)?);
            } else {
                reader.skip(wire)?;
            }
        }
        Ok(found)
    }

    fn int_or_string(self, message: &[u8]) -> Result<Value, DecodeError> {
        let (mut kind, mut int, mut string) = (0, 0, String::new());
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.tag()? {
            match (number, wire) {
                (1, VARINT) => kind = reader.varint()?,
                (2, VARINT) => int = reader.varint()? as i32,
                (3, BYTES) => string = text(reader.delimited()?).into_owned(),
                (1..=3, _) => return Err(self.wrong_wire(wire)),
                _ => reader.skip(wire)?,
            }
        }
        match kind {
            0 => Ok(Value::from(int)),
            1 => Ok(Value::String(string)),
            _ => Err(self.wrong("neither an integer nor a string")),
        }
    }

    fn time(self, message: &[u8], precision: Precision) -> Result<Value, DecodeError> {
        let Some((seconds, nanos)) = self.timestamp(message)? else { return Ok(Value::Null) };
        time::from_unix(seconds, nanos, precision)
            .map(|time| time.map_or(Value::Null, Value::String))
            .map_err(|()| self.wrong("time out of range"))
    }

    /// The seconds and nanoseconds of a time; none if it is Go's zero time, of which nothing is written.
    pub(super) fn timestamp(self, message: &[u8]) -> Result<Option<(i64, i32)>, DecodeError> {
        if message.is_empty() {
            return Ok(None);
        }
        let (mut seconds, mut nanos) = (0, 0);
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.tag()? {
            match (number, wire) {
                (1, VARINT) => seconds = reader.varint()? as i64,
                (2, VARINT) => nanos = reader.varint()? as i32,
                (1 | 2, _) => return Err(self.wrong_wire(wire)),
                _ => reader.skip(wire)?,
            }
        }
        Ok(Some((seconds, nanos)))
    }

    /// The unions of a JSON schema (field 1, or 2 next to a boolean) with something else.
    fn schema_or(self, ty: &FieldType, message: &[u8]) -> Result<Value, DecodeError> {
        let (mut schema, mut allows, mut list) = (None, false, Vec::new());
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.tag()? {
            match (ty, number) {
                (FieldType::SchemaOrBool, 1) if wire == VARINT => allows = reader.varint()? != 0,
                (FieldType::SchemaOrBool, 1) => return Err(self.wrong_wire(wire)),
                (FieldType::SchemaOrBool, 2) | (_, 1) => {
                    schema = Some(self.schema(self.delimited(&mut reader, wire)?)?);
                }
                (FieldType::SchemaOrStrings, 2) => {
                    list.push(Value::String(text(self.delimited(&mut reader, wire)?).into_owned()));
                }
                (_, 2) => list.push(self.schema(self.delimited(&mut reader, wire)?)?),
                _ => reader.skip(wire)?,
            }
        }
        Ok(match (ty, schema) {
            (_, _) if !list.is_empty() => Value::Array(list),
            (_, Some(schema)) => schema,
            (FieldType::SchemaOrBool, None) => Value::Bool(allows),
            (_, None) => Value::Null,
        })
    }

    fn schema(self, message: &[u8]) -> Result<Value, DecodeError> {
        let mut map = Map::new();
        self.structure(schema_type(), message, &mut map)?;
        Ok(Value::Object(map))
    }
}

/// Whether a field that occurs again adds to what is there.
fn accumulates(ty: &FieldType) -> bool {
    matches!(ty, FieldType::List(_) | FieldType::Map(_) | FieldType::Struct(_))
}

fn is_packable(ty: &FieldType) -> bool {
    wire_of(ty) != BYTES
}

pub(super) fn wire_of(ty: &FieldType) -> u8 {
    match ty {
        FieldType::Bool | FieldType::Int32 | FieldType::Int64 => VARINT,
        FieldType::Float64 => FIXED64,
        _ => BYTES,
    }
}
