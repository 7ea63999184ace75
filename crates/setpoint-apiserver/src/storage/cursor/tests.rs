//! Scans against a naive model, and what they cost.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::FutureExt;
use proptest::prelude::*;

use super::super::{
    Action, Change, Expect, Field, Freshness, Hint, Key, Limits, ListQuery, Memory, ReadError, Revision,
    Scan, Storage,
};

const MANY: Limits = Limits { events: 1_000_000, bytes: 1 << 30 };

fn key(path: &str) -> Key {
    Key { collection: "core/pods".into(), path: path.into() }
}

fn all() -> ListQuery {
    ListQuery::all(&"core/pods".into())
}

/// The memory engine keeps nobody waiting.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}

fn put(store: &Memory, path: &str, value: &str) -> Revision {
    let record = now(store.get(&key(path), Freshness::Latest)).unwrap().record;
    let expect = record.map_or(Expect::Absent, |record| Expect::Revision(record.revision));
    let action = Action::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None };
    now(store.commit(Change { key: key(path), expect, action })).unwrap().revision
}

fn remove(store: &Memory, path: &str) {
    if let Some(record) = now(store.get(&key(path), Freshness::Latest)).unwrap().record {
        let action = Action::Delete;
        let expect = Expect::Revision(record.revision);
        now(store.commit(Change { key: key(path), expect, action })).unwrap();
    }
}

fn filled(count: usize) -> Memory {
    let store = Memory::new(MANY);
    for n in 0..count {
        put(&store, &format!("default/p{n:06}"), "x");
    }
    store
}

/// Reads on to the end, `size` records at a time; how many there were.
fn drain(scan: &mut dyn Scan, size: usize) -> usize {
    let mut count = 0;
    loop {
        let chunk = now(scan.next(size)).unwrap();
        count += chunk.records.len();
        if chunk.end {
            return count;
        }
    }
}

#[test]
fn a_scan_visits_each_record_and_each_change_once() {
    for count in [2_000, 20_000] {
        let store = filled(count);
        let mut scan = now(store.scan(&all())).unwrap();
        now(scan.next(1)).unwrap();
        for n in 0..500 {
            put(&store, &format!("default/p{n:06}"), "changed");
            put(&store, &format!("default/late-{n}"), "new");
        }
        assert_eq!(drain(&mut *scan, 1), count - 1);
        assert!(scan.visited() <= count + 2 * 1_000, "{} of {count}", scan.visited());
    }
}

#[test]
fn a_page_costs_its_own_length_and_what_has_changed_since() {
    let store = filled(20_000);
    let at = store.revision();
    for n in 0..300 {
        put(&store, &format!("default/late-{n}"), "new");
    }
    let query = ListQuery {
        fresh: Freshness::Exact(at),
        after: Some("default/p010000".into()),
        before: Some(10_001),
        ..all().under("default/")
    };
    let mut scan = now(store.scan(&query)).unwrap();
    let chunk = now(scan.next(500)).unwrap();
    assert_eq!((chunk.records.len(), chunk.remaining), (500, Some(20_000 - 10_501)));
    assert!(scan.visited() <= 500 + 300, "{}", scan.visited());
}

#[test]
fn more_changes_than_fit_into_one_go_are_taken_in_bit_by_bit() {
    let store = filled(10);
    let at = store.revision();
    for n in 0..10_000 {
        put(&store, &format!("default/late-{n}"), "new");
    }
    let mut scan = now(store.scan(&ListQuery { fresh: Freshness::Exact(at), ..all() })).unwrap();
    let chunk = now(scan.next(3)).unwrap();
    assert!(chunk.records.is_empty() && !chunk.end, "others get the lock in between");
    assert_eq!(drain(&mut *scan, 3), 10);
}

#[test]
fn a_name_is_found_without_a_walk() {
    let store = filled(2_000);
    put(&store, "other/p000007", "x");
    let query = ListQuery { hint: Some(Hint::Name("p000007".into())), ..all() };
    let mut scan = now(store.scan(&query)).unwrap();
    assert_eq!(drain(&mut *scan, 100), 2);
    assert!(scan.visited() <= 2, "{}", scan.visited());
}

