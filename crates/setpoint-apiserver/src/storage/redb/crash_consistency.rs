//! Crashes between any two operations on the disk, and disks that fail for a while.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use proptest::prelude::*;

use super::super::{Action, Change, CommitError, Expect, Freshness, Key, Limits, ListQuery, Storage};
use super::Redb;
use super::faulty_disk::Disk;

const COLLECTION: &str = "core/configmaps";
/// Longer than any batch, so that what a crash leaves undecided is always in history.
const SHORT: Limits = Limits { events: 16, bytes: 1 << 20 };
const LONG: Limits = Limits { events: 10_000, bytes: 1 << 30 };

/// What happened: path, and value unless it was deleted.
type Fact = (String, Option<String>);

/// What clients know.
#[derive(Debug, Default)]
struct Clients {
    acknowledged: BTreeMap<u64, Fact>,
    refused: Vec<Fact>,
    written: usize,
}

fn key(path: &str) -> Key {
    Key { collection: COLLECTION.into(), path: path.into() }
}

impl Clients {
    /// Several clients write at once, each to another path: those that exist are changed or deleted, the
    /// others created. Gives whether all of it was acknowledged.
    async fn write(&mut self, store: &Redb, batch: &BTreeMap<u8, bool>) -> bool {
        let mut facts = Vec::new();
        let mut changes = Vec::new();
        for (path, deletes) in batch {
            let path = path.to_string();
            let current = store.get(&key(&path), Freshness::Latest).await.unwrap().record;
            self.written += 1;
            let value = Bytes::from(format!("{}-{}", self.written, "x".repeat(self.written * 97 % 3000)));
            let text = String::from_utf8_lossy(&value).into_owned();
            let (expect, action, value) = match current {
                None => (Expect::Absent, Action::Put { value, expires: None }, Some(text)),
                Some(record) if *deletes => {
                    (Expect::Revision(record.revision), Action::Delete { value: record.value.clone() }, None)
                }
                Some(record) => {
                    (Expect::Revision(record.revision), Action::Put { value, expires: None }, Some(text))
                }
            };
            facts.push((path.clone(), value));
            changes.push(store.commit(Change { key: key(&path), expect, action }));
        }
        let outcomes = join_all(changes).await;
        let mut all = true;
        for (outcome, fact) in outcomes.into_iter().zip(facts) {
            match outcome {
                Ok(record) => {
                    assert!(self.acknowledged.insert(record.revision, fact).is_none(), "used twice")
                }
                Err(CommitError::NotStored(_)) => {
                    all = false;
                    self.refused.push(fact);
                }
                // A write that was refused has come through, as the file turned out to say.
                Err(CommitError::Conflict { .. }) if !self.refused.is_empty() => all = false,
                Err(error) => panic!("nobody else writes: {error}"),
            }
        }
        all
    }

    /// Nothing acknowledged is lost, nothing is there that nobody wrote, and history tells the same story.
    async fn check(&self, store: &Redb) {
        let newest = self.acknowledged.last_key_value().map_or(1, |(revision, _)| *revision);
        assert!(store.revision() >= newest, "{} of {newest}", store.revision());
        let mut story = self.acknowledged.clone();
        for (revision, fact) in history(store) {
            if let Some(known) = story.get(&revision) {
                assert_eq!(known, &fact, "at {revision}");
            } else {
                assert!(revision > newest && self.refused.contains(&fact), "{revision} is a phantom");
                story.insert(revision, fact);
            }
        }
        let mut expected = BTreeMap::new();
        for (path, value) in story.into_values() {
            match value {
                Some(value) => expected.insert(path, value),
                None => expected.remove(&path),
            };
        }
        assert_eq!(records(store).await, expected);
    }
}

