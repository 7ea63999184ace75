//! The values of fields, of all types that there are.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::encoder::Encoder;
use super::layout::{int_or_string, write_zero};
use super::scanner::{Fault, wrong};
use crate::base64;
use crate::conform::schema_type;
use crate::protobuf::wire::{Reader, Writer};
use crate::table::table;
use crate::time::{self, Precision};
use crate::types::{Field, FieldType, TypeId};

impl Encoder<'_, '_> {
    /// Writes a field of a struct that is `depth` deep.
    pub(super) fn field(&mut self, field: &Field, depth: usize) -> Result<(), Fault> {
        if !self.scanner.null()? {
            return self.value(&field.ty, field.number, depth);
        }
        if field.writes_null(true) {
            write_zero(&field.ty, field.number, self.out);
        }
        Ok(())
    }

    /// Writes an item of a list; null is the zero value.
    fn item(&mut self, ty: &FieldType, number: u32, depth: usize) -> Result<(), Fault> {
        if !self.scanner.null()? {
            return self.value(ty, number, depth);
        }
        write_zero(ty, number, self.out);
        Ok(())
    }

    /// Writes a value that is not null.
    fn value(&mut self, ty: &FieldType, number: u32, depth: usize) -> Result<(), Fault> {
        match ty {
            FieldType::String => {
                let text = self.scanner.string()?;
                self.out.bytes(number, text);
            }
            FieldType::Struct(id) => return self.structure(id.get(), Some(number), depth + 1),
            FieldType::List(item) => return self.items(item, number, depth),
            FieldType::Map(item) => return self.entries(item, number, depth),
            FieldType::Bool => {
                let flag = self.scanner.boolean()?;
                self.out.number(number, i64::from(flag));
            }
            FieldType::Int32 | FieldType::Int64 => {
                let int = self.scanner.integer()?;
                self.out.number(number, int);
            }
            FieldType::Float64 => {
                let float = self.scanner.float()?;
                self.out.float(number, float);
            }
            FieldType::Bytes => {
                let text = str::from_utf8(self.scanner.string()?).unwrap_or_default();
                let bytes = base64::decode(text).map_err(wrong)?;
                self.out.bytes(number, &bytes);
            }
            _ => {
                let message = self.out.begin(number, 0);
                self.message(ty, depth)?;
                self.out.end(message);
            }
        }
        Ok(())
    }

    /// Writes the inside of what is a message on the wire.
    fn message(&mut self, ty: &FieldType, depth: usize) -> Result<(), Fault> {
        let next = self.scanner.peek();
        match (ty, next) {
            (FieldType::Quantity, _) => {
                let text = self.scanner.string()?;
                self.out.bytes(1, text);
            }
            (FieldType::IntOrString, Some(b'"')) => {
                let text = self.scanner.string()?;
                int_or_string(1, 0, text, self.out);
            }
            (FieldType::IntOrString, _) => int_or_string(0, self.scanner.integer()?, b"", self.out),
            (FieldType::Time, _) => self.time(Precision::Seconds)?,
            (FieldType::MicroTime, _) => self.time(Precision::Micros)?,
            (FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json, _) => {
                let text = self.scanner.skip()?;
                self.out.bytes(1, text);
            }
            (FieldType::SchemaOrBool, Some(b'{')) => {
                self.out.number(1, 1);
                return self.value(schema(), 2, depth);
            }
            (FieldType::SchemaOrBool, _) => {
                let allows = self.scanner.boolean()?;
                self.out.number(1, i64::from(allows));
            }
            (FieldType::SchemaOrArray, Some(b'[')) => return self.items(schema(), 2, depth),
            (FieldType::SchemaOrStrings, Some(b'[')) => return self.items(&FieldType::String, 2, depth),
            (FieldType::SchemaOrArray | FieldType::SchemaOrStrings, _) => {
                return self.value(schema(), 1, depth);
            }
            (FieldType::WrappedList(item), _) => return self.items(item, 1, depth),
            _ => return Err(self.scanner.unexpected(&ty.go_type())),
        }
        Ok(())
    }

    fn time(&mut self, precision: Precision) -> Result<(), Fault> {
        let text = str::from_utf8(self.scanner.string()?).unwrap_or_default();
        let (seconds, nanos) = time::to_unix(text, precision).map_err(wrong)?;
        self.out.number(1, seconds);
        self.out.number(2, if precision == Precision::Micros { nanos.into() } else { 0 });
        Ok(())
    }

    fn items(&mut self, ty: &FieldType, number: u32, depth: usize) -> Result<(), Fault> {
        self.scanner.open(b'[', "a list")?;
        let mut is_first = true;
        while self.scanner.next(b']', &mut is_first)? {
            self.item(ty, number, depth)?;
        }
        Ok(())
    }

    fn entries(&mut self, ty: &FieldType, number: u32, depth: usize) -> Result<(), Fault> {
        self.scanner.open(b'{', "an object")?;
        let start = self.out.len();
        let mut is_first = true;
        while let Some(key) = self.scanner.key(&mut is_first)? {
            let entry = self.out.begin(number, 0);
            self.out.bytes(1, key);
            // Bytes that are null are no value at all.
            if *ty != FieldType::Bytes || !self.scanner.null()? {
                self.item(ty, 2, depth)?;
            }
            self.out.end(entry);
        }
        sort_entries(self.out, start);
        Ok(())
    }
}

/// The type of schemas within a schema.
fn schema() -> &'static FieldType {
    static SCHEMA: OnceLock<FieldType> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let at = table().types().iter().position(|ty| std::ptr::eq(ty, schema_type()));
        FieldType::Struct(TypeId(at.expect("the type is one of the table") as u16))
    })
}

/// Puts the entries of a map, which are written from `start` on, in the order of their keys. Of several with one key the
/// last counts.
fn sort_entries(writer: &mut Writer, start: usize) {
    let map = &writer.as_bytes()[start..];
    let mut reader = Reader::new(map);
    if std::iter::from_fn(|| next_key(&mut reader)).is_sorted_by(|key, next| key < next) {
        return;
    }
    let mut entries = BTreeMap::new();
    let mut reader = Reader::new(map);
    let mut rest = map;
    while let Some(key) = next_key(&mut reader) {
        let (entry, later) = rest.split_at(rest.len() - reader.left());
        entries.insert(key, entry);
        rest = later;
    }
    let sorted = entries.into_values().collect::<Vec<_>>().concat();
    writer.truncate(start);
    writer.raw(&sorted);
}

/// The key of the next entry.
fn next_key<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    reader.tag().ok()??;
    let mut entry = Reader::new(reader.delimited().ok()?);
    entry.tag().ok()??;
    entry.delimited().ok()
}
