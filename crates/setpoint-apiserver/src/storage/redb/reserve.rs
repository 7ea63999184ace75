//! Room on the disk that is kept free for the moment when there is none left.
//!
//! redb writes every page that it changes to another place, so even a delete needs room. A file of its own holds that
//! room: it can be given up when the store itself cannot be written any more, and needs no transaction for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// How much is kept: twice the page of the largest object, and what the trees above it take.
pub(super) const BYTES: u64 = 8 << 20;
/// How much more must be free for the store to go on as usual, so that it is not full again with the next change.
pub(super) const MARGIN: u64 = 2 << 20;

/// Makes the file, unless it is there.
pub(super) fn make(path: &Path) -> io::Result<()> {
    if path.metadata().is_ok_and(|file| file.len() == BYTES && file.blocks() * 512 >= BYTES) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let made = allocate(&file, BYTES + MARGIN).and_then(|()| file.set_len(BYTES));
    if made.is_err() {
        give_up(path);
    }
    made
}

/// Removes the file.
pub(super) fn give_up(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "cannot release the reserve");
        }
        _ => {}
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => fill(file, bytes),
        outcome => Ok(outcome?),
    }
}

/// For file systems that give out room only to what is written.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let block = [0; 64 << 10];
    for _ in 0..bytes / block.len() as u64 {
        file.write_all(&block)?;
    }
    file.sync_data()
}
