//! Folders that are still there after a power cut.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes a folder for its owner alone, and those above it that are missing.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    let missing = missing(path);
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The name of a folder is in the one above it.
    for made in missing {
        sync(parent(&made))?;
    }
    Ok(())
}

/// Makes durable which files are in a folder.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The folders that are not there yet, the innermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let ancestors = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    ancestors.take_while(|path| !path.exists()).map(Path::to_owned).collect()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_that_is_made_is_synced_into_the_one_above() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/c");
        let synced: Vec<_> = missing(&path).iter().map(|made| parent(made).to_owned()).collect();
        assert_eq!(synced, [place.path().join("a/b"), place.path().join("a"), place.path().to_owned()]);
        create(&path).unwrap();
        assert!(path.is_dir() && missing(&path).is_empty());
        assert_eq!(parent(Path::new("data")), Path::new("."), "a relative folder is in this one");
        assert_eq!(missing(Path::new("no-such-folder")).len(), 1);
    }
}
