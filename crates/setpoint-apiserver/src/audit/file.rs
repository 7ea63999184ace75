//! A file that does not grow without end.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

/// A file to append to. At a size it is renamed to `FILE.1`, and the older ones move up.
#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    limit: u64,
    /// How many older files are kept.
    older: usize,
    file: tokio::fs::File,
    size: u64,
    /// How often the next lines panic.
    #[cfg(test)]
    pub(super) panics: usize,
}

impl RotatedFile {
    pub(super) fn open(path: PathBuf, limit: u64, older: usize) -> io::Result<RotatedFile> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        Ok(RotatedFile {
            path,
            limit,
            older,
            file: tokio::fs::File::from_std(file),
            size,
            #[cfg(test)]
            panics: 0,
        })
    }

    /// Appends whole lines.
    pub(super) async fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        #[cfg(test)]
        {
            let left = self.panics.checked_sub(1);
            self.panics = left.unwrap_or(0);
            assert!(left.is_none(), "as the test wants it");
        }
        if self.size > 0 && self.size.saturating_add(text.len() as u64) > self.limit {
            self.rotate().await?;
        }
        self.file.write_all(text).await?;
        self.file.flush().await?;
        self.size += text.len() as u64;
        Ok(())
    }

    async fn rotate(&mut self) -> io::Result<()> {
        let place = |number: usize| match number {
            0 => self.path.clone(),
            number => {
                let mut name = self.path.as_os_str().to_owned();
                name.push(format!(".{number}"));
                PathBuf::from(name)
            }
        };
        for number in (0..self.older).rev() {
            match tokio::fs::rename(place(number), place(number + 1)).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.older == 0 {
            tokio::fs::remove_file(&self.path).await?;
        }
        self.file = tokio::fs::File::from_std(open(&self.path)?);
        self.size = 0;
        Ok(())
    }
}

/// Only the owner may read it: it tells who did what.
fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_is_rotated_by_size_and_the_oldest_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = RotatedFile::open(path.clone(), 10, 2).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n", "a very long line\n", "six\n"] {
            file.append(line.as_bytes()).await.unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("audit.log"), "six\n");
        assert_eq!(read("audit.log.1"), "a very long line\n");
        assert_eq!(read("audit.log.2"), "four\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        // It goes on where it stopped.
        drop(file);
        RotatedFile::open(path, 10, 2).unwrap().append(b"seven\n").await.unwrap();
        assert_eq!(read("audit.log"), "six\nseven\n");
    }
}
