//! Files that are not what was written: each of them is an error that says so, never a panic.

use std::ops::RangeInclusive;

use ::redb::TableDefinition;
use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Action, Change, Expect, Key, Limits, ListQuery, Storage};
use super::faulty_disk::Disk;
use super::file::{LEAP, leap};
use super::guard::Latch;
use super::medium::{Condition, Medium};
use super::{OpenError, Redb};

async fn filled() -> (Disk, Vec<(u64, Bytes)>) {
    let disk = Disk::default();
    let store = Redb::open_on(Box::new(disk.clone()), Limits::default()).await.unwrap();
    for n in 0..100 {
        let key = Key { collection: "core/pods".into(), path: format!("default/{n}").into() };
        let value = Bytes::from(format!("{n}").repeat(n * 20 + 1));
        let action = Action::Put { value, ttl: None };
        store.commit(Change { key, expect: Expect::Absent, action }).await.unwrap();
    }
    let records = records(&store).await;
    drop(store);
    (disk, records)
}

async fn records(store: &Redb) -> Vec<(u64, Bytes)> {
    let query = ListQuery::all(&"core/pods".into());
    let page = store.list(&query).await.unwrap();
    page.records.iter().map(|record| (record.revision, record.value.clone())).collect()
}

async fn open(disk: &Disk) -> Result<Redb, OpenError> {
    Redb::open_on(Box::new(disk.clone()), Limits::default()).await
}

fn assert_damaged(outcome: Result<Redb, OpenError>) {
    let error = outcome.expect_err("it is damaged");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(!error.to_string().contains("nobody can make sense"), "redb has panicked: {error}");
}

#[tokio::test]
async fn a_file_that_is_cut_short_is_damaged() {
    let (disk, _) = filled().await;
    let whole = disk.size();
    for length in [1, 8, 9, 100, 511, 512, 4096, 5000, whole / 2, whole - 4096, whole - 1] {
        let copy = disk.copy();
        copy.change(|bytes| bytes.truncate(length));
        assert_damaged(open(&copy).await);
    }
}

#[tokio::test]
async fn a_file_of_something_else_is_damaged() {
    let (disk, _) = filled().await;
    disk.change(|bytes| *bytes = b"apiVersion: v1\nkind: List\n".repeat(1000));
    assert_damaged(open(&disk).await);
}

#[tokio::test]
async fn a_file_of_another_program_that_uses_redb_is_damaged() {
    let (disk, _) = filled().await;
    disk.change(Vec::clear);
    let database = ::redb::Builder::new().create_with_backend(disk.clone()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<&str, &str>::new("position")).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert_damaged(open(&disk).await);
}

#[tokio::test]
async fn a_newer_format_is_refused_with_advice() {
    let (disk, _) = filled().await;
    let database = disk.open(&Latch::default()).unwrap().database;
    let transaction = database.begin_write().unwrap();
    let position = TableDefinition::<&str, u64>::new("position");
    transaction.open_table(position).unwrap().insert("format", 3).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = open(&disk).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 3, known: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("use that version"), "{error}");
}

#[tokio::test]
async fn a_file_of_an_older_redb_is_no_damage_and_says_what_to_do() {
    let (disk, _) = filled().await;
    // The version is the first byte of each of the two commit slots, at 64 and at 192.
    disk.change(|bytes| (bytes[64], bytes[192]) = (2, 2));
    let error = open(&disk).await.unwrap_err();
    assert!(matches!(error, OpenError::OldDatabase { found: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_that_was_damaged_uses_no_revision_again_and_nobody_resumes_from_before() {
    let (disk, before) = filled().await;
    let newest = before.iter().map(|(revision, _)| *revision).max().unwrap();
    leap(&disk.open(&Latch::default()).unwrap().database, Condition::Repaired).unwrap();
    let store = open(&disk).await.unwrap();
    assert!(store.revision() >= newest + LEAP, "{} after {newest}", store.revision());
    assert!(store.watch(&"core/pods".into(), newest).is_err(), "its past is not this one's");
    assert!(store.watch(&"core/pods".into(), store.revision()).is_ok());
    assert_eq!(records(&store).await, before);
}

fn flipped(positions: RangeInclusive<usize>) -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((positions, 1..=255u8), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_changed_bytes_is_whole_or_damaged(flips in flipped(0..=999)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (disk, before) = filled().await;
            // Positions are in thousandths of the file; the header is hit more often.
            disk.change(|bytes| for (position, mask) in &flips {
                let at = if *position < 300 { *position } else { bytes.len() / 1000 * position };
                bytes[at] ^= mask;
            });
            match open(&disk).await {
                // Bytes that mean nothing may change; of the rest at most the last commit may be taken back.
                Ok(store) => {
                    let after = records(&store).await;
                    prop_assert!(before.starts_with(&after) || before == after);
                    prop_assert!(after.len() + 1 >= before.len());
                }
                Err(error) => {
                    prop_assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Newer { .. }), "{error:?}");
                }
            }
            Ok(())
        })?;
    }
}
