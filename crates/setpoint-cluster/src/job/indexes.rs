//! Sets of indexes, as a status writes them: `0-2,5,7,8`.

use std::collections::BTreeSet;
use std::fmt;

/// Indexes of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads indexes below `completions`. What cannot be read is left out.
    pub(super) fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend(first.max(0)..=last.min(completions.saturating_sub(1)));
            }
        }
        Indexes(indexes)
    }

    pub(super) fn extend(&mut self, indexes: impl IntoIterator<Item = i32>) {
        self.0.extend(indexes);
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> i32 {
        crate::number::count(self.0.len())
    }

    /// How many indexes are in both.
    pub(super) fn overlap(&self, other: &Indexes) -> i32 {
        crate::number::count(self.0.intersection(&other.0).count())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut indexes = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = indexes.next() {
            let mut last = first;
            while let Some(next) = indexes.next_if_eq(&last.saturating_add(1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            match last - first {
                0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_kubernetes_writes_them() {
        let mut indexes = Indexes::default();
        assert_eq!(indexes.to_string(), "");
        indexes.extend([0, 1, 2, 5, 7, 8, 11]);
        assert_eq!(indexes.to_string(), "0-2,5,7,8,11");
        assert_eq!(Indexes::parse("0-2,5,7,8,11", 100), indexes);
        assert_eq!(Indexes::parse("0-2,5,7,8,11", 8).to_string(), "0-2,5,7");
        assert_eq!(Indexes::parse("x,3-y,4", 8).to_string(), "4");
    }
}
