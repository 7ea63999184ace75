//! The differences that have a reason: `docs/differences.allow`, one line each, `subject | place | reason`.
//! Subject and place may have a `*`, which stands for anything.

use std::cell::Cell;
use std::path::Path;

use super::compare::Difference;

pub(super) struct Allowed {
    entries: Vec<Entry>,
}

struct Entry {
    subject: String,
    place: String,
    line: String,
    seen: Cell<bool>,
}

impl Allowed {
    /// The list of this checkout; none if it is not there.
    pub(super) fn read() -> Allowed {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/differences.allow");
        Allowed::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Allowed {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let entries = lines.filter_map(|line| {
            let mut columns = line.split(" | ").map(str::trim);
            let (subject, place) = (columns.next()?.to_owned(), columns.next()?.to_owned());
            Some(Entry { subject, place, line: line.to_owned(), seen: Cell::new(false) })
        });
        Allowed { entries: entries.collect() }
    }

    pub(super) fn excuses(&self, subject: &str, difference: &Difference) -> bool {
        let fits =
            |entry: &&Entry| matches(&entry.subject, subject) && matches(&entry.place, &difference.place);
        let entry = self.entries.iter().find(fits);
        entry.inspect(|entry| entry.seen.set(true)).is_some()
    }

    /// Entries that were not needed.
    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| !entry.seen.get()).map(|entry| entry.line.as_str())
    }
}

/// Whether a text fits a pattern with stars.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        assert!(matches("Pod: *", "Pod: create"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(matches("same", "same"));
        assert!(!matches("Pod: *", "Job: create"));
        assert!(!matches("a*b", "ab-"));
    }
}
