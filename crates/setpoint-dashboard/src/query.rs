//! The query of a request, within bounds.

use std::collections::BTreeMap;

/// How long a value may be: names are shorter.
const MOST_BYTES: usize = 1024;
/// How many rows are given at once.
const MOST_ROWS: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let pairs = form_urlencoded::parse(text.as_bytes()).take(32);
        let fits = pairs.filter(|(name, value)| name.len() <= 64 && value.len() <= MOST_BYTES);
        Query(fits.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// A value; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    /// Which rows of a list are asked for: from where on, and how many.
    pub(crate) fn rows(&self) -> (usize, usize) {
        let number = |name| self.number(name).and_then(|number| usize::try_from(number).ok());
        (number("offset").unwrap_or(0), number("limit").unwrap_or(100).min(MOST_ROWS))
    }
}
