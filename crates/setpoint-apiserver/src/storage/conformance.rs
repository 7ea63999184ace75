//! What every engine promises. An engine's tests are one line: `conformance!(engine)`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use jiff::Timestamp;

use super::{
    Action, Change, CommitError, Expect, Key, Limits, ListQuery, ReadError, Record, Revision, Storage,
};

const SMALL: Limits = Limits { events: 8, bytes: 1 << 20 };

fn key(path: &str) -> Key {
    Key { collection: "core/pods".into(), path: path.into() }
}

fn put(path: &str, expect: Expect, value: &str) -> Change {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Change { key: key(path), expect, action: Action::Put { value, expires: None } }
}

fn remove(path: &str, expect: Expect, value: &str) -> Change {
    Change {
        key: key(path),
        expect,
        action: Action::Delete { value: Bytes::copy_from_slice(value.as_bytes()) },
    }
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
    for stale in [put("a/1", Expect::Revision(first), "z"), remove("a/1", Expect::Revision(first), "x")] {
        assert!(store.commit(stale).await.is_err());
    }
    let gone = store.commit(remove("a/1", Expect::Revision(second), "y")).await.expect("as expected");
    assert!(gone.revision > second);
    let missing = store.commit(put("a/1", Expect::Revision(second), "z")).await;
    assert!(matches!(missing, Err(CommitError::Conflict { current: None })));
    assert!(store.get(&key("a/1")).await.expect("reads work").record.is_none());
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

pub(super) async fn pages_show_the_state_at_the_first_page(store: &dyn Storage) {
    for path in ["1", "2", "3", "4"] {
        create(store, path, "old").await;
    }
    let first = store.list(&ListQuery { limit: Some(2), ..all() }).await.unwrap();
    assert_eq!((texts(&first.records), first.remaining), (vec!["1=old".into(), "2=old".into()], 2));
    let third = store.get(&key("3")).await.unwrap().record.expect("it is there");
    store.commit(put("3", Expect::Revision(third.revision), "new")).await.unwrap();
    let fourth = store.get(&key("4")).await.unwrap().record.expect("it is there");
    store.commit(remove("4", Expect::Revision(fourth.revision), "old")).await.unwrap();
    create(store, "5", "late").await;
    let query = ListQuery { at: Some(first.revision), after: Some("2".into()), limit: Some(9), ..all() };
    let second = store.list(&query).await.unwrap();
    assert_eq!(texts(&second.records), ["3=old", "4=old"]);
    assert_eq!((second.revision, second.remaining), (first.revision, 0));
    assert_eq!(texts(&store.list(&all()).await.unwrap().records), ["1=old", "2=old", "3=new", "5=late"]);
}

pub(super) async fn a_watch_tells_everything_after_its_revision_once_and_in_order(store: &dyn Storage) {
    create(store, "1", "before").await;
    let mut watch = store.watch(&"core/pods".into(), store.revision()).unwrap();
    assert!(watch.ready().unwrap().events.is_empty());
    let at = create(store, "2", "x").await;
    store.commit(put("2", Expect::Revision(at), "y")).await.unwrap();
    let at = store.revision();
    store.commit(remove("2", Expect::Revision(at), "y")).await.unwrap();
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
    let past = ListQuery { at: Some(start), ..all() };
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

pub(super) async fn the_future_cannot_be_read(store: &dyn Storage) {
    let future = store.revision() + 1;
    assert!(matches!(store.watch(&"core/pods".into(), future), Err(ReadError::Future { .. })));
    assert!(matches!(
        store.list(&ListQuery { at: Some(future), ..all() }).await,
        Err(ReadError::Future { .. })
    ));
}

pub(super) async fn records_expire_when_told_the_time(store: &dyn Storage) {
    let noon = Timestamp::from_second(1_800_000_000).unwrap();
    let expiring = |path, at, expect| Change {
        key: key(path),
        expect,
        action: Action::Put { value: Bytes::from_static(b"e"), expires: Some(at) },
    };
    store.commit(expiring("1", noon, Expect::Absent)).await.unwrap();
    let second = store.commit(expiring("2", noon, Expect::Absent)).await.unwrap().revision;
    // A new write gives a new time.
    let later = noon + Duration::from_secs(60);
    store.commit(expiring("2", later, Expect::Revision(second))).await.unwrap();
    create(store, "3", "stays").await;
    let mut watch = store.watch(&"core/pods".into(), store.revision()).unwrap();
    assert_eq!(store.expire(noon - Duration::from_secs(1)).await, 0);
    assert_eq!(store.expire(noon).await, 1);
    assert_eq!(store.expire(later).await, 1);
    assert_eq!(texts(&store.list(&all()).await.unwrap().records), ["3=stays"]);
    assert_eq!(watch.ready().unwrap().events.iter().filter(|e| e.deleted).count(), 2);
}

/// Runs the whole suite against an engine: `conformance!(async |limits| Memory::new(limits))`.
macro_rules! conformance {
    ($engine:expr) => {
        $crate::storage::conformance::conformance!($engine,
            revisions_grow_and_an_absent_record_is_created_once,
            a_change_is_committed_only_on_the_expected_revision,
            lists_are_sorted_and_limited_to_their_prefix,
            pages_show_the_state_at_the_first_page,
            a_watch_tells_everything_after_its_revision_once_and_in_order,
            a_watch_resumes_where_another_stopped,
            history_is_bounded_and_says_so,
            a_quiet_collection_outlives_the_churn_of_others,
            compaction_gives_up_the_past_and_nothing_else,
            the_future_cannot_be_read,
            records_expire_when_told_the_time,
        );
    };
    ($engine:expr, $($test:ident,)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                let engine = $engine;
                let store = engine(crate::storage::conformance::limits()).await;
                crate::storage::conformance::$test(&store).await;
            }
        )*
    };
}
pub(super) use conformance;

pub(super) fn limits() -> Limits {
    SMALL
}
