//! A disk that fails as Linux lets it fail: what was not synced may be lost, a sync that fails is not made good by
//! the next one, and there may be no room.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ::redb::StorageBackend;
use parking_lot::Mutex;

use super::fault::Fault;
use super::file::initialize;
use super::guard::{Guarded, Latch};
use super::medium::{Durability, Medium, Opened, verified};
use super::reserve;

/// What a power cut tears apart.
const SECTOR: usize = 512;
/// What a file system gives out.
const BLOCK: usize = 4096;
#[allow(clippy::cast_possible_truncation)]
const RESERVE: usize = reserve::BYTES as usize;
#[allow(clippy::cast_possible_truncation)]
const MARGIN: usize = reserve::MARGIN as usize;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    platter: Arc<Mutex<Platter>>,
}

#[derive(Default)]
struct Platter {
    /// What a reader sees: the page cache.
    seen: Vec<u8>,
    /// What has reached the disk.
    safe: Vec<u8>,
    /// What is in the cache and waits to be written, oldest first.
    dirty: Vec<Change>,
    /// How many operations have changed the disk, or tried to.
    operations: usize,
    syncs: usize,
    failing: Option<(Range<usize>, ErrorKind)>,
    /// How many syncs fail from now on.
    failing_syncs: usize,
    /// Decides which sectors of a failed sync have reached the disk; none do while it is 0.
    luck: u64,
    /// How many bytes fit on it.
    capacity: Option<usize>,
    /// The blocks that were written: what is only a length takes no room.
    backed: BTreeSet<usize>,
    /// Whether there is a reserve.
    reserved: bool,
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

    /// The next syncs fail, and only they. `luck` decides which sectors reach the disk all the same; 0: none.
    pub(super) fn fail_syncs(&self, count: usize, luck: u64) {
        let mut platter = self.platter.lock();
        (platter.failing_syncs, platter.luck) = (count, luck);
    }

    /// So many bytes fit on it.
    pub(super) fn limit(&self, capacity: Option<usize>) {
        self.platter.lock().capacity = capacity;
    }

    pub(super) fn heal(&self) {
        let mut platter = self.platter.lock();
        (platter.failing, platter.failing_syncs, platter.capacity) = (None, 0, None);
    }

    /// How often it was synced.
    pub(super) fn syncs(&self) -> usize {
        self.platter.lock().syncs
    }

    pub(super) fn size(&self) -> usize {
        self.platter.lock().seen.len()
    }

    /// Cuts the power: of each sector that was written and not synced, `keeps` says whether it got through.
    pub(super) fn cut_power(&self, keeps: impl FnMut() -> bool) {
        let mut platter = self.platter.lock();
        platter.write_back(keeps);
        platter.seen = platter.safe.clone();
        (platter.failing, platter.failing_syncs) = (None, 0);
    }

    /// The bytes, to damage them.
    pub(super) fn change(&self, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut platter = self.platter.lock();
        damage(&mut platter.seen);
        platter.safe = platter.seen.clone();
        platter.dirty.clear();
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

/// A small generator, so that a failing case can be repeated.
pub(super) fn coin(state: &mut u64) -> bool {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 63 == 0
}

impl Platter {
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        match &self.failing {
            Some((when, kind)) if when.contains(&self.operations) => Err((*kind).into()),
            _ => Ok(()),
        }
    }

    /// Nothing is dirty afterwards, whether it has reached the disk or not.
    fn write_back(&mut self, mut keeps: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.dirty) {
            match change {
                // A file system has its own journal for lengths, and keeps their order.
                Change::Resize(len) => self.safe.resize(len, 0),
                Change::Write { offset, data } => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if keeps() {
                            put(&mut self.safe, offset + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let failing = self.failing_syncs > 0;
        let outcome = match self.operation() {
            _ if failing => Err(io::Error::other("the disk lost it")),
            // Where there is no room, that is told when something is written.
            Err(error) if error.kind() == ErrorKind::StorageFull => Ok(()),
            outcome => outcome,
        };
        if outcome.is_ok() {
            self.syncs += 1;
            self.write_back(|| true);
            return Ok(());
        }
        self.failing_syncs = self.failing_syncs.saturating_sub(1);
        let mut luck = self.luck;
        self.write_back(|| luck != 0 && coin(&mut luck));
        self.luck = luck;
        outcome
    }

    fn has_room(&self, bytes: usize) -> bool {
        let reserved = if self.reserved { RESERVE } else { 0 };
        self.capacity.is_none_or(|capacity| self.backed.len() * BLOCK + reserved + bytes <= capacity)
    }

    /// Finds room for a write.
    fn allocate(&mut self, offset: usize, len: usize) -> io::Result<()> {
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            if self.backed.contains(&block) {
                continue;
            }
            if !self.has_room(BLOCK) {
                return Err(ErrorKind::StorageFull.into());
            }
            self.backed.insert(block);
        }
        Ok(())
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
        platter.dirty.push(Change::Resize(len));
        platter.backed.split_off(&len.div_ceil(BLOCK));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.platter.lock().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.platter.lock();
        platter.operation()?;
        let offset = usize::try_from(offset).unwrap();
        platter.allocate(offset, data.len())?;
        put(&mut platter.seen, offset, data);
        platter.dirty.push(Change::Write { offset, data: data.to_vec() });
        Ok(())
    }
}

impl Medium for Disk {
    fn path(&self) -> &Path {
        Path::new("/a/disk/in/memory")
    }

    fn open(&self, latch: &Latch) -> Result<Opened, Fault> {
        // As with a file, which gets its name when it is a whole store.
        if !self.platter.lock().is_store {
            self.change(Vec::clear);
            initialize(&::redb::Builder::new().create_with_backend(self.clone())?)?;
            self.platter.lock().is_store = true;
        }
        verified(|builder| builder.create_with_backend(Guarded::new(self.clone(), latch, Durability::Synced)))
    }

    fn reserve(&self) -> io::Result<()> {
        let mut platter = self.platter.lock();
        if !platter.reserved && !platter.has_room(RESERVE + MARGIN) {
            return Err(ErrorKind::StorageFull.into());
        }
        platter.reserved = true;
        Ok(())
    }

    fn release(&self) {
        self.platter.lock().reserved = false;
    }

    fn forget_cached(&self) {
        let mut platter = self.platter.lock();
        let mut seen = platter.safe.clone();
        for change in &platter.dirty {
            match change {
                Change::Resize(len) => seen.resize(*len, 0),
                Change::Write { offset, data } => put(&mut seen, *offset, data),
            }
        }
        platter.seen = seen;
    }
}
