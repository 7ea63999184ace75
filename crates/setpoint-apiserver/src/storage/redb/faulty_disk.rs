//! A disk that loses what was not synced, and fails on demand.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ::redb::{Database, StorageBackend};
use parking_lot::Mutex;

use super::fault::Fault;
use super::file::initialize;
use super::medium::{Medium, verified};

/// What a power cut tears apart.
const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    platter: Arc<Mutex<Platter>>,
}

#[derive(Default)]
struct Platter {
    /// What a reader sees.
    seen: Vec<u8>,
    /// What has been synced.
    safe: Vec<u8>,
    /// What has happened since, oldest first.
    unsafe_writes: Vec<Change>,
    /// How many operations have changed the disk, or tried to.
    operations: usize,
    syncs: usize,
    failing: Option<(Range<usize>, ErrorKind)>,
    is_store: bool,
}

enum Change {
    Resize(usize),
    Write { offset: usize, data: Vec<u8> },
}

impl std::fmt::Debug for Platter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Platter").field("len", &self.seen.len()).finish_non_exhaustive()
    }
}

impl Disk {
    /// Writes and syncs fail, from the given one on, counted from now.
    pub(super) fn fail(&self, operations: Range<usize>, kind: ErrorKind) {
        let mut platter = self.platter.lock();
        let now = platter.operations;
        let shift = |at: usize| at.saturating_add(now);
        platter.failing = Some((shift(operations.start)..shift(operations.end), kind));
    }

    pub(super) fn heal(&self) {
        self.platter.lock().failing = None;
    }

    /// How often it was synced.
    pub(super) fn syncs(&self) -> usize {
        self.platter.lock().syncs
    }

    pub(super) fn size(&self) -> usize {
        self.platter.lock().seen.len()
    }

    /// Cuts the power: of each sector that was written and not synced, `keeps` says whether it got through.
    pub(super) fn cut_power(&self, mut keeps: impl FnMut() -> bool) {
        let mut platter = self.platter.lock();
        let mut survived = std::mem::take(&mut platter.safe);
        for change in std::mem::take(&mut platter.unsafe_writes) {
            match change {
                // A file system has its own journal for lengths, and keeps their order.
                Change::Resize(len) => survived.resize(len, 0),
                Change::Write { offset, data } => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if keeps() {
                            put(&mut survived, offset + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
        platter.seen.clone_from(&survived);
        platter.safe = survived;
        platter.failing = None;
    }

    /// The bytes, to damage them.
    pub(super) fn change(&self, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut platter = self.platter.lock();
        damage(&mut platter.seen);
        platter.safe = platter.seen.clone();
        platter.unsafe_writes.clear();
    }

    /// A disk with the same contents.
    pub(super) fn copy(&self) -> Disk {
        let platter = self.platter.lock();
        let (seen, safe) = (platter.seen.clone(), platter.seen.clone());
        let copy = Platter { seen, safe, is_store: platter.is_store, ..Platter::default() };
        Disk { platter: Arc::new(Mutex::new(copy)) }
    }
}

fn put(bytes: &mut [u8], offset: usize, data: &[u8]) {
    // A write behind the end was to a part that has been cut off since.
    if let Some(place) = bytes.get_mut(offset..offset + data.len()) {
        place.copy_from_slice(data);
    }
}

impl Platter {
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        match &self.failing {
            Some((when, kind)) if when.contains(&self.operations) => Err((*kind).into()),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter.lock();
        let offset = usize::try_from(offset).unwrap();
        let part = platter.seen.get(offset..offset + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.platter.lock();
        platter.operation()?;
        let len = usize::try_from(len).unwrap();
        platter.seen.resize(len, 0);
        platter.unsafe_writes.push(Change::Resize(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.platter.lock();
        platter.operation()?;
        platter.syncs += 1;
        platter.safe = platter.seen.clone();
        platter.unsafe_writes.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.platter.lock();
        platter.operation()?;
        let offset = usize::try_from(offset).unwrap();
        put(&mut platter.seen, offset, data);
        platter.unsafe_writes.push(Change::Write { offset, data: data.to_vec() });
        Ok(())
    }
}

impl Medium for Disk {
    fn path(&self) -> &Path {
        Path::new("/a/disk/in/memory")
    }

    fn open(&self) -> Result<Database, Fault> {
        // As with a file, which gets its name when it is a whole store.
        if !self.platter.lock().is_store {
            self.change(Vec::clear);
            initialize(&::redb::Builder::new().create_with_backend(self.clone())?)?;
            self.platter.lock().is_store = true;
        }
        verified(|builder| builder.create_with_backend(self.clone()))
    }
}
