use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::Indexer;

const BYTES: &[u8] = br#"{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"k":"v"}}"#;

/// An object that is not decoded, and how often it was.
fn lazy() -> (Held<ConfigMap>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let decode: DecodeFn<ConfigMap> = Arc::new(move |bytes, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        serde_json::from_slice(bytes)
    });
    (Held::lazy(Identity::new("a".into(), None, Some("1")), BYTES.into(), decode), count)
}

fn is_kept(held: &Held<ConfigMap>) -> bool {
    held.inner.decoded().is_some()
}

#[test]
fn a_handle_decodes_once_and_always_gives_the_same_object() {
    let (held, count) = lazy();
    let first = held.object().clone();
    // Others have read it meanwhile, and it is kept as another one.
    drop(Stored(held.inner.clone()).into_held().into_kept());
    assert!(
        is_kept(&held) && Arc::ptr_eq(&first, held.object()) && Arc::ptr_eq(&first, held.clone().object())
    );
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn what_one_handle_reads_is_not_kept_and_what_is_read_again_is() {
    let (held, count) = lazy();
    let handle = || Stored(held.inner.clone()).into_held();
    assert_eq!(handle().data.as_ref().unwrap()["k"], "v");
    assert!(!is_kept(&held));
    assert_eq!(handle().data.as_ref().unwrap()["k"], "v");
    assert!(is_kept(&held) && Arc::ptr_eq(handle().object(), handle().object()));
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn metadata_are_read_before_and_after_the_object_is_kept() {
    let (held, count) = lazy();
    let app = |held: Held<ConfigMap>| held.meta().labels.as_ref().unwrap()["app"].clone();
    let handle = || Stored(held.inner.clone()).into_held();
    assert_eq!(app(handle()), "web");
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(handle().into_kept());
    assert_eq!(app(handle()), "web");
}

#[test]
fn what_a_lister_reads_is_kept() {
    let (held, count) = lazy();
    let cache = Indexer::<ConfigMap>::default();
    cache.write(|writer| writer.put(held));
    let first = cache.get(&"a".into()).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.get(&"a".into()).unwrap()) && Arc::ptr_eq(&first, &cache.list()[0]));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn what_an_index_has_read_is_not_decoded_again_for_whoever_is_told() {
    let (held, count) = lazy();
    let cache = Indexer::<ConfigMap>::default();
    cache
        .add_index("data", |map: &ConfigMap| map.data.iter().flat_map(|data| data.keys().cloned()).collect())
        .unwrap();
    cache.write(|writer| writer.put_clone(&held));
    assert_eq!(cache.index_keys("data", "k").unwrap(), ["a".into()]);
    assert!(held.clone().data.is_some());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// Objects of a cache that keeps so many of them decoded, and how often one was decoded.
fn recent(most: usize, names: &[&str]) -> (Vec<Held<ConfigMap>>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let decode: DecodeFn<ConfigMap> = Arc::new(move |bytes, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        serde_json::from_slice(bytes)
    });
    let recents = Recents::shared(decode, most.try_into().unwrap());
    let object = |name: &&str| {
        Held::recent(Identity::new(ObjectKey::from(*name), None, Some("1")), BYTES.into(), &recents)
    };
    (names.iter().map(object).collect(), count)
}

#[test]
fn of_many_objects_those_that_were_decoded_last_stay_decoded() {
    let (held, count) = recent(2, &["a", "b", "c"]);
    let read = |at: usize| Stored(held[at].inner.clone()).into_held().into_kept();
    let (a, b) = (read(0), read(1));
    assert!(Arc::ptr_eq(&a, &read(0)) && Arc::ptr_eq(&b, &read(1)));
    assert_eq!(count.load(Ordering::Relaxed), 2, "each was decoded once, whoever reads it");
    let gone = Arc::downgrade(&a);
    drop((a, read(2)));
    assert!(gone.upgrade().is_none(), "the cache keeps two");
    assert!(Arc::ptr_eq(&b, &read(1)));
    assert_eq!(read(0).data.as_ref().unwrap()["k"], "v");
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn a_handle_keeps_what_it_has_read_when_the_cache_does_not() {
    let (held, count) = recent(1, &["a", "b"]);
    let first = held[0].object().clone();
    drop(held[1].object().clone());
    assert!(Arc::ptr_eq(&first, held[0].object()));
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn metadata_of_what_is_decoded_are_not_read_again() {
    let (held, count) = recent(1, &["a"]);
    let handle = || Stored(held[0].inner.clone()).into_held();
    assert_eq!(handle().meta().labels.as_ref().unwrap()["app"], "web");
    assert_eq!(count.load(Ordering::Relaxed), 0, "only the metadata were read");
    let object = handle().into_kept();
    assert!(std::ptr::eq(handle().meta(), object.meta()));
}