#[test]
fn a_watch_reads_large_values_bit_by_bit() {
    let store = Memory::new(MANY);
    let start = store.revision();
    let large = "x".repeat(400 << 10);
    for n in 0..7 {
        put(&store, &format!("default/p{n}"), &large);
    }
    let mut watch = store.watch(&"core/pods".into(), start).unwrap();
    let mut sizes = Vec::new();
    loop {
        let batch = watch.ready().unwrap();
        sizes.push(batch.events.len());
        if !batch.more {
            break;
        }
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(watch.position(), store.revision());
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    /// Forgets history up to so many revisions ago.
    Compact(u64),
    /// Begins a scan so many revisions ago, under a prefix, perhaps of one name.
    Begin {
        ago: u64,
        prefix: usize,
        name: Option<usize>,
    },
    /// Reads on in one of the scans.
    Next {
        scan: usize,
        limit: usize,
    },
}

const NAMESPACES: [&str; 3] = ["a/", "a-b/", "b/"];
const NAMES: [&str; 4] = ["x", "xy", "y", "z"];
const PREFIXES: [&str; 4] = ["", "a/", "a-b/", "a"];

fn path(index: usize) -> String {
    format!("{}{}", NAMESPACES[index % 3], NAMES[index / 3 % 4])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12usize).prop_map(Step::Put),
        3 => (0..12usize).prop_map(Step::Remove),
        1 => (0..20u64).prop_map(Step::Compact),
        3 => (0..15u64, 0..PREFIXES.len(), prop::option::weighted(0.3, 0..NAMES.len()))
            .prop_map(|(ago, prefix, name)| Step::Begin { ago, prefix, name }),
        6 => (0..4usize, 1..4usize).prop_map(|(scan, limit)| Step::Next { scan, limit }),
    ]
}

/// A scan, what is still to come of it, and whether that is exact: a hint only leaves out what nobody looks for.
struct Running {
    scan: Box<dyn Scan>,
    left: Vec<(String, String)>,
    name: Option<&'static str>,
}

proptest! {
    #[test]
    fn any_scan_is_the_naive_list_at_its_revision(steps in prop::collection::vec(step(), 0..80)) {
        let store = Memory::new(MANY);
        let mut states: BTreeMap<Revision, BTreeMap<String, String>> = BTreeMap::new();
        let mut state = BTreeMap::new();
        states.insert(store.revision(), state.clone());
        let mut scans: Vec<Running> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(at) => {
                    put(&store, &path(at), &number.to_string());
                    state.insert(path(at), number.to_string());
                }
                Step::Remove(at) => {
                    remove(&store, &path(at));
                    state.remove(&path(at));
                }
                Step::Compact(ago) => store.compact(store.revision().saturating_sub(ago)),
                Step::Begin { ago, prefix, name } => {
                    let revision = store.revision().saturating_sub(ago).max(1);
                    let fresh = if ago == 0 { Freshness::Latest } else { Freshness::Exact(revision) };
                    let name = name.map(|name| NAMES[name]);
                    let hint = name.map(|name| Hint::Name(name.into()));
                    let query = ListQuery { fresh, hint, ..all().under(PREFIXES[prefix]) };
                    match now(store.scan(&query)) {
                        Ok(scan) => {
                            let then = states.range(..=revision).next_back().unwrap().1;
                            let wanted = |path: &str| {
                                path.starts_with(PREFIXES[prefix])
                                    && name.is_none_or(|name| path.ends_with(&format!("/{name}")))
                            };
                            let left = then.iter().filter(|(path, _)| wanted(path));
                            let left = left.map(|(path, value)| (path.clone(), value.clone())).collect();
                            scans.push(Running { scan, left, name });
                        }
                        Err(error) => prop_assert!(matches!(error, ReadError::Compacted { .. }), "{error}"),
                    }
                }
                Step::Next { scan, limit } if !scans.is_empty() => {
                    let at = scan % scans.len();
                    let Running { scan, left, name } = &mut scans[at];
                    let chunk = match now(scan.next(limit)) {
                        Ok(chunk) => chunk,
                        Err(ReadError::Compacted { .. }) => {
                            scans.remove(at);
                            continue;
                        }
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    };
                    let of_name = |path: &str| name.is_none_or(|name| path.ends_with(&format!("/{name}")));
                    let given = chunk.records.iter().filter(|record| of_name(&record.path));
                    let given: Vec<_> = given
                        .map(|r| (r.path.to_string(), String::from_utf8_lossy(&r.value).into_owned()))
                        .collect();
                    let expect: Vec<_> = left.drain(..given.len().min(left.len())).collect();
                    prop_assert_eq!(given, expect);
                    prop_assert!(chunk.records.len() <= limit);
                    if name.is_none() {
                        prop_assert_eq!(chunk.end, left.is_empty());
                        if let Some(remaining) = chunk.remaining {
                            prop_assert_eq!(remaining, left.len());
                        }
                    } else if chunk.end {
                        prop_assert!(left.is_empty());
                    }
                }
                Step::Next { .. } => {}
            }
            states.insert(store.revision(), state.clone());
        }
    }
}

