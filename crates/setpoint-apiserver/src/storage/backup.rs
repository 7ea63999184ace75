//! A store as a file that can be kept elsewhere.
//!
//! ```text
//! begin   "setpoint backup\n", version 4, format of the rows 4, revision 8, seconds since 1970 8
//! object  length of the row 4, revision 8, the row as in the store
//! end     0 in 4 bytes, how many objects 8, SHA-256 of everything before it 32
//! ```
//! Numbers are little-endian; objects are in the order of their revisions. A file that is cut short has no end, so it never
//! looks complete.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use ring::digest;

use super::redb::{KNOWN_FORMAT, row};
use super::write::Effect;
use super::{Record, Revision};

const MAGIC: &[u8; 16] = b"setpoint backup\n";
const VERSION: u32 = 1;
/// About how much is made at a time.
const CHUNK: usize = 64 << 10;
/// A longer row is none: objects have 3 MiB at most.
const LONGEST_ROW: usize = 64 << 20;

/// Every record of a store at one revision.
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) records: Vec<(Arc<str>, Arc<Record>, Option<Timestamp>)>,
}

impl Snapshot {
    /// In the order of their revisions, which is the order that a store writes them in.
    pub(crate) fn new(
        revision: Revision,
        mut records: Vec<(Arc<str>, Arc<Record>, Option<Timestamp>)>,
    ) -> Snapshot {
        records.sort_unstable_by_key(|(_, record, _)| record.revision);
        Snapshot { revision, records }
    }
}

/// The bytes of a backup, piece by piece.
pub(crate) struct Encoder {
    records: std::vec::IntoIter<(Arc<str>, Arc<Record>, Option<Timestamp>)>,
    hash: digest::Context,
    begin: Option<Vec<u8>>,
    count: u64,
    is_over: bool,
}

impl Encoder {
    pub(crate) fn new(snapshot: Snapshot, now: Timestamp) -> Encoder {
        let format = u32::try_from(KNOWN_FORMAT).expect("formats are small numbers");
        let mut begin = MAGIC.to_vec();
        begin.extend(VERSION.to_le_bytes());
        begin.extend(format.to_le_bytes());
        begin.extend(snapshot.revision.to_le_bytes());
        begin.extend(now.as_second().to_le_bytes());
        Encoder {
            records: snapshot.records.into_iter(),
            hash: digest::Context::new(&digest::SHA256),
            begin: Some(begin),
            count: 0,
            is_over: false,
        }
    }
}

impl Iterator for Encoder {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut chunk = self.begin.take().unwrap_or_default();
        let mut encoded = Vec::new();
        while chunk.len() < CHUNK {
            let Some((collection, record, expires)) = self.records.next() else {
                self.is_over = true;
                break;
            };
            let effect = Effect::Put { expires };
            row::Row { collection: &collection, path: &record.path, effect, value: &record.value }
                .encode(&mut encoded)
                .expect("a row that was stored can be stored");
            let length = u32::try_from(encoded.len()).expect("an object is far below 4 GiB");
            chunk.extend(length.to_le_bytes());
            chunk.extend(record.revision.to_le_bytes());
            chunk.extend_from_slice(&encoded);
            self.count += 1;
        }
        if self.is_over {
            chunk.extend([0; 4]);
            chunk.extend(self.count.to_le_bytes());
        }
        self.hash.update(&chunk);
        if self.is_over {
            chunk.extend_from_slice(self.hash.clone().finish().as_ref());
        }
        Some(chunk.into())
    }
}

/// Why a backup cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is not a backup of setpoint")]
    Foreign,
    /// A newer version has written it.
    #[error(
        "it was written by a newer version of setpoint (version {found}, this one knows {known}); use that version"
    )]
    Newer {
        /// Its version.
        found: u64,
        /// The newest one that this version can read.
        known: u64,
    },
    /// It has no end.
    #[error("it is truncated; make another backup")]
    CutShort,
    /// It is not what was written.
    #[error("it is damaged ({0}); use another backup")]
    Damaged(&'static str),
}

/// What is in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The newest revision of the store that it was made from.
    pub revision: u64,
    /// How many objects it has.
    pub objects: u64,
    /// How long it is.
    pub bytes: u64,
    /// When it was made.
    pub made: Timestamp,
    /// The hash of everything in it, in hexadecimal.
    pub sha256: String,
}

