//! What can be wrong with an input.

use std::fmt;

/// An input that nothing can be generated from: where it is, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct Error {
    place: Place,
    problem: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    file: String,
    path: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [&self.file, &self.path]
            .iter()
            .filter(|part| !part.is_empty())
            .try_for_each(|part| write!(f, "{part}: "))
    }
}

impl Error {
    pub(crate) fn new(path: impl fmt::Display, problem: impl fmt::Display) -> Error {
        Error { place: Place { file: String::new(), path: path.to_string() }, problem: problem.to_string() }
    }

    /// Adds the name of the file.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Error {
        file.clone_into(&mut self.place.file);
        self
    }

    /// The path inside the file, as kube-apiserver writes paths.
    pub fn path(&self) -> &str {
        &self.place.path
    }
}

/// A path into an object, as kube-apiserver writes it: `spec.versions[0].schema`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    pub(crate) fn root(text: impl Into<String>) -> FieldPath {
        FieldPath(text.into())
    }

    pub(crate) fn field(&self, name: &str) -> FieldPath {
        FieldPath(if self.0.is_empty() { name.to_owned() } else { format!("{}.{name}", self.0) })
    }

    /// A key of a map, or an index.
    pub(crate) fn key(&self, key: impl fmt::Display) -> FieldPath {
        FieldPath(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