/// Where a pod runs, which is what it can be found by.
fn node(value: &str) -> Hint {
    let labels = setpoint_kinds::table().resource("", "v1", "pods").unwrap().behavior().field_labels;
    let at = labels.iter().position(|label| label.indexed).expect("pods are found by their nodes");
    Hint::Field(Field { labels, at }, value.into())
}

fn pod_on(node: &str) -> String {
    format!(r#"{{"metadata":{{}},"spec":{{"nodeName":"{node}"}}}}"#)
}

#[test]
fn a_field_is_found_without_a_walk_once_its_index_is_made() {
    let store = Memory::new(MANY);
    for n in 0..2_000 {
        put(&store, &format!("default/p{n:04}"), &pod_on(&format!("node-{}", n % 100)));
    }
    let query = |value: &str| ListQuery { hint: Some(node(value)), ..all() };
    let mut first = now(store.scan(&query("node-7"))).unwrap();
    assert_eq!(drain(&mut *first, 256), 20);
    assert!(first.visited() <= 2_000 + 20, "{}", first.visited());
    put(&store, "default/p0007", &pod_on("node-8"));
    put(&store, "default/late", &pod_on("node-7"));
    remove(&store, "default/p0107");
    for (value, count) in [("node-7", 19), ("node-8", 21), ("", 0)] {
        let mut scan = now(store.scan(&query(value))).unwrap();
        assert_eq!(drain(&mut *scan, 256), count, "{value}");
        assert!(scan.visited() <= count + 3, "{value}: {}", scan.visited());
    }
}

proptest! {
    /// Some limits forget history between two reads, so that the index has to be made again.
    #[test]
    fn an_index_finds_what_a_walk_finds(
        steps in prop::collection::vec((0..100usize, 0..4usize, 0..8u64), 0..300),
        events in prop_oneof![Just(1_000_000usize), 1..60usize],
    ) {
        let store = Memory::new(Limits { events, ..MANY });
        for (index, value, what) in steps {
            let path = format!("{}p{index}", NAMESPACES[index % 3]);
            match what {
                0 => remove(&store, &path),
                1..=5 => drop(put(&store, &path, &pod_on(&format!("n{value}")))),
                ago => {
                    let revision = store.revision().saturating_sub((ago - 6) * 10).max(1);
                    let value = format!("n{value}");
                    let query = |hint| ListQuery { fresh: Freshness::Exact(revision), hint, ..all() };
                    let (walk, found) = (now(store.list(&query(None))), now(store.list(&query(Some(node(&value))))));
                    let (Ok(walk), Ok(found)) = (walk, found) else { continue };
                    let text = pod_on(&value);
                    let paths = |page: &super::super::Page| -> Vec<String> {
                        let records = page.records.iter().filter(|record| record.value == text.as_bytes());
                        records.map(|record| record.path.to_string()).collect()
                    };
                    prop_assert_eq!(paths(&found), paths(&walk));
                }
            }
        }
    }
}
