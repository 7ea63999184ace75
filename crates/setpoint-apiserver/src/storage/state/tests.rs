//! Many changes at one revision, as a store that others write to has them.

use bytes::Bytes;

use super::super::view::View;
use super::*;

const MANY: Limits = Limits { events: 100_000, bytes: 64 << 20 };

fn collection() -> Arc<str> {
    "core/events".into()
}

fn write(path: usize, revision: Revision, effect: Effect) -> Write {
    let key = Key { collection: collection(), path: format!("default/{path:04}").into() };
    let record = Arc::new(Record::new(key.path.clone(), revision, Bytes::from(vec![b'x'; 4_000])));
    Write { key, record, effect }
}

fn put(paths: std::ops::Range<usize>, revision: Revision) -> Vec<Write> {
    paths.map(|path| write(path, revision, Effect::Put { expires: None })).collect()
}

fn delete(paths: std::ops::Range<usize>, revision: Revision) -> Vec<Write> {
    paths.map(|path| write(path, revision, Effect::Delete)).collect()
}

/// 900 records, of which one revision deletes 700.
fn expired_at_once(limits: Limits) -> View {
    let view = View::new(State::new(limits));
    view.write(|state| {
        for (revision, start) in (2..).zip((0..900).step_by(100)) {
            state.apply_at(revision, put(start..start + 100, revision));
        }
        state.apply_at(20, delete(0..700, 20));
        state.apply_at(21, put(0..1, 21));
    });
    view
}

#[test]
fn a_watch_gives_out_a_revision_whole() {
    let view = expired_at_once(MANY);
    let mut watch = view.watch(&collection(), 1).unwrap();
    let mut seen = Vec::new();
    loop {
        let batch = watch.ready().unwrap();
        let revisions: BTreeSet<Revision> = batch.events.iter().map(|event| event.revision()).collect();
        for revision in revisions {
            assert!(!seen.contains(&revision), "revision {revision} is torn apart");
            seen.push(revision);
            let count = batch.events.iter().filter(|event| event.revision() == revision).count();
            assert_eq!(count, [100, 700, 1][usize::from(revision >= 20) + usize::from(revision == 21)]);
        }
        assert_eq!(batch.complete_to, *seen.last().unwrap());
        if !batch.more {
            break;
        }
    }
    assert_eq!(seen, (2..=10).chain([20, 21]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_scan_sees_all_changes_of_a_revision_or_none() {
    let view = expired_at_once(MANY);
    for (fresh, count) in [(10, 900), (20, 200), (21, 201)] {
        let query = ListQuery { fresh: Freshness::Exact(fresh), ..ListQuery::all(&collection()) };
        let mut scan = view.scan(&query).await.unwrap();
        let mut found = 0;
        loop {
            let chunk = scan.next(64).await.unwrap();
            found += chunk.records.len();
            if chunk.end {
                break;
            }
        }
        assert_eq!(found, count, "at revision {fresh}");
    }
}

#[test]
fn a_watch_that_has_seen_half_of_what_is_forgotten_is_told() {
    let view = expired_at_once(MANY);
    let mut behind = view.watch(&collection(), 10).unwrap();
    let mut abreast = view.watch(&collection(), 20).unwrap();
    view.write(|state| state.age(20, |_, _| {}));
    assert!(matches!(behind.ready(), Err(ReadError::Compacted { asked: 10, floor: 20 })));
    assert_eq!(abreast.ready().unwrap().events.len(), 1);
}