/// What a watcher sees that starts as early as it can.
fn history(store: &Redb) -> Vec<(u64, Fact)> {
    let oldest = (1..=store.revision()).find_map(|at| store.watch(&COLLECTION.into(), at).ok());
    let mut watch = oldest.expect("the newest revision can always be watched");
    let mut facts = Vec::new();
    loop {
        let batch = watch.ready().unwrap();
        for event in batch.events {
            let value = (!event.deleted).then(|| String::from_utf8_lossy(&event.record.value).into_owned());
            facts.push((event.revision(), (event.record.path.to_string(), value)));
        }
        if !batch.more {
            assert!(facts.is_sorted_by(|a, b| a.0 < b.0), "once, and in order");
            return facts;
        }
    }
}

async fn records(store: &Redb) -> BTreeMap<String, String> {
    let query = ListQuery::all(&COLLECTION.into());
    let page = store.list(&query).await.unwrap();
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    page.records.iter().map(|record| (record.path.to_string(), text(&record.value))).collect()
}

async fn open(disk: &Disk, limits: Limits) -> Redb {
    Redb::open_on(Box::new(disk.clone()), limits).await.expect("the store opens")
}

/// Some clients that write at once: to which paths, and whether what is there shall be deleted.
fn batches() -> impl Strategy<Value = Vec<BTreeMap<u8, bool>>> {
    prop::collection::vec(prop::collection::btree_map(0..12u8, any::<bool>(), 1..8), 1..24)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Writes until the disk fails, cuts the power, and looks at what is left; twice, so that the second crash
/// hits a store that has been repaired.
async fn crash(batches: &[BTreeMap<u8, bool>], limits: Limits, mut at: [usize; 2], mut sectors: u64) {
    let disk = Disk::default();
    let mut clients = Clients::default();
    for at in &mut at {
        let store = open(&disk, limits).await;
        clients.check(&store).await;
        disk.fail(*at..usize::MAX, ErrorKind::Other);
        for batch in batches {
            if !clients.write(&store, batch).await {
                break;
            }
        }
        drop(store);
        disk.cut_power(|| {
            // A small generator, so that a failing case can be repeated.
            sectors = sectors.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sectors >> 63 == 0
        });
    }
    let store = open(&disk, limits).await;
    clients.check(&store).await;
    // What was undecided is decided now, and the store is as good as new.
    let mut afterwards = Clients { written: clients.written, ..Clients::default() };
    assert!(afterwards.write(&store, &batches[0]).await);
}

/// Lets the disk fail for a while, and looks whether memory and file are the same then.
async fn outage(batches: &[BTreeMap<u8, bool>], limits: Limits, from: usize, length: usize, kind: ErrorKind) {
    let disk = Disk::default();
    let store = open(&disk, limits).await;
    let mut clients = Clients::default();
    disk.fail(from..from + length, kind);
    for batch in batches {
        clients.write(&store, batch).await;
        assert!(store.revision() >= clients.acknowledged.last_key_value().map_or(1, |(at, _)| *at));
    }
    disk.heal();
    // The first write makes the store look at the file again, which may decide what was open.
    clients.write(&store, &batches[0]).await;
    assert!(clients.write(&store, &batches[0]).await, "it works again when the disk does");
    let (revision, seen, told) = (store.revision(), records(&store).await, history(&store));
    drop(store);
    let again = open(&disk, limits).await;
    assert_eq!((again.revision(), records(&again).await), (revision, seen), "memory was what is on the disk");
    // Before its last commit the file may remember more than memory does.
    assert!(history(&again).ends_with(&told));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_survives_a_crash_between_any_two_writes(
        batches in batches(), at in [0..400usize, 0..400usize], sectors: u64, short: bool,
    ) {
        block_on(crash(&batches, if short { SHORT } else { LONG }, at, sectors));
    }

    #[test]
    fn a_disk_that_fails_for_a_while_leaves_memory_and_file_the_same(
        batches in batches(), from in 0..300usize, length in 1..40usize, short: bool, full: bool,
    ) {
        let kind = if full { ErrorKind::StorageFull } else { ErrorKind::Other };
        block_on(outage(&batches, if short { SHORT } else { LONG }, from, length, kind));
    }
}

#[tokio::test]
async fn a_full_disk_is_told_to_who_writes_and_nobody_sees_the_change() {
    let disk = Disk::default();
    let store = open(&disk, LONG).await;
    let mut watch = store.watch(&COLLECTION.into(), store.revision()).unwrap();
    disk.fail(0..usize::MAX, ErrorKind::StorageFull);
    let put = Action::Put { value: Bytes::from_static(b"{}"), expires: None };
    let create = Change { key: key("a"), expect: Expect::Absent, action: put };
    for _ in 0..2 {
        let error = store.commit(create.clone()).await.unwrap_err();
        assert!(error.to_string().contains("is full; make some room and try again"), "{error}");
    }
    assert!(
        store.get(&key("a"), Freshness::Latest).await.unwrap().record.is_none()
            && watch.ready().unwrap().events.is_empty()
    );
    disk.heal();
    store.commit(create).await.unwrap();
    assert_eq!(watch.ready().unwrap().events.len(), 1);
}

#[tokio::test]
async fn writes_of_many_clients_share_a_sync() {
    let disk = Disk::default();
    let store = open(&disk, LONG).await;
    let before = disk.syncs();
    let creates = (0..200).map(|n| {
        let put = Action::Put { value: Bytes::from_static(b"{}"), expires: None };
        store.commit(Change { key: key(&n.to_string()), expect: Expect::Absent, action: put })
    });
    assert!(join_all(creates).await.iter().all(Result::is_ok));
    assert!(disk.syncs() - before < 20, "{} syncs", disk.syncs() - before);
}

#[tokio::test]
async fn of_two_changes_in_one_batch_the_second_sees_the_first() {
    let store = open(&Disk::default(), LONG).await;
    let create = || {
        let put = Action::Put { value: Bytes::from_static(b"{}"), expires: None };
        store.commit(Change { key: key("a"), expect: Expect::Absent, action: put })
    };
    let outcomes = join_all([create(), create(), create()]).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for outcome in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(outcome, CommitError::Conflict { current: Some(_) }), "{outcome}");
    }
}

