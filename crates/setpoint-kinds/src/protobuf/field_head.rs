//! The beginning of a field of a message that is still arriving.

use super::DecodeError;
use super::wire::{BYTES, FIXED32, FIXED64, Reader, VARINT, WireError};

/// The beginning of a field: enough to know how many bytes to wait for.
///
/// ```
/// use setpoint_kinds::protobuf::FieldHead;
///
/// assert_eq!(FieldHead::read(b"\x12").unwrap(), None);
/// let head = FieldHead::read(b"\x12\x05he").unwrap().unwrap();
/// assert_eq!((head.number, head.size, head.length, head.is_bytes), (2, 2, 5, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldHead {
    /// The number of the field.
    pub number: u32,
    /// How many bytes come before the value: the tag, and the length if the value is length-delimited.
    pub size: usize,
    /// How many bytes the value has.
    pub length: usize,
    /// Whether the value is length-delimited: a string, bytes or a message.
    pub is_bytes: bool,
}

impl FieldHead {
    /// Reads the beginning of the field that `bytes` begin with; `None` if more bytes are needed. A group, which says
    /// only at its end how long it is, and which nobody writes, is refused.
    pub fn read(bytes: &[u8]) -> Result<Option<FieldHead>, DecodeError> {
        match FieldHead::try_read(bytes) {
            Ok(head) => Ok(head),
            Err(WireError::Truncated) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn try_read(bytes: &[u8]) -> Result<Option<FieldHead>, WireError> {
        let mut reader = Reader::new(bytes);
        let Some((number, wire)) = reader.tag()? else { return Ok(None) };
        let tag = bytes.len() - reader.left();
        let (size, length) = match wire {
            VARINT => {
                reader.varint()?;
                (tag, bytes.len() - reader.left() - tag)
            }
            FIXED64 => (tag, 8),
            BYTES => {
                let length = usize::try_from(reader.varint()?).map_err(|_| WireError::Varint)?;
                (bytes.len() - reader.left(), length)
            }
            FIXED32 => (tag, 4),
            _ => return Err(WireError::Tag(u64::from(number) << 3 | u64::from(wire))),
        };
        Ok(Some(FieldHead { number, size, length, is_bytes: wire == BYTES }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;

    #[test]
    fn a_head_says_where_its_field_ends_as_soon_as_it_is_there() {
        // A number of two bytes, eight bytes, four bytes, a string, and one with a long number and a long length.
        let long = [&b"\x82\x01\x80\x01"[..], &[b'x'; 128]].concat();
        for field in [&b"\x08\x96\x01"[..], b"\x11abcdefgh", b"\x1dabcd", b"\x22\x02hi", &long] {
            let whole = Fields::of(field).next().unwrap().unwrap();
            let first = (0..=field.len()).find(|end| FieldHead::read(&field[..*end]).unwrap().is_some());
            let head = FieldHead::read(&field[..first.unwrap()]).unwrap().unwrap();
            assert_eq!((head.number, head.size + head.length), (whole.number, field.len()));
            assert_eq!(head.is_bytes.then_some(&field[head.size..]), whole.bytes);
        }
    }

    #[test]
    fn what_begins_no_field_is_refused() {
        // Number 0, a group, the end of one, a wire type that does not exist, a varint that does not end.
        for bytes in [
            &b"\x02"[..],
            b"\x0b",
            b"\x0c",
            b"\x0e",
            &[0xff; 10],
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(FieldHead::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
