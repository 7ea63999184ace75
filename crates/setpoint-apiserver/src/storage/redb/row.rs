//! One write as bytes.
//!
//! ```text
//! kind        1 byte    0 put, 1 put that expires, 2 delete
//! collection  2 bytes   its length
//! path        2 bytes   its length
//! expires     12 bytes  seconds (8) and nanoseconds (4) since 1970, only if it expires
//! then the collection's name, the path and the value, without anything in between
//! ```
//! Numbers are little-endian. The key of the row is the revision.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::write::{Effect, Write};
use super::super::{Key, Record, Revision};

const PUT: u8 = 0;
const EXPIRING: u8 = 1;
const DELETE: u8 = 2;

/// A name has more than 64 KiB.
#[derive(Debug, thiserror::Error)]
#[error("a name of {length} bytes is too long to be stored; {} is the most", u16::MAX)]
pub(in crate::storage) struct TooLong {
    length: usize,
}

fn length(text: &str) -> Result<[u8; 2], TooLong> {
    let length = u16::try_from(text.len()).map_err(|_| TooLong { length: text.len() })?;
    Ok(length.to_le_bytes())
}

/// Whether a row can hold it.
pub(super) fn check(key: &Key) -> Result<(), TooLong> {
    length(&key.collection).and(length(&key.path)).map(drop)
}

/// What is in a row.
#[derive(Clone, Copy, Debug)]
pub(in crate::storage) struct Row<'a> {
    pub(in crate::storage) collection: &'a str,
    pub(in crate::storage) path: &'a str,
    pub(in crate::storage) effect: Effect,
    pub(in crate::storage) value: &'a [u8],
}

impl Row<'_> {
    /// Writes it to `out`; what was in that is gone.
    pub(in crate::storage) fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let Row { collection, path, effect, value } = *self;
        #[cfg(test)]
        assert!(!path.starts_with(tests::PANICS), "asked for by a test");
        let lengths = [length(collection)?, length(path)?];
        out.clear();
        out.push(match effect {
            Effect::Put { expires: None } => PUT,
            Effect::Put { expires: Some(_) } => EXPIRING,
            Effect::Delete => DELETE,
        });
        out.extend(lengths.as_flattened());
        if let Effect::Put { expires: Some(at) } = effect {
            out.extend(at.as_second().to_le_bytes());
            out.extend(at.subsec_nanosecond().to_le_bytes());
        }
        out.extend_from_slice(collection.as_bytes());
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(value);
        Ok(())
    }
}

/// Writes a row to `out`; what was in it is gone.
pub(super) fn encode(write: &Write, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let Write { key, record, effect } = write;
    Row { collection: &key.collection, path: &key.path, effect: *effect, value: &record.value }.encode(out)
}

/// Reads a row; `None` if it is none. `name` gives the shared name of a collection.
pub(super) fn decode(
    revision: Revision,
    row: &[u8],
    mut name: impl FnMut(&str) -> Arc<str>,
) -> Option<Write> {
    let mut rest = row;
    let [kind] = take(&mut rest)?;
    let collection = usize::from(u16::from_le_bytes(take(&mut rest)?));
    let path = usize::from(u16::from_le_bytes(take(&mut rest)?));
    let effect = match kind {
        PUT => Effect::Put { expires: None },
        EXPIRING => {
            let seconds = i64::from_le_bytes(take(&mut rest)?);
            let nanoseconds = i32::from_le_bytes(take(&mut rest)?);
            Effect::Put { expires: Some(Timestamp::new(seconds, nanoseconds).ok()?) }
        }
        DELETE => Effect::Delete,
        _ => return None,
    };
    let (collection, rest) = rest.split_at_checked(collection)?;
    let (path, value) = rest.split_at_checked(path)?;
    let path: Box<str> = std::str::from_utf8(path).ok()?.into();
    let key = Key { collection: name(std::str::from_utf8(collection).ok()?), path: path.clone() };
    let record = Arc::new(Record::new(path, revision, Bytes::copy_from_slice(value)));
    Some(Write { key, record, effect })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A path that begins like this makes the encoder panic.
    pub(in super::super) const PANICS: &str = "panics!";

    fn write(effect: Effect, value: &'static [u8]) -> Write {
        let key = Key { collection: "core/events".into(), path: "default/ä".into() };
        let record = Arc::new(Record::new(key.path.clone(), 7, Bytes::from_static(value)));
        Write { key, record, effect }
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        let at = Timestamp::new(1_800_000_000, 123_456_789).unwrap();
        for effect in [Effect::Put { expires: None }, Effect::Put { expires: Some(at) }, Effect::Delete] {
            let written = write(effect, b"{}");
            let mut row = Vec::new();
            encode(&written, &mut row).unwrap();
            let read = decode(7, &row, |name| name.into()).unwrap();
            assert_eq!((&read.key, read.effect), (&written.key, effect));
            assert_eq!((read.record.revision, &read.record.value[..]), (7, &b"{}"[..]));
        }
    }

    #[test]
    fn a_row_that_is_cut_short_or_of_an_unknown_kind_is_none() {
        let at = Timestamp::new(1_800_000_000, 0).unwrap();
        let mut row = Vec::new();
        encode(&write(Effect::Put { expires: Some(at) }, b""), &mut row).unwrap();
        for end in 0..row.len() {
            assert!(decode(7, &row[..end], |name| name.into()).is_none(), "{end}");
        }
        row[0] = 9;
        assert!(decode(7, &row, |name| name.into()).is_none());
    }
}
