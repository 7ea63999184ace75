//! What every engine promises. An engine's tests are one line: `conformance!(engine)`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use setpoint_env::{Env, Later};

use super::{
    Action, Change, Chunk, CommitError, Expect, Freshness, Hint, Key, Limits, ListQuery, ReadError, Record,
    Revision, Scan, Storage,
};

const SMALL: Limits = Limits { events: 8, bytes: 1 << 20 };

fn key(path: &str) -> Key {
    Key { collection: "core/pods".into(), path: path.into() }
}

fn put(path: &str, expect: Expect, value: &str) -> Change {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Change { key: key(path), expect, action: Action::Put { value, ttl: None } }
}

fn remove(path: &str, expect: Expect) -> Change {
    Change { key: key(path), expect, action: Action::Delete }
}

fn all() -> ListQuery {
    ListQuery::all(&"core/pods".into())
}

fn texts(records: &[Arc<Record>]) -> Vec<String> {
    records.iter().map(|r| format!("{}={}", r.path, String::from_utf8_lossy(&r.value))).collect()
}

async fn create(store: &dyn Storage, path: &str, value: &str) -> Revision {
    store.commit(put(path, Expect::Absent, value)).await.expect("the path is free").revision
}

pub(super) async fn revisions_grow_and_an_absent_record_is_created_once(store: &dyn Storage) {
    let first = create(store, "a/1", "x").await;
    let second = create(store, "a/2", "y").await;
    assert!(second > first && store.revision() == second);
    let Err(CommitError::Conflict { current }) = store.commit(put("a/1", Expect::Absent, "z")).await else {
        panic!("a second create must conflict");
    };
    assert_eq!(texts(&[current.expect("the record that is in the way")]), ["a/1=x"]);
    assert_eq!(store.revision(), second, "a refused change uses no revision");
}

pub(super) async fn a_change_is_committed_only_on_the_expected_revision(store: &dyn Storage) {
    let first = create(store, "a/1", "x").await;
    let second = store.commit(put("a/1", Expect::Revision(first), "y")).await.expect("as expected").revision;
    for stale in [put("a/1", Expect::Revision(first), "z"), remove("a/1", Expect::Revision(first))] {
        assert!(store.commit(stale).await.is_err());
    }
    let gone = store.commit(remove("a/1", Expect::Revision(second))).await.expect("as expected");
    assert!(gone.revision > second);
    let missing = store.commit(put("a/1", Expect::Revision(second), "z")).await;
    assert!(matches!(missing, Err(CommitError::Conflict { current: None })));
    assert!(store.get(&key("a/1"), Freshness::Latest).await.expect("reads work").record.is_none());
}

pub(super) async fn lists_are_sorted_and_limited_to_their_prefix(store: &dyn Storage) {
    for path in ["b/1", "a/2", "a/1", "ab/1"] {
        create(store, path, "x").await;
    }
    let prefix = ListQuery { prefix: "a/".into(), ..all() };
    assert_eq!(texts(&store.list(&prefix).await.unwrap().records), ["a/1=x", "a/2=x"]);
    let none = ListQuery { collection: "core/nodes".into(), ..all() };
    assert!(store.list(&none).await.unwrap().records.is_empty());
}

/// The next chunk that has records, or is the last.
async fn next(scan: &mut Box<dyn Scan>, limit: usize) -> Chunk {
    loop {
        let chunk = scan.next(limit).await.expect("history is there");
        if chunk.end || !chunk.records.is_empty() {
            return chunk;
        }
    }
}

pub(super) async fn a_scan_shows_the_state_at_its_revision_while_others_write(store: &dyn Storage) {
    for path in ["1", "2", "3", "4"] {
        create(store, path, "old").await;
    }
    let mut scan = store.scan(&all()).await.unwrap();
    let first = next(&mut scan, 2).await;
    assert_eq!((texts(&first.records), first.remaining), (vec!["1=old".into(), "2=old".into()], Some(2)));
    let third = store.get(&key("3"), Freshness::Latest).await.unwrap().record.expect("it is there");
    store.commit(put("3", Expect::Revision(third.revision), "new")).await.unwrap();
    let fourth = store.get(&key("4"), Freshness::Latest).await.unwrap().record.expect("it is there");
    store.commit(remove("4", Expect::Revision(fourth.revision))).await.unwrap();
    create(store, "25", "late").await;
    create(store, "5", "late").await;
    let second = next(&mut scan, 1).await;
    assert_eq!((texts(&second.records), second.remaining), (vec!["3=old".into()], Some(1)));
    create(store, "35", "late").await;
    let third = next(&mut scan, 9).await;
    assert_eq!((texts(&third.records), third.end, third.remaining), (vec!["4=old".into()], true, None));
    assert!(next(&mut scan, 9).await.records.is_empty(), "the end stays the end");
    // Another scan goes on where the first one was.
    let fresh = Freshness::Exact(scan.revision());
    let query = ListQuery { fresh, after: Some("2".into()), before: Some(2), ..all() };
    let mut again = store.scan(&query).await.unwrap();
    let chunk = next(&mut again, 1).await;
    assert_eq!((texts(&chunk.records), chunk.remaining), (vec!["3=old".into()], Some(1)));
    assert_eq!(
        texts(&store.list(&all()).await.unwrap().records),
        ["1=old", "2=old", "25=late", "3=new", "35=late", "5=late"]
    );
}

