use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::object::testing::{held, object};

fn fifo(cached: &[&str]) -> DeltaFifo<ConfigMap> {
    let indexer = Arc::new(Indexer::default());
    indexer.write(|writer| {
        for key in cached {
            writer.insert((*key).into(), object(key, "u", 1));
        }
    });
    DeltaFifo::new(indexer, Scope::Cluster, 100)
}

fn deleted(key: &str, version: u64, is_tombstone: bool) -> Delta<ConfigMap> {
    Delta::Deleted(Deleted { object: held(key, "u", version), is_tombstone })
}

fn updated(key: &str, version: u64) -> Delta<ConfigMap> {
    Delta::Updated(held(key, "u", version))
}

/// The batch in words: `a: updated 2, deleted 3; b: …`.
fn words(batch: &Batch<'_, ConfigMap>) -> String {
    let word = |delta: &Delta<ConfigMap>| {
        let (verb, object) = match delta {
            Delta::Added(object) => ("added", object),
            Delta::Updated(object) => ("updated", object),
            Delta::Replaced(object) => ("replaced", object),
            Delta::Sync(object) => ("sync", object),
            Delta::Deleted(Deleted { object, is_tombstone: false }) => ("deleted", object),
            Delta::Deleted(Deleted { object, is_tombstone: true }) => ("tombstone", object),
        };
        format!("{verb} {}", object.metadata.resource_version.as_deref().unwrap())
    };
    let key = |(key, deltas): (&ObjectKey, &[Delta<ConfigMap>])| {
        format!("{key}: {}", deltas.iter().map(word).collect::<Vec<_>>().join(", "))
    };
    batch.deltas().map(key).collect::<Vec<_>>().join("; ")
}

#[test]
fn keys_come_in_order_of_their_first_change_and_changes_of_a_key_stay_in_order() {
    let fifo = fifo(&["a", "b"]);
    fifo.push([updated("b", 2), updated("a", 3), updated("b", 4)], "4".into());
    let batch = fifo.try_drain().unwrap();
    assert_eq!(words(&batch), "b: updated 2, updated 4; a: updated 3");
    assert_eq!(batch.version(), Some(&"4".into()));
}

#[test]
fn two_deletions_in_a_row_fold_into_the_one_that_saw_the_final_state() {
    let fifo = fifo(&["a"]);
    fifo.replace(Vec::new(), "5".into());
    fifo.push([deleted("a", 6, false)], "6".into());
    assert_eq!(words(&fifo.try_drain().unwrap()), "a: deleted 6");

    let mut pending = Pending::default();
    for (is_tombstone, version) in [(true, 1), (false, 2), (true, 3)] {
        pending.push(deleted("a", version, is_tombstone));
    }
    let (_, deltas) = pending.iter().next().unwrap();
    assert!(matches!(deltas, [Delta::Deleted(Deleted { is_tombstone: false, .. })]));
}

#[test]
fn a_deletion_of_an_unknown_object_is_dropped_but_its_version_counts() {
    let fifo = fifo(&[]);
    fifo.push([deleted("a", 2, false)], "2".into());
    let batch = fifo.try_drain().unwrap();
    assert_eq!((words(&batch).as_str(), batch.version()), ("", Some(&"2".into())));
}

#[test]
fn a_deletion_is_kept_while_its_object_is_on_the_way_to_the_cache() {
    let fifo = fifo(&[]);
    fifo.push([Delta::Added(held("a", "u", 1))], "1".into());
    let first = fifo.try_drain().unwrap();
    fifo.push([deleted("a", 2, false)], "2".into());
    drop(first);
    assert_eq!(words(&fifo.try_drain().unwrap()), "a: deleted 2");
}

#[test]
fn a_list_deletes_every_known_object_that_it_lacks() {
    let fifo = fifo(&["cached", "listed"]);
    fifo.push([Delta::Added(held("transit", "u", 2))], "2".into());
    let batch = fifo.try_drain().unwrap();
    fifo.push([Delta::Added(held("queued", "u", 3))], "3".into());
    fifo.replace(vec![held("listed", "u", 4)], "9".into());
    drop(batch);
    let batch = fifo.try_drain().unwrap();
    assert_eq!(
        words(&batch),
        "queued: added 3, tombstone 3; listed: replaced 4; cached: tombstone 1; transit: tombstone 2"
    );
    assert!(batch.is_replace());
}

#[test]
fn a_list_of_a_namespace_says_nothing_about_another_one() {
    let indexer = Arc::new(Indexer::default());
    indexer.write(|writer| {
        writer.insert("a/x".into(), object("a/x", "u", 1));
        writer.insert("b/x".into(), object("b/x", "u", 1));
    });
    let fifo = DeltaFifo::new(indexer, Scope::Namespace("a".into()), 100);
    fifo.replace(Vec::new(), "2".into());
    assert_eq!(words(&fifo.try_drain().unwrap()), "a/x: tombstone 1");
}

#[test]
fn a_resync_tells_cached_objects_that_have_nothing_queued() {
    let fifo = fifo(&["a", "b"]);
    fifo.push([updated("a", 2)], "2".into());
    fifo.resync();
    assert_eq!(words(&fifo.try_drain().unwrap()), "a: updated 2; b: sync 1");
}

