//! How the message of a struct is put together from the fields that were found.

use crate::protobuf::wire::Writer;
use crate::types::{Field, FieldType, Slot, Type, TypeId};

/// How the messages of a type are put together.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The message of a struct in which nobody set anything.
    zero: Box<[u8]>,
    /// Where in it each number of the type starts, and where it ends.
    starts: Box<[usize]>,
    embedded: Box<[Embedded]>,
    /// The fields that protobuf has, each as near as possible to the [`hash`] of its name.
    fields: Box<[Option<(u16, Place)>]>,
}

/// A struct that is part of its outer one in JSON and a message of its own in protobuf.
#[derive(Clone, Copy, Debug)]
struct Embedded {
    slot: usize,
    number: u32,
    ty: TypeId,
}

/// The place of a field in a message: its slot, that is, the how manieth number of the type it has. For the field of an
/// embedded struct that is the slot of the struct and then the slot in there. Each is a byte, so that places compare as
/// the fields follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u32);

impl Place {
    fn of(name: &str, ty: &Type) -> Option<Place> {
        (0_u32..).zip(&ty.numbers).find_map(|(slot, (_, what))| {
            assert!(slot < 256, "{} has more numbers than a place can tell apart", ty.name);
            match what {
                Slot::Field(at) if ty.fields[usize::from(*at)].name == name => Some(Place(slot << 24)),
                Slot::Field(_) => None,
                Slot::Embedded(at) => {
                    let inner = Place::of(name, ty.embedded[usize::from(*at)].ty.get())?;
                    Some(Place(slot << 24 | inner.0 >> 8))
                }
            }
        })
    }

    /// The slot in the message, or in the one that is embedded `level` deep.
    fn slot(self, level: usize) -> usize {
        usize::from(self.0.to_be_bytes()[level])
    }
}

/// A field that was found, and where it has been written.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) place: Place,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Layout {
    fn new(ty: &Type) -> Layout {
        let mut zero = Writer::with_capacity(64);
        let mut starts = Vec::with_capacity(ty.numbers.len() + 1);
        let mut embedded = Vec::new();
        for (slot, (number, what)) in ty.numbers.iter().enumerate() {
            starts.push(zero.len());
            match what {
                Slot::Embedded(at) => {
                    let ty = ty.embedded[usize::from(*at)].ty;
                    zero.bytes(*number, &ty.get().layout().zero);
                    embedded.push(Embedded { slot, number: *number, ty });
                }
                Slot::Field(at) => {
                    let field = &ty.fields[usize::from(*at)];
                    if field.writes_null(false) {
                        write_zero(&field.ty, *number, &mut zero);
                    }
                }
            }
        }
        starts.push(zero.len());
        let mut fields = vec![None; 2 * ty.fields.len().next_power_of_two()];
        for (index, field) in (0..).zip(&ty.fields) {
            if let Some(place) = Place::of(field.name, ty) {
                let mut at = hash(field.name.as_bytes()) % fields.len();
                while fields[at].is_some() {
                    at = (at + 1) % fields.len();
                }
                fields[at] = Some((index, place));
            }
        }
        Layout {
            zero: zero.finish().into(),
            starts: starts.into(),
            embedded: embedded.into(),
            fields: fields.into(),
        }
    }

    /// The field of `ty` with this JSON name, if protobuf has it, and its place.
    #[inline]
    pub(super) fn field<'t>(&self, ty: &'t Type, name: &[u8]) -> Option<(&'t Field, Place)> {
        let mask = self.fields.len() - 1;
        let mut at = hash(name);
        loop {
            let (index, place) = self.fields[at & mask]?;
            let field = &ty.fields[usize::from(index)];
            if field.name.as_bytes() == name {
                return Some((field, place));
            }
            at += 1;
        }
    }

    /// The message of a struct in which nobody set anything.
    pub(super) fn zero(&self) -> &[u8] {
        &self.zero
    }

    /// Writes a message of `parts`, which are in order and somewhere in `bytes`. Of several in one place the last counts.
    pub(super) fn write(&self, parts: &[Part], bytes: &[u8], writer: &mut Writer) {
        self.write_level(0, parts, bytes, writer);
    }

    fn write_level(&self, level: usize, parts: &[Part], bytes: &[u8], writer: &mut Writer) {
        let (mut at, mut next) = (0, 0);
        while let Some(part) = parts.get(at) {
            let slot = part.place.slot(level);
            let here = at;
            at += 1;
            while parts.get(at).is_some_and(|part| part.place.slot(level) == slot) {
                at += 1;
            }
            self.write_zeros(next, slot, writer);
            next = slot + 1;
            if let Some(embedded) = self.embedded.iter().find(|embedded| embedded.slot == slot) {
                let (layout, parts) = (embedded.ty.get().layout(), &parts[here..at]);
                writer.message(embedded.number, |writer| layout.write_level(level + 1, parts, bytes, writer));
            } else {
                let last = &parts[at - 1];
                writer.raw(&bytes[last.start..last.end]);
            }
        }
        self.write_zeros(next, self.starts.len() - 1, writer);
    }

    /// Writes what Go has for the slots from `from` to `to`, in which there is nothing.
    #[inline]
    fn write_zeros(&self, from: usize, to: usize, writer: &mut Writer) {
        let (start, end) = (self.starts[from], self.starts[to]);
        if start < end {
            writer.raw(&self.zero[start..end]);
        }
    }
}

/// Tells names apart, more or less: few fields of a struct have the same length, first, middle and last letter.
#[inline]
fn hash(name: &[u8]) -> usize {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return 0 };
    let middle = name[name.len() / 2];
    name.len() + 3 * usize::from(*first) + 7 * usize::from(*last) + 31 * usize::from(middle)
}

impl Type {
    pub(crate) fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| Layout::new(self))
    }
}

impl Field {
    /// Whether Go writes a field that is null or absent. It writes the zero value of what is no
    /// pointer, list, map or byte slice; a null behind a pointer that omits null is the JSON of
    /// something that is there, such as a zero time.
    pub(super) fn writes_null(&self, present: bool) -> bool {
        let nil = matches!(
            self.ty,
            FieldType::List(_) | FieldType::WrappedList(_) | FieldType::Map(_) | FieldType::Bytes
        );
        if self.pointer { present && self.omit_empty } else { !nil }
    }
}

/// Writes Go's zero value.
pub(super) fn write_zero(ty: &FieldType, number: u32, writer: &mut Writer) {
    match ty {
        FieldType::Bool | FieldType::Int32 | FieldType::Int64 => writer.number(number, 0),
        FieldType::Float64 => writer.float(number, 0.0),
        FieldType::Struct(id) => writer.bytes(number, id.get().layout().zero()),
        FieldType::Quantity => writer.message(number, |quantity| quantity.bytes(1, b"0")),
        FieldType::IntOrString => writer.message(number, |writer| int_or_string(0, 0, b"", writer)),
        // Nothing in a string or bytes, and nothing in a message of which nothing is known.
        _ => writer.bytes(number, b""),
    }
}

pub(super) fn int_or_string(kind: i64, int: i64, text: &[u8], writer: &mut Writer) {
    writer.number(1, kind);
    writer.number(2, int);
    writer.bytes(3, text);
}
