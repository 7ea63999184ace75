//! Against a real etcd, which `SETPOINT_ETCD` names. `cargo xtask real --only etcd` starts one and runs these.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, Txn, TxnOp};

use super::*;
use crate::storage::{Action, Expect};

/// Values as they are, in folders of their collections.
struct Plain;

impl Layout for Plain {
    fn place(&self, key: &Key) -> String {
        format!("{}/{}", key.collection, key.path)
    }

    fn folder(&self, collection: &str) -> String {
        format!("{collection}/")
    }

    fn key(&self, place: &str) -> Option<Key> {
        let (first, rest) = place.split_once('/')?;
        let (second, path) = rest.split_once('/')?;
        Some(Key { collection: format!("{first}/{second}").into(), path: path.into() })
    }

    fn encode(&self, _key: &Key, value: &Bytes) -> Result<Vec<u8>, String> {
        Ok(value.to_vec())
    }

    fn decode(&self, _key: &Key, value: &[u8]) -> Result<Bytes, String> {
        if value.starts_with(b"broken") {
            return Err("it is broken".to_owned());
        }
        Ok(Bytes::copy_from_slice(value))
    }
}

fn url() -> String {
    std::env::var("SETPOINT_ETCD").expect("SETPOINT_ETCD is the address of an etcd that may be written to")
}

async fn open_at(prefix: &str, limits: Limits) -> Etcd {
    let options = EtcdOptions::new([url()]).prefix(prefix);
    let (env, background) = (Env::system(), Background::default());
    let opened = Etcd::open(&options, Box::new(Plain), limits, Duration::ZERO, &env, &background).await;
    opened.expect("there is an etcd")
}

fn anywhere() -> String {
    format!("/test/{}", Env::system().uuid())
}

async fn open(limits: Limits) -> Etcd {
    open_at(&anywhere(), limits).await
}

crate::storage::conformance::promises!(ignored "it needs an etcd: cargo xtask real --only etcd", async |limits| open(limits).await);

fn pods() -> Arc<str> {
    "core/pods".into()
}

fn key(path: &str) -> Key {
    Key { collection: pods(), path: path.into() }
}

fn put(path: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Change { key: key(path), expect, action: Action::Put { value, ttl } }
}

