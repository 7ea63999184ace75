//! Structs: their fields are written as they come, and then put in order.

use super::EncodeError;
use super::layout::Part;
use super::scanner::{Fault, Scanner};
use crate::protobuf::MAX_DEPTH;
use crate::protobuf::wire::Writer;
use crate::types::{Field, Type};

/// Writes messages while it reads JSON.
///
/// The fields of a struct come in any order. They are written `aside` as they come, and from there to `out` in order.
/// While a struct is read, the two change places: each field is copied once for each struct around it, and nothing has to
/// move to make room.
pub(super) struct Encoder<'w, 'a> {
    pub(super) scanner: Scanner<'a>,
    pub(super) out: &'w mut Writer,
    aside: Writer,
    /// The fields of all structs that are being read, the innermost last.
    parts: Vec<Part>,
    resource_version: Option<u64>,
}

impl<'w, 'a> Encoder<'w, 'a> {
    pub(super) fn new(text: &'a str, resource_version: Option<u64>, out: &'w mut Writer) -> Encoder<'w, 'a> {
        Encoder {
            scanner: Scanner::new(text),
            out,
            aside: Writer::with_capacity(text.len()),
            parts: Vec::with_capacity(64),
            resource_version,
        }
    }

    /// Writes the whole object as field `number`, or as a message of its own. Null is one in which nothing is set.
    pub(super) fn object(mut self, ty: &Type, number: Option<u32>) -> Result<(), Fault> {
        if self.scanner.null()? {
            let zero = ty.layout().zero();
            match number {
                Some(number) => self.out.bytes(number, zero),
                None => self.out.raw(zero),
            }
        } else {
            self.structure(ty, number, 0)?;
        }
        self.scanner.end()
    }

    /// Writes a struct as field `number`, or as the whole message.
    pub(super) fn structure(&mut self, ty: &Type, number: Option<u32>, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return Err(Box::new(EncodeError::Depth));
        }
        std::mem::swap(self.out, &mut self.aside);
        let (first, start) = (self.parts.len(), self.out.len());
        let read = self.fields(ty, depth);
        std::mem::swap(self.out, &mut self.aside);
        read?;
        let parts = &mut self.parts[first..];
        parts.sort_by_key(|part| part.place);
        let (layout, aside) = (ty.layout(), self.aside.as_bytes());
        match number {
            Some(number) => {
                let message = self.out.begin(number, aside.len() - start + layout.zero().len());
                layout.write(parts, aside, self.out);
                self.out.end(message);
            }
            None => layout.write(parts, aside, self.out),
        }
        self.parts.truncate(first);
        self.aside.truncate(start);
        Ok(())
    }

    fn fields(&mut self, ty: &Type, depth: usize) -> Result<(), Fault> {
        self.scanner.open(b'{', "an object")?;
        let layout = ty.layout();
        let mut is_first = true;
        while let Some(name) = self.scanner.key(&mut is_first)? {
            let Some((field, place)) = layout.field(ty, name) else {
                self.scanner.skip()?;
                continue;
            };
            let start = self.out.len();
            self.field(field, depth).map_err(|fault| blame(fault, ty, field))?;
            self.parts.push(Part { place, start, end: self.out.len() });
        }
        if depth == 1 && self.resource_version.is_some() && ty.name == "meta.v1.ObjectMeta" {
            self.write_resource_version(ty);
        }
        Ok(())
    }

    /// Writes the resourceVersion that was given, after the one that was read, if there is any.
    fn write_resource_version(&mut self, meta: &Type) {
        use std::io::Write as _;
        let Some(version) = self.resource_version.take() else { return };
        let Some((field, place)) = meta.layout().field(meta, b"resourceVersion") else { return };
        let start = self.out.len();
        let written = self.out.message(field.number, |writer| write!(writer, "{version}"));
        debug_assert!(written.is_ok(), "writing into memory succeeds");
        self.parts.push(Part { place, start, end: self.out.len() });
    }
}

/// Names the field that could not be read. The innermost is the one to name.
#[cold]
fn blame(mut fault: Fault, ty: &Type, blamed: &Field) -> Fault {
    if let EncodeError::Value { field, .. } = &mut *fault
        && field.is_empty()
    {
        *field = format!("{}.{}", ty.go_name(), blamed.name);
    }
    fault
}