pub(super) async fn a_scan_says_how_many_records_remain_of_its_prefix(store: &dyn Storage) {
    for path in ["a/1", "a/2", "a/3", "ab/1", "b/1"] {
        create(store, path, "x").await;
    }
    for (prefix, remaining) in [("", Some(4)), ("a/", Some(2)), ("a", None), ("a/1", None)] {
        let mut scan = store.scan(&all().under(prefix)).await.unwrap();
        let chunk = next(&mut scan, 1).await;
        assert_eq!(chunk.remaining.filter(|_| !chunk.end), remaining, "{prefix}");
    }
    // What a caller says about the records before may be wrong.
    for before in [2, 1000, usize::MAX] {
        let query = ListQuery { after: Some("a/1".into()), before: Some(before), ..all() };
        let mut scan = store.scan(&query).await.unwrap();
        assert!((1..=5).contains(&next(&mut scan, 1).await.remaining.unwrap()), "{before}");
    }
}

pub(super) async fn a_hint_leaves_out_nothing_that_is_looked_for(store: &dyn Storage) {
    for path in ["a/x", "a/xx", "a-b/x", "b/x", "b/y"] {
        create(store, path, "v").await;
    }
    let named = |prefix: &str| ListQuery { hint: Some(Hint::Name("x".into())), ..all().under(prefix) };
    let found = async |query: ListQuery| {
        let records = store.list(&query).await.unwrap().records;
        records.iter().filter(|r| r.path.ends_with("/x")).map(|r| r.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(named("")).await, ["a-b/x", "a/x", "b/x"]);
    assert_eq!(found(named("a/")).await, ["a/x"]);
    assert_eq!(found(ListQuery { after: Some("a/x".into()), ..named("") }).await, ["b/x"]);
    let before = store.revision();
    let gone = store.get(&key("b/x"), Freshness::Latest).await.unwrap().record.expect("it is there");
    store.commit(remove("b/x", Expect::Revision(gone.revision))).await.unwrap();
    create(store, "c/x", "v").await;
    assert_eq!(found(named("")).await, ["a-b/x", "a/x", "c/x"]);
    assert_eq!(
        found(ListQuery { fresh: Freshness::Exact(before), ..named("") }).await,
        ["a-b/x", "a/x", "b/x"]
    );
    create(store, "x", "v").await;
    assert!(store.list(&named("")).await.unwrap().records.iter().any(|record| &*record.path == "x"));
}

pub(super) async fn a_read_is_as_fresh_as_asked_for(store: &dyn Storage) {
    let first = create(store, "1", "x").await;
    let second = store.commit(put("1", Expect::Revision(first), "y")).await.unwrap().revision;
    let get = async |fresh| {
        let found = store.get(&key("1"), fresh).await.map(|found| found.record);
        let page = store.list(&ListQuery { fresh, ..all() }).await.map(|page| page.records);
        let (found, page) = (found?.into_iter().collect::<Vec<_>>(), page?);
        assert_eq!(texts(&found), texts(&page), "{fresh:?}");
        Ok::<_, ReadError>(texts(&found).concat())
    };
    for fresh in [Freshness::Any, Freshness::Latest, Freshness::AtLeast(first), Freshness::AtLeast(second)] {
        assert_eq!(get(fresh).await.unwrap(), "1=y", "{fresh:?}");
    }
    assert_eq!(get(Freshness::Exact(second)).await.unwrap(), "1=y");
    assert_eq!(get(Freshness::Exact(first)).await.unwrap(), "1=x");
    assert_eq!(get(Freshness::Exact(first - 1)).await.unwrap(), "");
    for future in [Freshness::AtLeast(second + 1), Freshness::Exact(second + 1)] {
        assert!(matches!(get(future).await, Err(ReadError::Future { .. })), "{future:?}");
    }
}

pub(super) async fn who_waits_for_a_revision_is_told_when_it_is_there(store: &dyn Storage) {
    let now = create(store, "1", "x").await;
    store.reached(now).await;
    let mut waiting = store.reached(now + 2);
    assert!(futures::poll!(&mut waiting).is_pending());
    create(store, "2", "x").await;
    assert!(futures::poll!(&mut waiting).is_pending(), "not yet");
    create(store, "3", "x").await;
    waiting.await;
}

pub(super) async fn a_scan_whose_past_is_forgotten_says_so(store: &dyn Storage) {
    for n in 0..4 {
        create(store, &format!("{n}"), "x").await;
    }
    let mut scan = store.scan(&all()).await.unwrap();
    next(&mut scan, 1).await;
    for n in 0..20 {
        create(store, &format!("late-{n}"), "x").await;
    }
    assert!(matches!(scan.next(1).await, Err(ReadError::Compacted { .. })));
}

pub(super) async fn a_watch_tells_everything_after_its_revision_once_and_in_order(store: &dyn Storage) {
    create(store, "1", "before").await;
    let mut watch = store.watch(&"core/pods".into(), store.revision()).unwrap();
    assert!(watch.ready().unwrap().events.is_empty());
    let at = create(store, "2", "x").await;
    store.commit(put("2", Expect::Revision(at), "y")).await.unwrap();
    let at = store.revision();
    store.commit(remove("2", Expect::Revision(at))).await.unwrap();
    let other = Change {
        key: Key { collection: "core/nodes".into(), path: "n".into() },
        ..put("", Expect::Absent, "n")
    };
    store.commit(other).await.unwrap();
    watch.changed().await;
    let batch = watch.ready().unwrap();
    let told: Vec<_> = batch
        .events
        .iter()
        .map(|e| (e.deleted, e.previous.is_some(), String::from_utf8_lossy(&e.record.value).into_owned()))
        .collect();
    assert_eq!(told, [(false, false, "x".into()), (false, true, "y".into()), (true, true, "y".into())]);
    assert_eq!(batch.complete_to, store.revision(), "also past the changes of other collections");
    assert!(watch.changed().now_or_never().is_none(), "nothing more has happened");
}

pub(super) async fn a_watch_resumes_where_another_stopped(store: &dyn Storage) {
    let start = store.revision();
    for n in 0..6 {
        create(store, &n.to_string(), "x").await;
    }
    let mut first = store.watch(&"core/pods".into(), start).unwrap();
    let told = first.ready().unwrap().events;
    let middle = told[2].revision();
    let mut second = store.watch(&"core/pods".into(), middle).unwrap();
    let rest: Vec<_> = second.ready().unwrap().events.iter().map(|e| e.revision()).collect();
    assert_eq!(rest, told[3..].iter().map(|e| e.revision()).collect::<Vec<_>>());
}

pub(super) async fn history_is_bounded_and_says_so(store: &dyn Storage) {
    let start = store.revision();
    let mut slow = store.watch(&"core/pods".into(), start).unwrap();
    for n in 0..20 {
        create(store, &n.to_string(), "x").await;
    }
    assert!(store.stats().history_events <= SMALL.events);
    assert!(matches!(slow.ready(), Err(ReadError::Compacted { .. })), "it fell behind");
    assert!(matches!(store.watch(&"core/pods".into(), start), Err(ReadError::Compacted { .. })));
    let past = ListQuery { fresh: Freshness::Exact(start), ..all() };
    assert!(matches!(store.list(&past).await, Err(ReadError::Compacted { .. })));
    assert_eq!(store.list(&all()).await.unwrap().records.len(), 20, "live records stay");
    assert!(store.watch(&"core/pods".into(), store.revision()).is_ok());
}

pub(super) async fn a_quiet_collection_outlives_the_churn_of_others(store: &dyn Storage) {
    create(store, "1", "x").await;
    let mut watch = store.watch(&"core/pods".into(), store.revision()).unwrap();
    for n in 0..50 {
        let key = Key { collection: "coordination.k8s.io/leases".into(), path: n.to_string().into() };
        store.commit(Change { key, ..put("", Expect::Absent, "l") }).await.unwrap();
    }
    assert!(watch.ready().unwrap().events.is_empty(), "it has missed nothing");
    create(store, "2", "y").await;
    assert_eq!(watch.ready().unwrap().events.len(), 1);
}

pub(super) async fn compaction_gives_up_the_past_and_nothing_else(store: &dyn Storage) {
    let first = create(store, "1", "x").await;
    let mut watch = store.watch(&"core/pods".into(), first).unwrap();
    create(store, "2", "y").await;
    watch.ready().unwrap();
    store.compact(store.revision());
    assert!(matches!(store.watch(&"core/pods".into(), first), Err(ReadError::Compacted { .. })));
    create(store, "3", "z").await;
    assert_eq!(watch.ready().unwrap().events.len(), 1, "a running watch goes on");
    assert_eq!(store.list(&all()).await.unwrap().records.len(), 3);
}

pub(super) async fn age_takes_the_past_from_lists_and_from_watches_only_what_they_miss(store: &dyn Storage) {
    let first = create(store, "1", "x").await;
    create(store, "2", "y").await;
    let key = Key { collection: "core/leases".into(), path: "1".into() };
    let other = store.commit(Change { key, ..put("", Expect::Absent, "l") }).await.unwrap().revision;
    store.age(other);
    let pods = "core/pods".into();
    assert!(matches!(store.watch(&pods, first), Err(ReadError::Compacted { .. })));
    assert!(store.watch(&pods, other - 1).is_ok(), "nothing has changed since");
    let at = |revision| ListQuery { fresh: Freshness::Exact(revision), ..all() };
    assert!(matches!(store.list(&at(other - 1)).await, Err(ReadError::Compacted { .. })));
    assert_eq!(store.list(&at(other)).await.unwrap().records.len(), 2);
    assert_eq!(store.list(&all()).await.unwrap().records.len(), 2);
}

pub(super) async fn the_future_cannot_be_read(store: &dyn Storage) {
    let future = store.revision() + 1;
    assert!(matches!(store.watch(&"core/pods".into(), future), Err(ReadError::Future { .. })));
    assert!(matches!(
        store.list(&ListQuery { fresh: Freshness::Exact(future), ..all() }).await,
        Err(ReadError::Future { .. })
    ));
}

pub(super) async fn records_expire_when_told_the_time(store: &dyn Storage) {
    let now = Env::system().now();
    let minute = Duration::from_secs(60);
    let expiring = |path, ttl, expect| Change {
        key: key(path),
        expect,
        action: Action::Put { value: Bytes::from_static(b"e"), ttl: Some(ttl) },
    };
    store.commit(expiring("1", minute, Expect::Absent)).await.unwrap();
    let second = store.commit(expiring("2", minute, Expect::Absent)).await.unwrap().revision;
    // A new write gives a new time.
    store.commit(expiring("2", 60 * minute, Expect::Revision(second))).await.unwrap();
    create(store, "3", "stays").await;
    let mut watch = store.watch(&"core/pods".into(), store.revision()).unwrap();
    assert_eq!(store.expire(now.later(minute - Duration::from_secs(1))).await, 0);
    assert_eq!(store.expire(now.later(2 * minute)).await, 1);
    assert_eq!(store.expire(now.later(70 * minute)).await, 1);
    assert_eq!(texts(&store.list(&all()).await.unwrap().records), ["3=stays"]);
    assert_eq!(watch.ready().unwrap().events.iter().filter(|e| e.deleted).count(), 2);
}

/// Runs the whole suite against an engine whose history is its own: `conformance!(async |limits| Memory::new(limits))`.
macro_rules! conformance {
    ($engine:expr) => {
        $crate::storage::conformance::promises!($engine);
        $crate::storage::conformance::promises!(@each [] $engine,
            history_is_bounded_and_says_so,
            age_takes_the_past_from_lists_and_from_watches_only_what_they_miss,
            records_expire_when_told_the_time,
        );
    };
}
pub(super) use conformance;

/// Runs what every engine promises, wherever it keeps its history: `promises!(engine)`, or `promises!(ignored "why", engine)`.
macro_rules! promises {
    (@all $attributes:tt $engine:expr) => {
        $crate::storage::conformance::promises!(@each $attributes $engine,
            revisions_grow_and_an_absent_record_is_created_once,
            a_change_is_committed_only_on_the_expected_revision,
            lists_are_sorted_and_limited_to_their_prefix,
            a_scan_shows_the_state_at_its_revision_while_others_write,
            a_scan_says_how_many_records_remain_of_its_prefix,
            a_hint_leaves_out_nothing_that_is_looked_for,
            a_read_is_as_fresh_as_asked_for,
            who_waits_for_a_revision_is_told_when_it_is_there,
            a_scan_whose_past_is_forgotten_says_so,
            a_watch_tells_everything_after_its_revision_once_and_in_order,
            a_watch_resumes_where_another_stopped,
            a_quiet_collection_outlives_the_churn_of_others,
            compaction_gives_up_the_past_and_nothing_else,
            the_future_cannot_be_read,
        );
    };
    (@each $attributes:tt $engine:expr, $($test:ident,)*) => {
        $( $crate::storage::conformance::promises!(@one $attributes $engine, $test); )*
    };
    (@one [$($attribute:tt)*] $engine:expr, $test:ident) => {
        #[tokio::test]
        $($attribute)*
        async fn $test() {
            let engine = $engine;
            let store = engine(crate::storage::conformance::limits()).await;
            crate::storage::conformance::$test(&store).await;
        }
    };
    (ignored $why:literal, $engine:expr) => {
        $crate::storage::conformance::promises!(@all [#[ignore = $why]] $engine);
    };
    ($engine:expr) => {
        $crate::storage::conformance::promises!(@all [] $engine);
    };
}
pub(super) use promises;

pub(super) fn limits() -> Limits {
    SMALL
}
