//! The wire format of protobuf: varints, tags and length-delimited bytes.

use std::borrow::Cow;

use super::DecodeError;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
pub(super) const FIXED32: u8 = 5;

/// Why bytes are no fields. It is small, since every number that is read may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireError {
    Truncated,
    Varint,
    Tag(u64),
}

impl From<WireError> for DecodeError {
    #[cold]
    fn from(error: WireError) -> DecodeError {
        match error {
            WireError::Truncated => DecodeError::Truncated,
            WireError::Varint => DecodeError::Varint,
            WireError::Tag(tag) => DecodeError::Tag(tag),
        }
    }
}

/// Reads a message. Every length is checked against what is left, so no read allocates.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        // Most numbers, lengths and tags are one byte.
        match self.rest {
            [byte @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireError::Truncated } else { WireError::Varint })
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, WireError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| WireError::Truncated)?))
    }

    /// The next field number and wire type; `None` at the end.
    #[inline]
    pub(super) fn tag(&mut self) -> Result<Option<(u32, u8)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| WireError::Tag(tag))?;
        let wire = (tag & 7) as u8;
        if number == 0 || wire > FIXED32 {
            return Err(WireError::Tag(tag));
        }
        Ok(Some((number, wire)))
    }

    #[inline]
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Truncated)?)
    }

    /// The bytes of a field that must be length-delimited.
    pub(super) fn bytes(&mut self, field: &str, wire: u8) -> Result<&'a [u8], DecodeError> {
        if wire != BYTES {
            return Err(DecodeError::WireType { field: field.to_owned(), wire });
        }
        Ok(self.delimited()?)
    }

    /// The text of a field that must be a string.
    pub(super) fn text(&mut self, field: &str, wire: u8) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(field, wire)?)
            .map_err(|error| DecodeError::Field { field: field.to_owned(), reason: error.to_string() })
    }

    /// Skips the value of a field that nobody knows.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), WireError> {
        let mut groups = 0_usize;
        let mut wire = wire;
        loop {
            match wire {
                VARINT => {
                    self.varint()?;
                }
                FIXED64 => {
                    self.take(8)?;
                }
                BYTES => {
                    self.delimited()?;
                }
                START_GROUP => groups += 1,
                END_GROUP => groups = groups.checked_sub(1).ok_or(WireError::Tag(END_GROUP.into()))?,
                _ => {
                    self.take(4)?;
                }
            }
            if groups == 0 {
                return Ok(());
            }
            wire = self.tag()?.ok_or(WireError::Truncated)?.1;
        }
    }
}

/// Text, with each byte that is none replaced by U+FFFD, as Go does in JSON.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}

/// Writes a message.
pub(super) struct Writer {
    out: Vec<u8>,
}

impl From<Vec<u8>> for Writer {
    /// Goes on where a message has been begun.
    fn from(out: Vec<u8>) -> Self {
        Self { out }
    }
}

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { out: Vec::with_capacity(capacity) }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// How long the message is by now.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// What is written by now.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// Takes back what was written after `length`.
    pub(super) fn truncate(&mut self, length: usize) {
        self.out.truncate(length);
    }

    #[inline]
    pub(super) fn varint(&mut self, value: u64) {
        // Most numbers, lengths and tags are one byte.
        if value < 0x80 {
            self.out.push(value as u8);
        } else {
            let (bytes, width) = varint(value);
            self.out.extend_from_slice(&bytes[..width]);
        }
    }

    pub(super) fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    /// Writes a tag and the number after it.
    #[inline]
    fn tagged(&mut self, number: u32, wire: u8, value: u64) {
        if number < 0x10 && value < 0x80 {
            self.out.extend_from_slice(&[(number as u8) << 3 | wire, value as u8]);
        } else {
            self.tag(number, wire);
            self.varint(value);
        }
    }

    pub(super) fn number(&mut self, number: u32, value: i64) {
        // A negative number is written as its 64-bit complement, ten bytes long.
        self.tagged(number, VARINT, value as u64);
    }

    pub(super) fn float(&mut self, number: u32, value: f64) {
        self.tag(number, FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tagged(number, BYTES, bytes.len() as u64);
        self.raw(bytes);
    }

    /// Writes a message of which only the end tells the length.
    pub(super) fn message<T>(&mut self, number: u32, write: impl FnOnce(&mut Self) -> T) -> T {
        let message = self.begin(number, 0);
        let result = write(self);
        self.end(message);
        result
    }

    /// Begins a message of perhaps `length` bytes. [`Writer::end`] ends it.
    pub(super) fn begin(&mut self, number: u32, length: usize) -> Begun {
        let width = width(length);
        self.tagged(number, BYTES, 0);
        let start = self.out.len() - 1;
        for _ in 1..width {
            self.out.push(0);
        }
        Begun { start, width }
    }

    /// Writes the length of a message. If it takes other room than was left for it, the message moves.
    pub(super) fn end(&mut self, Begun { start, width: room }: Begun) {
        let (inside, end) = (start + room, self.out.len());
        let length = end - inside;
        if length < 0x80 && room == 1 {
            self.out[start] = length as u8;
            return;
        }
        let (prefix, width) = varint(length as u64);
        if width > room {
            self.out.resize(end + width - room, 0);
        }
        if width != room {
            self.out.copy_within(inside..end, start + width);
            self.out.truncate(start + width + length);
        }
        self.out[start..start + width].copy_from_slice(&prefix[..width]);
    }
}

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A message that has been begun: where its length goes, and how many bytes are left for it.
#[must_use]
pub(super) struct Begun {
    start: usize,
    width: usize,
}

/// How many bytes a length takes.
fn width(length: usize) -> usize {
    if length < 0x80 { 1 } else { varint(length as u64).1 }
}

/// The bytes of a number, and how many they are.
fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut width = 0;
    while value >= 0x80 {
        bytes[width] = value as u8 | 0x80;
        value >>= 7;
        width += 1;
    }
    bytes[width] = value as u8;
    (bytes, width + 1)
}