#[tokio::test(start_paused = true)]
async fn a_full_fifo_holds_its_writer_back_until_it_is_drained() {
    let fifo = DeltaFifo::new(Arc::new(Indexer::default()), Scope::Cluster, 1);
    fifo.push([updated("a", 1)], "1".into());
    let wait = async {
        fifo.ready().await;
        fifo.len()
    };
    let drain = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        drop(fifo.drain().await);
    };
    assert_eq!(tokio::join!(wait, drain).0, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Update(u8),
    Delete(u8),
    Replace(Vec<u8>),
    Drain,
    Apply,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5u8).prop_map(Step::Update),
        3 => (0..5u8).prop_map(Step::Delete),
        1 => proptest::collection::btree_set(0..5u8, 0..5).prop_map(|set| Step::Replace(set.into_iter().collect())),
        2 => Just(Step::Drain),
        2 => Just(Step::Apply),
    ];
    proptest::collection::vec(step, 0..60)
}

fn apply(fifo: &DeltaFifo<ConfigMap>, batch: &Batch<'_, ConfigMap>) {
    fifo.indexer.write(|writer| {
        for (key, delta) in batch.deltas().flat_map(|(key, deltas)| deltas.iter().map(move |d| (key, d))) {
            match delta.object() {
                Some(object) => drop(writer.put(object.clone())),
                None => assert!(writer.remove(key).is_some(), "a deletion of something that is not there"),
            }
        }
    });
}

proptest! {
    /// However pushes, drains and applications interleave, the indexer ends as the last state of each key,
    /// and no deletion is told of something that the cache does not hold.
    #[test]
    fn what_comes_out_leads_to_what_went_in(steps in steps()) {
        let fifo = fifo(&[]);
        let mut model = BTreeMap::<ObjectKey, u64>::new();
        let mut in_transit: Option<Batch<'_, ConfigMap>> = None;
        for (version, step) in steps.into_iter().enumerate().map(|(i, step)| (i as u64 + 1, step)) {
            match step {
                Step::Update(n) => {
                    let name = format!("o{n}");
                    fifo.push([updated(&name, version)], version.to_string().as_str().into());
                    model.insert(name.as_str().into(), version);
                }
                Step::Delete(n) => {
                    let name = format!("o{n}");
                    fifo.push([deleted(&name, version, false)], version.to_string().as_str().into());
                    model.remove(&name.as_str().into());
                }
                Step::Replace(set) => {
                    model = set.iter().map(|n| (ObjectKey::from(format!("o{n}").as_str()), version)).collect();
                    let list = model.keys().map(|key| held(key.name(), "u", version)).collect();
                    fifo.replace(list, version.to_string().as_str().into());
                }
                Step::Drain if in_transit.is_none() => in_transit = fifo.try_drain(),
                Step::Drain => {}
                Step::Apply => if let Some(batch) = in_transit.take() { apply(&fifo, &batch) },
            }
        }
        if let Some(batch) = in_transit.take() { apply(&fifo, &batch); }
        if let Some(batch) = fifo.try_drain() { apply(&fifo, &batch); }
        let mut cached = BTreeMap::new();
        fifo.indexer.view(|view| view.for_each(|object| {
            cached.insert(object.key().clone(), object.metadata.resource_version.as_deref().unwrap().parse::<u64>().unwrap());
        }));
        prop_assert_eq!(cached, model);
    }
}

#[test]
fn a_hot_key_holds_its_writer_back_as_many_keys_do() {
    let fifo = DeltaFifo::new(Arc::new(Indexer::default()), Scope::Cluster, 100);
    let mut pushed = 0;
    while pushed < 1000 && futures::FutureExt::now_or_never(fifo.ready()).is_some() {
        pushed += 1;
        fifo.push([updated("a", pushed)], pushed.to_string().as_str().into());
    }
    assert_eq!(pushed, 100);
}

#[test]
fn large_changes_hold_their_writer_back_however_few_they_are() {
    let fifo = DeltaFifo::new(Arc::new(Indexer::default()), Scope::Cluster, 100).most_bytes(1000);
    let is_ready = || futures::FutureExt::now_or_never(fifo.ready()).is_some();
    for version in 1..=3 {
        assert!(is_ready());
        fifo.push_received([updated("a", version)], version.to_string().as_str().into(), 400);
    }
    assert!(!is_ready());
    drop(fifo.try_drain());
    assert!(is_ready());
}

#[test]
fn what_is_forgotten_is_neither_queued_nor_known() {
    let fifo = fifo(&["a"]);
    fifo.push_received([updated("a", 2), updated("b", 3)], "3".into(), 1 << 30);
    fifo.clear();
    assert!(fifo.try_drain().is_none() && fifo.known(&"b".into()).is_none());
    assert_eq!(fifo.known(&"a".into()).unwrap().version(), Some(&"1".into()));
    assert!(futures::FutureExt::now_or_never(fifo.ready()).is_some());
}
