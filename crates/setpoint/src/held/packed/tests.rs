use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::held::{DecodeFn, Identity, Pack, Packer};
use crate::{Held, Indexer, ObjectKey};

fn packer() -> Arc<Packer<ConfigMap>> {
    let decode: DecodeFn<ConfigMap> = Arc::new(|bytes, _| serde_json::from_slice(bytes));
    Arc::new(Packer::new(decode))
}

fn text(n: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"settings-{n}","namespace":"default",
        "labels":{{"app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop"}},"resourceVersion":"{n}",
        "uid":"u{n}"}},"data":{{"log_level":"info","address":"10.0.0.{n}","motto":"never change a running system"}}}}"#
    )
}

fn pack(packer: &Arc<Packer<ConfigMap>>, n: usize) -> Held<ConfigMap> {
    let key = ObjectKey::namespaced("default", &format!("settings-{n}"));
    let (uid, version) = (format!("u{n}"), n.to_string());
    let shared: Arc<dyn Pack<ConfigMap>> = packer.clone();
    Held::packed(Identity::new(key, Some(&uid), Some(&version)), text(n).as_bytes(), &shared)
}

fn packed_bytes(held: &Held<ConfigMap>) -> usize {
    let super::super::Form::Packed(packed) = &held.inner.form else { panic!("it is packed") };
    packed.bytes.len()
}

#[test]
fn what_was_packed_is_read_as_it_was_before_and_after_a_dictionary_is_learned() {
    let packer = packer();
    let all: Vec<_> = (0..1000).map(|n| pack(&packer, n)).collect();
    for (n, held) in all.iter().enumerate() {
        let expected: ConfigMap = serde_json::from_str(&text(n)).unwrap();
        assert_eq!(*held.meta(), expected.metadata);
        assert_eq!(**held, expected);
    }
    let (first, last) = (packed_bytes(&all[0]), packed_bytes(&all[999]));
    assert_eq!(first, text(0).len());
    assert!(last * 4 < first, "{last} of {first} bytes");
}

#[test]
fn an_object_that_was_read_lately_is_not_decoded_again() {
    let packer = packer();
    let (one, other) = (pack(&packer, 1), pack(&packer, 1));
    assert!(Arc::ptr_eq(one.object(), other.object()));
    let shared: Arc<dyn Pack<ConfigMap>> = packer.clone();
    let newer =
        Held::packed(Identity::new(one.key().clone(), Some("u1"), Some("2")), text(1).as_bytes(), &shared);
    assert!(!Arc::ptr_eq(one.object(), newer.object()));
}

#[test]
fn a_cache_does_not_keep_what_an_index_or_a_reader_has_decoded() {
    let (packer, indexer) = (packer(), Indexer::<ConfigMap>::default());
    let name = |map: &ConfigMap| map.metadata.name.iter().cloned().collect();
    indexer.add_index("before", name).unwrap();
    indexer.write(|writer| writer.put(pack(&packer, 1)));
    indexer.add_index("after", name).unwrap();
    let object = indexer.by_index("before", "settings-1").unwrap().remove(0);
    indexer.view(|view| view.for_each(|held| assert_eq!(held.meta().name.as_deref(), Some("settings-1"))));
    packer.recent.lock().clear();
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn objects_that_have_nothing_in_common_stay_as_they_are() {
    let shared: Arc<dyn Pack<ConfigMap>> = packer();
    let mut noise = 1_u64;
    for n in 0..500 {
        let mut next = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:x}", noise >> 20)
        };
        let text = format!(r#"{{"metadata":{{"name":"{}"}},"data":{{"{}":"{}"}}}}"#, next(), next(), next());
        let key = ObjectKey::cluster(&n.to_string());
        let held = Held::packed(Identity::new(key, None, None), text.as_bytes(), &shared);
        assert_eq!(**held.object(), serde_json::from_str(&text).unwrap());
    }
}
