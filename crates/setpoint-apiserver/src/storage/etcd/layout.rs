//! Where records are in etcd, and what their values look like there.

use bytes::Bytes;

use super::super::Key;

/// The map between records and keys, and between the values of both.
pub(crate) trait Layout: Send + Sync + 'static {
    /// Where a record is, below the prefix of all keys.
    fn place(&self, key: &Key) -> String;

    /// Where the records of a collection are, with a slash at the end.
    fn folder(&self, collection: &str) -> String;

    /// Which record is at a place; none if it is nobody's.
    fn key(&self, place: &str) -> Option<Key>;

    /// The value as etcd keeps it, or why it cannot.
    fn encode(&self, key: &Key, value: &Bytes) -> Result<Vec<u8>, String>;

    /// The value as the server knows it, or why it cannot be read.
    fn decode(&self, key: &Key, value: &[u8]) -> Result<Bytes, String>;
}
