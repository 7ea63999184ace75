//! Files of older formats.
//!
//! A migration is one transaction: a crash or a full disk in the middle of it leaves the file as it was, and the version
//! that wrote it can still open it.

use ::redb::{Database, ReadableDatabase, ReadableTable};
use bytes::Bytes;
use serde_json::Value;

use super::super::Revision;
use super::fault::Fault;
use super::file::{FORMAT, KNOWN_FORMAT, LOG, POSITION};
use super::row;
use crate::object;

/// Brings a file of format `from` to the one that this version knows.
pub(super) fn migrate(database: &Database, from: u64) -> Result<(), Fault> {
    tracing::info!(from, to = KNOWN_FORMAT, "migrating the store from an older format");
    let before = database.begin_read()?.open_table(LOG)?;
    let transaction = database.begin_write()?;
    {
        let mut log = transaction.open_table(LOG)?;
        for entry in before.iter()? {
            let (revision, old) = entry?;
            if let Some(new) = encoded_anew(revision.value(), old.value())? {
                log.insert(revision.value(), new.as_slice())?;
            }
        }
        transaction.open_table(POSITION)?.insert(FORMAT, KNOWN_FORMAT)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Format 2 differs from format 1 in how objects begin: a row as this version writes it, if that is another.
fn encoded_anew(revision: Revision, old: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let unreadable = || Fault::Damaged("an unreadable row");
    let mut write = row::decode(revision, old, |name| name.into()).ok_or_else(unreadable)?;
    let Some(value) = canonical(&write.record.value) else {
        tracing::warn!(revision, path = %write.key.path, "cannot decode an object; it is left unchanged");
        return Ok(None);
    };
    write = write.with_value(value);
    let mut new = Vec::with_capacity(old.len());
    row::encode(&write, &mut new).map_err(|_| unreadable())?;
    Ok((new != old).then_some(new))
}

fn canonical(value: &[u8]) -> Option<Bytes> {
    let object: Value = serde_json::from_slice(value).ok()?;
    let is_object = object.get("kind").is_some_and(Value::is_string)
        && object.get("apiVersion").is_some_and(Value::is_string)
        && object.get("metadata").is_some_and(|metadata| metadata.get("name").is_some());
    is_object.then(|| object::encode(&object))
}

#[cfg(test)]
mod tests {
    use super::super::super::{Freshness, Key, Limits, Storage};
    use super::super::faulty_disk::Disk;
    use super::super::guard::Latch;
    use super::super::medium::Medium;
    use super::super::{OpenError, Redb};
    use super::*;

    /// As format 1 had them, with another order, and one that is none.
    const OBJECTS: [&str; 3] = [
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"0","uid":"u"},"data":{"a":"b"}}"#,
        r#"{"data":{"c":"d"},"metadata":{"name":"1"},"kind":"ConfigMap","apiVersion":"v1"}"#,
        "no object",
    ];

    fn key(number: usize) -> Key {
        Key { collection: "core/configmaps".into(), path: format!("default/{number}").into() }
    }

    fn old_store() -> Disk {
        let disk = Disk::default();
        let database = disk.open(&Latch::default()).unwrap().database;
        let transaction = database.begin_write().unwrap();
        {
            let mut log = transaction.open_table(LOG).unwrap();
            for (number, value) in OBJECTS.iter().enumerate() {
                let Key { collection, path } = key(number);
                let mut row = vec![0, collection.len() as u8, 0, path.len() as u8, 0];
                row.extend([collection.as_bytes(), path.as_bytes(), value.as_bytes()].concat());
                log.insert(number as u64 + 10, row.as_slice()).unwrap();
            }
            let mut position = transaction.open_table(POSITION).unwrap();
            position.insert(FORMAT, 1).unwrap();
            position.insert("revision", 40).unwrap();
        }
        transaction.commit().unwrap();
        disk
    }

    async fn open(disk: &Disk) -> Result<Redb, OpenError> {
        Redb::open_on(Box::new(disk.clone()), Limits::default()).await
    }

    async fn check(store: &Redb) {
        for (number, value) in OBJECTS.iter().enumerate() {
            let record = store.get(&key(number), Freshness::Latest).await.unwrap().record.unwrap();
            let expected = serde_json::from_str::<Value>(value).ok().map(|object| object::encode(&object));
            let expected = expected.unwrap_or_else(|| Bytes::from_static(value.as_bytes()));
            assert_eq!((record.revision, &record.value), (number as u64 + 10, &expected));
        }
    }

    #[tokio::test]
    async fn a_file_of_an_older_format_is_migrated_once_and_keeps_its_revisions() {
        let disk = old_store();
        for _ in 0..2 {
            let store = open(&disk).await.unwrap();
            check(&store).await;
            assert_eq!(store.revision(), 40);
        }
        let database = disk.open(&Latch::default()).unwrap().database;
        let position = database.begin_read().unwrap().open_table(POSITION).unwrap();
        assert_eq!(position.get(FORMAT).unwrap().unwrap().value(), KNOWN_FORMAT);
    }

    #[tokio::test]
    async fn a_crash_during_a_migration_leaves_the_old_file_or_the_new_one() {
        for at in 0..40 {
            let disk = old_store();
            disk.fail(at..usize::MAX, std::io::ErrorKind::Other);
            let migrated = open(&disk).await;
            drop(migrated);
            let mut luck = at as u64;
            disk.cut_power(|| super::super::faulty_disk::coin(&mut luck));
            let store = open(&disk).await.unwrap();
            let record = store.get(&key(1), Freshness::Latest).await.unwrap().record.unwrap();
            let object: Value = serde_json::from_str(OBJECTS[1]).unwrap();
            assert_eq!((record.revision, &record.value), (11, &object::encode(&object)), "at {at}");
        }
    }

    #[tokio::test]
    async fn a_disk_that_is_full_during_a_migration_costs_nothing_but_the_start() {
        let mut refused = 0;
        for at in 0..40 {
            let disk = old_store();
            disk.fail(at..usize::MAX, std::io::ErrorKind::StorageFull);
            refused += usize::from(open(&disk).await.is_err());
            disk.heal();
            check(&open(&disk).await.unwrap()).await;
        }
        assert!(refused > 5, "only {refused} starts met a full disk");
    }
}
