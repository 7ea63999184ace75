//! Files that are to be written, and how: never over another's by mistake.

use std::path::{Path, PathBuf};

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

impl File {
    /// A file to write.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into() }
    }
}

/// How to treat existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Write those that are not there; refuse, before anything is written, if one differs.
    Keep,
    /// Write them all.
    Overwrite,
    /// Write nothing; fail if one differs.
    Check,
    /// Write nothing; tell what would be.
    DryRun,
}

/// What was, or would be, done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was none.
    Created,
    /// It was another.
    Changed,
    /// It was the same.
    Unchanged,
}

impl Outcome {
    /// As a line of output begins: `created`, or `would create`.
    pub fn word(self, mode: Mode) -> &'static str {
        match (self, mode == Mode::DryRun) {
            (Outcome::Unchanged, _) => "unchanged",
            (Outcome::Created, false) => "created",
            (Outcome::Changed, false) => "changed",
            (Outcome::Created, true) => "would create",
            (Outcome::Changed, true) => "would change",
        }
    }
}

/// Why files were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// Files are there, with other text in them.
    #[error("different files exist: {}; overwrite them with --force", list(paths))]
    Exists {
        /// Which.
        paths: Vec<PathBuf>,
    },
    /// Files are not what would be generated.
    #[error("stale: {}; generate again", list(paths))]
    Stale {
        /// Which.
        paths: Vec<PathBuf>,
    },
    /// A file could not be read or written.
    #[error("{}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes, or checks, all files. On an error nothing was written, unless the disk failed midway.
pub fn put(files: &[File], mode: Mode) -> Result<Vec<Outcome>, FilesError> {
    let outcomes = files.iter().map(outcome).collect::<Result<Vec<_>, _>>()?;
    let of = |wanted: &[Outcome]| -> Vec<PathBuf> {
        let both = files.iter().zip(&outcomes);
        both.filter(|(_, outcome)| wanted.contains(outcome)).map(|(file, _)| file.path.clone()).collect()
    };
    match mode {
        Mode::DryRun => return Ok(outcomes),
        Mode::Check => {
            let paths = of(&[Outcome::Created, Outcome::Changed]);
            return if paths.is_empty() { Ok(outcomes) } else { Err(FilesError::Stale { paths }) };
        }
        Mode::Keep if outcomes.contains(&Outcome::Changed) => {
            return Err(FilesError::Exists { paths: of(&[Outcome::Changed]) });
        }
        Mode::Keep | Mode::Overwrite => {}
    }
    for (file, outcome) in files.iter().zip(&outcomes) {
        if *outcome != Outcome::Unchanged {
            write(file)?;
        }
    }
    Ok(outcomes)
}

fn outcome(file: &File) -> Result<Outcome, FilesError> {
    match std::fs::read(&file.path) {
        Ok(found) if found == file.text.as_bytes() => Ok(Outcome::Unchanged),
        Ok(_) => Ok(Outcome::Changed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Outcome::Created),
        Err(source) => Err(FilesError::Io { path: file.path.clone(), source }),
    }
}

fn write(file: &File) -> Result<(), FilesError> {
    let failed = |source| FilesError::Io { path: file.path.clone(), source };
    let parent = file.path.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(parent).map_err(failed)?;
    std::fs::write(&file.path, &file.text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_overwritten_unless_asked_for() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let place = |name: &str| folder.path().join(name);
        std::fs::write(place("mine"), "mine")?;
        let files = [File::new(place("a/new"), "x"), File::new(place("mine"), "theirs")];

        assert!(
            matches!(put(&files, Mode::Keep), Err(FilesError::Exists { paths }) if paths == [place("mine")])
        );
        assert!(!place("a/new").exists(), "nothing is written if one is refused");
        assert_eq!(put(&files, Mode::DryRun)?, [Outcome::Created, Outcome::Changed]);
        assert!(!place("a/new").exists());
        assert!(matches!(put(&files, Mode::Check), Err(FilesError::Stale { .. })));

        put(&files, Mode::Overwrite)?;
        assert_eq!(std::fs::read_to_string(place("mine"))?, "theirs");
        assert_eq!(put(&files, Mode::Keep)?, [Outcome::Unchanged, Outcome::Unchanged]);
        assert!(put(&files, Mode::Check).is_ok());
        Ok(())
    }
}
