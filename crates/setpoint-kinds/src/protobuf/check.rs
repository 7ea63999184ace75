//! Whether a message can be read, without reading it.

use super::decode::{At, wire_of};
use super::wire::{BYTES, Reader, VARINT};
use super::{DecodeError, MAX_DEPTH};
use crate::conform::schema_type;
use crate::time;
use crate::types::{FieldType, Slot, Type};

/// Whether [`from_message`](super::from_message) gives an object of type `ty`, in one quick pass in which nothing is
/// built.
///
/// That holds for a Rust type which takes whatever a field of the table can hold, as those of `k8s-openapi` do. What is
/// unusual is refused here although some type may take it: fields out of order, a year that not everybody can read.
pub fn check_message(ty: &Type, message: &[u8]) -> Result<(), DecodeError> {
    structure(ty, message, 1)
}

fn structure(ty: &Type, message: &[u8], depth: usize) -> Result<(), DecodeError> {
    if depth >= MAX_DEPTH {
        return Err(DecodeError::Depth);
    }
    let mut reader = Reader::new(message);
    let (mut last, mut required_times) = (0, 0);
    while let Some((number, wire)) = reader.tag()? {
        let Some(slot) = ty.slot(number) else {
            reader.skip(wire)?;
            continue;
        };
        if number <= last {
            return Err(DecodeError::Order);
        }
        last = number;
        match slot {
            Slot::Embedded(at) => {
                let embedded = &ty.embedded[usize::from(at)];
                structure(embedded.ty.get(), reader.bytes(embedded.name, wire)?, depth)?;
            }
            Slot::Field(at) => {
                let field = &ty.fields[usize::from(at)];
                let at = At { ty, field: field.name, depth, left: None };
                match &field.ty {
                    FieldType::List(item) if wire == BYTES && wire_of(item) != BYTES => {
                        return Err(DecodeError::Order);
                    }
                    FieldType::List(item) => {
                        repeated(&mut reader, number, wire, |reader| item_value(at, item, reader, wire))?;
                    }
                    FieldType::Map(item) => {
                        repeated(&mut reader, number, wire, |reader| {
                            entry(at, item, at.delimited(reader, wire)?)
                        })?;
                    }
                    ty => {
                        let is_null = value(at, ty, &mut reader, wire)?;
                        required_times += usize::from(field.is_required_time() && !is_null);
                    }
                }
            }
        }
    }
    if required_times < ty.required_times {
        return Err(DecodeError::Type(format!("{}: a required time is missing", ty.go_name())));
    }
    Ok(())
}

/// One field after the other, as long as they have this number.
fn repeated(
    reader: &mut Reader<'_>,
    number: u32,
    wire: u8,
    mut check: impl FnMut(&mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    loop {
        check(reader)?;
        let mut ahead = *reader;
        if ahead.tag()? != Some((number, wire)) {
            return Ok(());
        }
        *reader = ahead;
    }
}

fn entry(at: At<'_>, item: &FieldType, message: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(message);
    let mut has_value = !is_nullable(item);
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => {
                at.delimited(&mut reader, wire)?;
            }
            2 => {
                item_value(at, item, &mut reader, wire)?;
                has_value = true;
            }
            _ => reader.skip(wire)?,
        }
    }
    if has_value { Ok(()) } else { Err(at.wrong("a value is missing")) }
}

/// Whether a value of this type can be one that is null in JSON, and that lists and maps do not take.
fn is_nullable(ty: &FieldType) -> bool {
    matches!(
        ty,
        FieldType::Time | FieldType::MicroTime | FieldType::SchemaOrArray | FieldType::SchemaOrStrings
    )
}

fn item_value(at: At<'_>, ty: &FieldType, reader: &mut Reader<'_>, wire: u8) -> Result<(), DecodeError> {
    if value(at, ty, reader, wire)? { Err(at.wrong("a value is missing")) } else { Ok(()) }
}

/// Whether the value is one of a [nullable](is_nullable) type that is null.
fn value(at: At<'_>, ty: &FieldType, reader: &mut Reader<'_>, wire: u8) -> Result<bool, DecodeError> {
    match ty {
        FieldType::String | FieldType::Bytes => {
            at.delimited(reader, wire)?;
        }
        FieldType::Struct(id) => structure(id.get(), at.delimited(reader, wire)?, at.depth + 1)?,
        FieldType::Bool | FieldType::Int32 | FieldType::Int64 if wire == wire_of(ty) => {
            reader.varint()?;
        }
        FieldType::Time | FieldType::MicroTime => {
            return match at.timestamp(at.delimited(reader, wire)?)? {
                None | Some((time::ZERO_SECONDS, 0)) => Ok(true),
                Some((seconds, nanos))
                    if time::RANGE.contains(&seconds) && (0..1_000_000_000).contains(&nanos) =>
                {
                    Ok(false)
                }
                Some(_) => Err(at.wrong("an unusual time")),
            };
        }
        FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings => {
            return schema_or(at, ty, at.delimited(reader, wire)?);
        }
        FieldType::Quantity if wire == BYTES => {
            let message = reader.delimited()?;
            // As nearly all are: nothing but the number.
            let is_usual = matches!(message, [0x0a, length, text @ ..]
                if text.len() == usize::from(*length) && is_usual_quantity(text));
            if !is_usual {
                at.message(ty, message)?;
            }
        }
        _ => {
            at.value(ty, reader, wire)?;
        }
    }
    Ok(false)
}

/// A JSON schema, or something else. Whether it is neither.
fn schema_or(at: At<'_>, ty: &FieldType, message: &[u8]) -> Result<bool, DecodeError> {
    let mut is_null = is_nullable(ty);
    let mut reader = Reader::new(message);
    while let Some((number, wire)) = reader.tag()? {
        match (ty, number) {
            (FieldType::SchemaOrBool, 1) if wire == VARINT => {
                reader.varint()?;
            }
            (FieldType::SchemaOrBool, 1) => return Err(at.wrong_wire(wire)),
            (FieldType::SchemaOrStrings, 2) => {
                at.delimited(&mut reader, wire)?;
                is_null = false;
            }
            (_, 1 | 2) => {
                structure(schema_type(), at.delimited(&mut reader, wire)?, at.depth + 1)?;
                is_null = false;
            }
            _ => reader.skip(wire)?,
        }
    }
    Ok(is_null)
}

/// Whether a quantity is a few digits and a unit at most, which is never too much.
fn is_usual_quantity(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit = &text[digits..];
    (1..=9).contains(&digits) && matches!(unit, b"" | b"m" | b"k" | b"M" | b"G" | b"Ki" | b"Mi" | b"Gi")
}
