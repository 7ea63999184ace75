//! Crashes between any two operations on the disk, and disks that fail for a while.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use proptest::prelude::*;

use super::super::{Action, Change, CommitError, Expect, Freshness, Key, Limits, ListQuery, Record, Storage};
use super::Redb;
use super::faulty_disk::{Disk, coin};
use super::row::tests::PANICS;

pub(super) const COLLECTION: &str = "core/configmaps";
/// Longer than any batch, so that what a crash leaves undecided is always in history.
pub(super) const SHORT: Limits = Limits { events: 16, bytes: 1 << 20 };
pub(super) const LONG: Limits = Limits { events: 10_000, bytes: 1 << 30 };

/// What happened: path, and value unless it was deleted.
pub(super) type Fact = (String, Option<String>);

/// What clients know.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// What was there before history begins, and up to where all has been checked.
    settled: BTreeMap<String, String>,
    settled_to: u64,
    pub(super) acknowledged: BTreeMap<u64, Fact>,
    refused: Vec<Fact>,
    written: usize,
}

fn key(path: &str) -> Key {
    Key { collection: COLLECTION.into(), path: path.into() }
}

impl Clients {
    /// Several clients write at once, each to another path: those that exist are changed or deleted, the
    /// others created. Gives whether all of it was acknowledged.
    pub(super) async fn write(&mut self, store: &Redb, batch: &BTreeMap<u8, bool>) -> bool {
        let mut facts = Vec::new();
        let mut changes = Vec::new();
        for (path, deletes) in batch {
            let path = path.to_string();
            let current = store.get(&key(&path), Freshness::Latest).await.unwrap().record;
            self.written += 1;
            let value = Bytes::from(format!("{}-{}", self.written, "x".repeat(self.written * 97 % 3000)));
            let text = String::from_utf8_lossy(&value).into_owned();
            let (expect, action, value) = match current {
                None => (Expect::Absent, Action::Put { value, ttl: None }, Some(text)),
                Some(record) if *deletes => (Expect::Revision(record.revision), Action::Delete, None),
                Some(record) => {
                    (Expect::Revision(record.revision), Action::Put { value, ttl: None }, Some(text))
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
                    assert!(record.revision > self.settled_to, "{} is used again", record.revision);
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

    /// Nothing acknowledged is lost, nothing is there that nobody wrote, and history tells the same story. What was open
    /// is decided then.
    pub(super) async fn check(&mut self, store: &Redb) {
        let newest = self.acknowledged.last_key_value().map_or(1, |(revision, _)| *revision);
        assert!(store.revision() >= newest, "{} of {newest}", store.revision());
        let story = history(store);
        let oldest = story.first().map_or(u64::MAX, |(revision, _)| *revision);
        for (revision, fact) in story {
            if let Some(known) = self.acknowledged.get(&revision) {
                assert_eq!(known, &fact, "at {revision}");
            } else {
                assert!(revision > newest && self.refused.contains(&fact), "{revision} is a phantom");
                self.acknowledged.insert(revision, fact);
            }
        }
        let recent = self.acknowledged.split_off(&oldest);
        let older = std::mem::replace(&mut self.acknowledged, recent);
        live_through(&mut self.settled, older.into_values());
        let mut expected = self.settled.clone();
        live_through(&mut expected, self.acknowledged.values().cloned());
        // What came through while the disk was full is in no history.
        let seen = records(store).await;
        for fact in std::mem::take(&mut self.refused) {
            if expected.get(&fact.0) != seen.get(&fact.0) && seen.get(&fact.0) == fact.1.as_ref() {
                self.acknowledged.insert(store.revision(), fact.clone());
                live_through(&mut expected, [fact]);
            }
        }
        assert_eq!(seen, expected);
        self.settled_to = store.revision();
    }
}

fn live_through(state: &mut BTreeMap<String, String>, facts: impl IntoIterator<Item = Fact>) {
    for (path, value) in facts {
        match value {
            Some(value) => state.insert(path, value),
            None => state.remove(&path),
        };
    }
}

/// What a watcher sees that starts as early as it can.
fn history(store: &Redb) -> Vec<(u64, Fact)> {
    let (mut gone, mut there) = (0, store.revision());
    while gone + 1 < there {
        let middle = gone.midpoint(there);
        *(if store.watch(&COLLECTION.into(), middle).is_ok() { &mut there } else { &mut gone }) = middle;
    }
    let mut watch = store.watch(&COLLECTION.into(), there).expect("the newest revision can be watched");
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

pub(super) async fn open(disk: &Disk, limits: Limits) -> Redb {
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
        disk.cut_power(|| coin(&mut sectors));
    }
    let store = open(&disk, limits).await;
    clients.check(&store).await;
    // What was undecided is decided now, and the store is as good as new.
    let mut afterwards = Clients { written: clients.written, ..Clients::default() };
    assert!(afterwards.write(&store, &batches[0]).await);
}

/// Lets the disk be full for a while, and looks whether memory and file are the same then.
async fn full_for_a_while(batches: &[BTreeMap<u8, bool>], limits: Limits, from: usize, length: usize) {
    let disk = Disk::default();
    let store = open(&disk, limits).await;
    let mut clients = Clients::default();
    disk.fail(from..from + length, ErrorKind::StorageFull);
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
    // Before its last commit the file may remember more than memory does; after a shortage it remembers less.
    let kept = history(&again);
    assert!(kept.ends_with(&told) || told.ends_with(&kept));
}

/// Lets the disk fail for a while: at the first sign of it the store stops, and is whole when it is opened again.
async fn broken_for_a_while(batches: &[BTreeMap<u8, bool>], limits: Limits, from: usize, length: usize) {
    let disk = Disk::default();
    let store = open(&disk, limits).await;
    let mut clients = Clients::default();
    disk.fail(from..from + length, ErrorKind::Other);
    for batch in batches {
        clients.write(&store, batch).await;
        let has_failed = !clients.refused.is_empty();
        assert_eq!(store.failure().is_some(), has_failed, "it takes nothing more");
        assert_eq!(store.failed().now_or_never().is_some(), has_failed);
    }
    disk.heal();
    let has_failed = !clients.refused.is_empty();
    assert_eq!(clients.write(&store, &batches[0]).await, !has_failed, "not even if the disk works again");
    drop(store);
    let again = open(&disk, limits).await;
    clients.check(&again).await;
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
    fn a_disk_that_is_full_for_a_while_leaves_memory_and_file_the_same(
        batches in batches(), from in 0..300usize, length in 1..40usize, short: bool,
    ) {
        block_on(full_for_a_while(&batches, if short { SHORT } else { LONG }, from, length));
    }

    #[test]
    fn a_disk_that_fails_stops_the_store_for_good(
        batches in batches(), from in 0..300usize, length in 1..40usize, short: bool,
    ) {
        block_on(broken_for_a_while(&batches, if short { SHORT } else { LONG }, from, length));
    }
}

/// Big enough for a page of its own.
fn create(number: usize) -> Change {
    let action = Action::Put { value: Bytes::from(vec![b'x'; 3_000]), ttl: None };
    Change { key: key(&number.to_string()), expect: Expect::Absent, action }
}

fn delete(record: &Record) -> Change {
    Change { key: key(&record.path), expect: Expect::Revision(record.revision), action: Action::Delete }
}

#[tokio::test]
async fn nothing_is_acknowledged_that_a_failed_sync_could_lose() {
    let disk = Disk::default();
    let store = open(&disk, LONG).await;
    let mut acknowledged = Vec::new();
    for number in 100..140 {
        if number == 120 {
            disk.fail_syncs(1, 0);
        }
        if store.commit(create(number)).await.is_ok() {
            acknowledged.push(number.to_string());
        }
    }
    drop(store);
    disk.cut_power(|| false);
    let store = open(&disk, LONG).await;
    assert_eq!(records(&store).await.into_keys().collect::<Vec<_>>(), acknowledged);
}

#[tokio::test]
async fn on_a_full_disk_deletes_still_work_and_make_room() {
    let disk = Disk::default();
    disk.limit(Some(24 << 20));
    let store = open(&disk, LONG).await;
    let mut kept = Vec::new();
    let refused = loop {
        let outcomes = join_all((0..64).map(|n| store.commit(create(kept.len() + n)))).await;
        let (stored, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        kept.extend(stored.into_iter().map(Result::unwrap));
        if let Some(Err(error)) = refused.into_iter().next() {
            break error;
        }
        assert!(kept.len() < 10_000, "the disk is never full");
    };
    assert!(refused.to_string().contains("is full"), "{refused}");
    assert!(store.stats().is_full && store.failure().is_none());
    assert!(store.commit(create(99_999)).await.is_err());
    for record in kept.drain(kept.len() / 4..) {
        store.commit(delete(&record)).await.unwrap();
    }
    store.commit(create(99_999)).await.unwrap();
    let seen = records(&store).await;
    assert_eq!(seen.len(), kept.len() + 1, "what was there stays");
    drop(store);
    assert_eq!(records(&open(&disk, LONG).await).await, seen);
}

#[tokio::test]
async fn a_change_that_no_row_can_hold_is_refused_and_the_next_one_is_stored() {
    let store = open(&Disk::default(), LONG).await;
    let long = Change { key: key(&"x".repeat(70_000)), ..create(1) };
    let outcomes = join_all([store.commit(create(1)), store.commit(long), store.commit(create(2))]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert!(outcomes[1].as_ref().unwrap_err().to_string().contains("too long"), "{outcomes:?}");
}

#[tokio::test]
async fn a_change_that_makes_the_writer_panic_costs_no_other() {
    let store = open(&Disk::default(), LONG).await;
    let panics = |number| Change { key: key(&format!("{PANICS}{number}")), ..create(0) };
    let changes = [create(1), panics(1), create(2), panics(2), create(3)];
    let outcomes = join_all(changes.map(|change| store.commit(change))).await;
    let stored: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true, false, true], "{outcomes:?}");
    // Who was told of a conflict with what was never there would wait for it in vain.
    for error in join_all([panics(3), panics(3)].map(|change| store.commit(change))).await {
        assert!(matches!(error, Err(CommitError::NotStored(_))), "{error:?}");
    }
    assert!(store.commit(create(4)).await.is_ok() && store.failure().is_none());
    assert_eq!(records(&store).await.len(), 4);
    assert!((3..=4).contains(&store.stats().writer_panics), "{}", store.stats().writer_panics);
}

#[tokio::test]
async fn a_store_that_was_repaired_uses_no_revision_again() {
    let disk = Disk::default();
    let store = open(&disk, LONG).await;
    store.commit(create(1)).await.unwrap();
    // A disk that says that it has synced and has not.
    let behind = disk.copy();
    let lost = store.commit(create(2)).await.unwrap();
    let store = open(&behind, LONG).await;
    let next = store.commit(create(3)).await.unwrap();
    assert!(next.revision > lost.revision, "{} was {}", next.revision, lost.path);
}

#[tokio::test]
async fn a_full_disk_is_told_to_who_writes_and_nobody_sees_the_change() {
    let disk = Disk::default();
    let store = open(&disk, LONG).await;
    let mut watch = store.watch(&COLLECTION.into(), store.revision()).unwrap();
    disk.fail(0..usize::MAX, ErrorKind::StorageFull);
    let put = Action::Put { value: Bytes::from_static(b"{}"), ttl: None };
    let create = Change { key: key("a"), expect: Expect::Absent, action: put };
    for _ in 0..2 {
        let error = store.commit(create.clone()).await.unwrap_err();
        assert!(error.to_string().contains("make some room, and try again"), "{error}");
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
        let put = Action::Put { value: Bytes::from_static(b"{}"), ttl: None };
        store.commit(Change { key: key(&n.to_string()), expect: Expect::Absent, action: put })
    });
    assert!(join_all(creates).await.iter().all(Result::is_ok));
    assert!(disk.syncs() - before < 20, "{} syncs", disk.syncs() - before);
}

#[tokio::test]
async fn of_two_changes_in_one_batch_the_second_sees_the_first() {
    let store = open(&Disk::default(), LONG).await;
    let create = || {
        let put = Action::Put { value: Bytes::from_static(b"{}"), ttl: None };
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
    let put = |path: &str, ttl| {
        let action = Action::Put { value: Bytes::from_static(b"{}"), ttl };
        Change { key: key(path), expect: Expect::Absent, action }
    };
    let store = open(&disk, LONG).await;
    let first = store.commit(put("a", None)).await.unwrap().revision;
    store.compact(first);
    let ttl = std::time::Duration::from_secs(3600);
    store.commit(put("b", Some(ttl))).await.unwrap();
    let gone = store.commit(put("c", None)).await.unwrap().revision;
    let delete = Action::Delete;
    store.commit(Change { key: key("c"), expect: Expect::Revision(gone), action: delete }).await.unwrap();
    let revision = store.revision();
    drop(store);

    let store = open(&disk, LONG).await;
    assert_eq!(store.revision(), revision);
    assert!(store.watch(&COLLECTION.into(), first - 1).is_err(), "it was compacted");
    let mut watch = store.watch(&COLLECTION.into(), first).unwrap();
    let told: Vec<_> = watch.ready().unwrap().events.iter().map(|e| (e.revision(), e.deleted)).collect();
    assert_eq!(told, [(revision - 2, false), (revision - 1, false), (revision, true)]);
    let now = setpoint_env::Env::system().now();
    assert_eq!(store.expire(now).await, 0, "not yet");
    assert_eq!(store.expire(setpoint_env::Later::later(now, ttl)).await, 1);
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
        let action = Action::Put { value: Bytes::from(vec![b'x'; 2_000]), ttl: None };
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