/// Reads a backup, object by object.
pub(crate) struct Reader<R> {
    input: R,
    hash: digest::Context,
    bytes: u64,
    count: u64,
    pub(crate) format: u64,
    pub(crate) revision: Revision,
    pub(crate) made: Timestamp,
    last: Revision,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Result<Reader<R>, BackupError> {
        let hash = digest::Context::new(&digest::SHA256);
        let made = Timestamp::UNIX_EPOCH;
        let mut reader = Reader { input, hash, bytes: 0, count: 0, format: 0, revision: 0, made, last: 0 };
        if reader.take::<16>().map_err(|_| BackupError::Foreign)? != *MAGIC {
            return Err(BackupError::Foreign);
        }
        let version = u32::from_le_bytes(reader.take()?);
        reader.format = u32::from_le_bytes(reader.take()?).into();
        for (found, known) in [(version.into(), VERSION.into()), (reader.format, KNOWN_FORMAT)] {
            if found > known {
                return Err(BackupError::Newer { found, known });
            }
        }
        reader.revision = u64::from_le_bytes(reader.take()?);
        let seconds = i64::from_le_bytes(reader.take()?);
        reader.made = Timestamp::from_second(seconds).map_err(|_| BackupError::Damaged("it has no time"))?;
        Ok(reader)
    }

    /// The next object: its revision, and its row in `row`. None at the end, which has been checked then.
    pub(crate) fn next(&mut self, row: &mut Vec<u8>) -> Result<Option<Revision>, BackupError> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        if length == 0 {
            self.check_end()?;
            return Ok(None);
        }
        if length > LONGEST_ROW {
            return Err(BackupError::Damaged("an object is too long"));
        }
        let revision = u64::from_le_bytes(self.take()?);
        if revision <= self.last || revision > self.revision {
            return Err(BackupError::Damaged("revisions are out of order"));
        }
        row.resize(length, 0);
        self.fill(row)?;
        (self.last, self.count) = (revision, self.count + 1);
        Ok(Some(revision))
    }

    /// Reads the rest.
    pub(crate) fn verify(mut self) -> Result<Summary, BackupError> {
        let mut row = Vec::new();
        while self.next(&mut row)?.is_some() {}
        let sha256 = self.hash.clone().finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let Reader { revision, count, bytes, made, .. } = self;
        Ok(Summary { revision, objects: count, bytes, made, sha256 })
    }

    fn check_end(&mut self) -> Result<(), BackupError> {
        let count = u64::from_le_bytes(self.take()?);
        let expected = self.hash.clone().finish();
        let mut found = [0; digest::SHA256_OUTPUT_LEN];
        self.input.read_exact(&mut found).map_err(cut_short)?;
        self.bytes += found.len() as u64;
        if found != expected.as_ref() {
            return Err(BackupError::Damaged("its hash is another"));
        }
        if count != self.count {
            return Err(BackupError::Damaged("objects are missing"));
        }
        match self.input.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(BackupError::Damaged("something follows its end")),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(out).map_err(cut_short)?;
        self.hash.update(out);
        self.bytes += out.len() as u64;
        Ok(())
    }
}

fn cut_short(error: io::Error) -> BackupError {
    if error.kind() == io::ErrorKind::UnexpectedEof { BackupError::CutShort } else { error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(objects: u64) -> Vec<u8> {
        let records = (0..objects).rev().map(|number| {
            let record =
                Record::new(format!("default/{number}").into(), number + 2, vec![b'x'; 9_000].into());
            ("core/pods".into(), Arc::new(record), None)
        });
        let snapshot = Snapshot::new(objects + 5, records.collect());
        Encoder::new(snapshot, Timestamp::from_second(1_800_000_000).unwrap()).flatten().collect()
    }

    fn verify(bytes: &[u8]) -> Result<Summary, BackupError> {
        Reader::new(bytes)?.verify()
    }

    #[test]
    fn a_backup_says_what_is_in_it() {
        for objects in [0, 1, 40] {
            let bytes = backup(objects);
            let summary = verify(&bytes).unwrap();
            assert_eq!((summary.revision, summary.objects), (objects + 5, objects));
            assert_eq!((summary.bytes, summary.made.as_second()), (bytes.len() as u64, 1_800_000_000));
        }
    }

    #[test]
    fn a_backup_that_is_cut_short_or_changed_anywhere_is_refused() {
        let bytes = backup(2);
        for end in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            assert!(verify(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in (0..bytes.len()).step_by(11).chain([bytes.len() - 1]) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(verify(&changed).is_err(), "changed at {at}");
        }
        assert!(matches!(verify(&[&bytes[..], b"more"].concat()), Err(BackupError::Damaged(_))));
        assert!(matches!(verify(&bytes[..bytes.len() - 40]), Err(BackupError::CutShort)));
        assert!(matches!(verify(b"apiVersion: v1"), Err(BackupError::Foreign)));
    }

    #[test]
    fn a_backup_of_a_newer_version_is_refused_with_advice() {
        for at in [16, 20] {
            let mut bytes = backup(1);
            bytes[at] = 9;
            let error = verify(&bytes).unwrap_err();
            assert!(matches!(error, BackupError::Newer { found: 9, .. }), "{error:?}");
            assert!(error.to_string().contains("use that version"), "{error}");
        }
    }
}