#[tokio::test]
async fn a_restart_keeps_revisions_history_expiries_and_compaction() {
    let disk = Disk::default();
    let noon = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let put = |path: &str, expires| {
        let action = Action::Put { value: Bytes::from_static(b"{}"), expires };
        Change { key: key(path), expect: Expect::Absent, action }
    };
    let store = open(&disk, LONG).await;
    let first = store.commit(put("a", None)).await.unwrap().revision;
    store.compact(first);
    store.commit(put("b", Some(noon))).await.unwrap();
    let gone = store.commit(put("c", None)).await.unwrap().revision;
    let delete = Action::Delete { value: Bytes::from_static(b"{}") };
    store.commit(Change { key: key("c"), expect: Expect::Revision(gone), action: delete }).await.unwrap();
    let revision = store.revision();
    drop(store);

    let store = open(&disk, LONG).await;
    assert_eq!(store.revision(), revision);
    assert!(store.watch(&COLLECTION.into(), first - 1).is_err(), "it was compacted");
    let mut watch = store.watch(&COLLECTION.into(), first).unwrap();
    let told: Vec<_> = watch.ready().unwrap().events.iter().map(|e| (e.revision(), e.deleted)).collect();
    assert_eq!(told, [(revision - 2, false), (revision - 1, false), (revision, true)]);
    assert_eq!(store.expire(noon).await, 1);
    assert_eq!(records(&store).await.into_keys().collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn churn_is_compacted_and_its_space_used_again() {
    let disk = Disk::default();
    let store = open(&disk, SHORT).await;
    let mut revision = None;
    let mut sizes = Vec::new();
    for round in 0..1_500 {
        let expect = revision.map_or(Expect::Absent, Expect::Revision);
        let action = Action::Put { value: Bytes::from(vec![b'x'; 2_000]), expires: None };
        let change = Change { key: key("lease"), expect, action };
        revision = Some(store.commit(change).await.unwrap().revision);
        if round % 500 == 499 {
            sizes.push(disk.size());
        }
    }
    assert_eq!(sizes[1], sizes[2], "3 MB went through a file of {} bytes", sizes[2]);
    let rows = Arc::new(store);
    assert!(rows.stats().history_events <= SHORT.events);
}