async fn client() -> Client {
    Client::connect([url()], None).await.expect("there is an etcd")
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn two_servers_see_what_the_other_has_written_at_once() {
    let prefix = anywhere();
    let (one, other) = (open_at(&prefix, Limits::default()).await, open_at(&prefix, Limits::default()).await);
    for round in 0..50 {
        let path = round.to_string();
        let written = one.commit(put(&path, Expect::Absent, "x", None)).await.unwrap();
        let found = other.get(&key(&path), Freshness::Latest).await.unwrap().record.unwrap();
        assert_eq!(found.revision, written.revision);
        let all = other.list(&ListQuery::all(&pods())).await.unwrap();
        assert_eq!((all.records.len(), all.revision >= written.revision), (round + 1, true));
        let twice = other.commit(put(&path, Expect::Absent, "y", None)).await.unwrap_err();
        let CommitError::Conflict { current: Some(current) } = twice else { panic!("{twice}") };
        assert_eq!(current.value, "x");
    }
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn a_transaction_of_somebody_else_is_seen_whole() {
    let prefix = anywhere();
    let store = open_at(&prefix, Limits::default()).await;
    let mut watch = store.watch(&pods(), store.revision()).unwrap();
    let puts: Vec<_> =
        (0..100).map(|n| TxnOp::put(format!("{prefix}/core/pods/{n:03}"), "v", None)).collect();
    client().await.txn(Txn::new().and_then(puts)).await.unwrap();
    watch.changed().await;
    let batch = watch.ready().unwrap();
    assert_eq!(batch.events.len(), 100);
    assert!(batch.events.iter().all(|event| event.revision() == batch.complete_to));
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn records_with_a_time_to_live_share_a_lease_and_go_together() {
    let store = open(Limits::default()).await;
    let mut watch = store.watch(&pods(), store.revision()).unwrap();
    for n in 0..3 {
        let ttl = Some(Duration::from_secs(2));
        store.commit(put(&n.to_string(), Expect::Absent, "x", ttl)).await.unwrap();
    }
    assert_eq!(watch.ready().unwrap().events.len(), 3);
    let gone = tokio::time::timeout(Duration::from_secs(20), async {
        watch.changed().await;
        watch.ready().unwrap().events
    });
    let gone = gone.await.expect("they expire");
    assert_eq!(gone.len(), 3, "in one revision");
    assert!(gone.iter().all(|event| event.deleted && event.record.value == "x"));
    assert_eq!(store.stats().remote.unwrap().leases, 1);
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn an_update_that_changes_nothing_is_not_written() {
    let store = open(Limits::default()).await;
    let first = store.commit(put("1", Expect::Absent, "x", None)).await.unwrap().revision;
    let again = store.commit(put("1", Expect::Revision(first), "x", None)).await.unwrap().revision;
    assert_eq!((again, store.latest().await.unwrap()), (first, first));
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn the_past_is_read_from_etcd_until_it_is_compacted_there() {
    let store = open(Limits { events: 2, bytes: 1 << 20 }).await;
    for n in 0..10 {
        store.commit(put(&n.to_string(), Expect::Absent, "x", None)).await.unwrap();
    }
    let now = store.revision();
    let past = ListQuery { fresh: Freshness::Exact(now - 5), ..ListQuery::all(&pods()) };
    assert!(store.shared.view.scan(&past).await.is_err(), "the copy has forgotten it");
    let page = store.list(&past).await.unwrap();
    assert_eq!((page.records.len(), page.revision), (5, now - 5));
    let next = ListQuery { after: Some("2".into()), ..past.clone() };
    assert_eq!(store.list(&next).await.unwrap().records.len(), 2);
    client().await.compact(now.cast_signed(), None).await.unwrap();
    assert!(matches!(store.list(&past).await, Err(ReadError::Compacted { .. })));
    let old = store.get(&key("1"), Freshness::Exact(now - 5)).await;
    assert!(matches!(old, Err(ReadError::Compacted { .. })));
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn what_cannot_be_decoded_is_named_and_takes_nothing_else_down() {
    let prefix = anywhere();
    let store = open_at(&prefix, Limits::default()).await;
    store.commit(put("good", Expect::Absent, "x", None)).await.unwrap();
    let first = store.commit(put("bad", Expect::Absent, "x", None)).await.unwrap().revision;
    let mut client = client().await;
    client.put(format!("{prefix}/core/pods/bad"), "broken", None).await.unwrap();
    let page = store.list(&ListQuery::all(&pods())).await.unwrap();
    assert_eq!(page.records.iter().map(|record| &*record.path).collect::<Vec<_>>(), ["good"]);
    assert_eq!(store.damaged("core/pods"), [("bad".to_owned(), "it is broken".into())]);
    for fresh in [Freshness::Any, Freshness::Latest] {
        let error = store.get(&key("bad"), fresh).await.unwrap_err().to_string();
        assert!(error.contains("core/pods/bad cannot be decoded: it is broken"), "{error}");
    }
    // The same from the start.
    let again = open_at(&prefix, Limits::default()).await;
    assert_eq!(again.damaged("core/pods").len(), 1);
    let conflict = again.commit(put("bad", Expect::Revision(first), "y", None)).await.unwrap_err();
    assert!(matches!(conflict, CommitError::Conflict { .. }));
    client.put(format!("{prefix}/core/pods/bad"), "mended", None).await.unwrap();
    assert_eq!(store.list(&ListQuery::all(&pods())).await.unwrap().records.len(), 2);
    assert!(store.damaged("core/pods").is_empty());
}

#[tokio::test]
#[ignore = "it needs an etcd: cargo xtask real --only etcd"]
async fn one_of_several_servers_compacts() {
    let prefix = anywhere();
    let interval = Duration::from_millis(300);
    let options = EtcdOptions::new([url()]).prefix(&prefix);
    let mut stores = Vec::new();
    for _ in 0..3 {
        let (env, background) = (Env::system(), Background::default());
        let limits = Limits::default();
        let opened = Etcd::open(&options, Box::new(Plain), limits, interval, &env, &background).await;
        stores.push(opened.unwrap());
    }
    for n in 0..20 {
        stores[0].commit(put(&n.to_string(), Expect::Absent, "x", None)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let compactions: u64 = stores.iter().map(|store| store.stats().remote.unwrap().compactions).sum();
    assert!((3..=8).contains(&compactions), "{compactions} compactions in seven intervals");
}

/// No etcd answers here: what the copy was when the task panicked is all that there is.
#[tokio::test(start_paused = true)]
async fn a_copy_that_nobody_follows_is_lost_until_everything_is_read_again() {
    let options = EtcdOptions::new(["http://127.0.0.1:1"]);
    let client = connection::connect(&options).await.unwrap();
    let (env, background) = (Env::seeded(1), Background::default());
    let shared = Arc::new(Shared::new(client, &options, Box::new(Plain), Limits::default(), &env));
    let task = follow_with(&shared, &background, |_| async { panic!("as the test wants it") });
    let store = Etcd { shared, _tasks: vec![task] };
    assert_eq!((store.failure(), background.down()), (None, vec![]));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(background.down(), ["etcd-watch"]);
    let why = store.failure().unwrap();
    assert!(why.contains("panicked"), "{why}");
    // It has begun again, and reads; as long as it has not, nobody takes the copy for a new one.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((background.down(), background.panics()), (vec![], vec![("etcd-watch", 1)]));
    assert!(store.failure().is_some());
}
