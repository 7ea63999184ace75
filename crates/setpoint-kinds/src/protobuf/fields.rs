//! The fields of a message of any type, one by one.

use super::DecodeError;
use super::wire::{BYTES, Reader};

/// The fields of a message, in the order in which they come. It ends with the first error.
///
/// ```
/// use setpoint_kinds::protobuf::Fields;
///
/// let fields: Vec<_> = Fields::of(b"\x08\x07\x12\x02hi").collect::<Result<_, _>>().unwrap();
/// assert_eq!((fields[0].number, fields[0].bytes), (1, None));
/// assert_eq!((fields[1].number, fields[1].bytes, fields[1].range.clone()), (2, Some(&b"hi"[..]), 2..6));
/// ```
pub struct Fields<'a> {
    length: usize,
    reader: Reader<'a>,
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field<'a> {
    /// Its number.
    pub number: u32,
    /// Where it is in the message, its tag included.
    pub range: std::ops::Range<usize>,
    /// What it holds, if that is length-delimited: a string, bytes or a message.
    pub bytes: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// The fields of this message.
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { length: message.len(), reader: Reader::new(message) }
    }

    fn read(&mut self) -> Result<Option<Field<'a>>, DecodeError> {
        let start = self.length - self.reader.left();
        let Some((number, wire)) = self.reader.tag()? else { return Ok(None) };
        let bytes = match wire {
            BYTES => Some(self.reader.delimited()?),
            _ => {
                self.reader.skip(wire)?;
                None
            }
        };
        Ok(Some(Field { number, range: start..self.length - self.reader.left(), bytes }))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read();
        if field.is_err() {
            self.reader = Reader::new(&[]);
        }
        field.transpose()
    }
}
