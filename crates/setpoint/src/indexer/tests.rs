use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::object::testing::object;

/// Two values an object: its version modulo 3, and "even" for every second version.
fn values(map: &ConfigMap) -> Vec<String> {
    let version: u64 = map.metadata.resource_version.as_deref().unwrap().parse().unwrap();
    let mut values = vec![format!("mod{}", version % 3)];
    if version.is_multiple_of(2) {
        values.push("even".to_owned());
    }
    values
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u64),
    Remove(u8),
    AddIndex,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..6u8, 0..20u64).prop_map(|(key, version)| Step::Insert(key, version)),
        3 => (0..6u8).prop_map(Step::Remove),
        1 => Just(Step::AddIndex),
    ];
    proptest::collection::vec(step, 0..60)
}

fn key(n: u8) -> ObjectKey {
    ObjectKey::namespaced(["a", "b"][usize::from(n % 2)], &format!("o{n}"))
}

proptest! {
    #[test]
    fn an_indexer_answers_as_a_plain_map_does(steps in steps()) {
        let indexer = Indexer::<ConfigMap>::default();
        let mut model = BTreeMap::<ObjectKey, u64>::new();
        let mut indexed = false;
        for step in steps {
            match step {
                Step::Insert(n, version) => {
                    let object = object(&key(n).to_string(), "u", version);
                    indexer.write(|writer| writer.insert(key(n), object));
                    model.insert(key(n), version);
                }
                Step::Remove(n) => {
                    let gone = indexer.write(|writer| writer.remove(&key(n)));
                    prop_assert_eq!(gone.is_some(), model.remove(&key(n)).is_some());
                }
                Step::AddIndex => {
                    prop_assert_eq!(indexer.add_index("values", values).is_err(), indexed);
                    indexed = true;
                }
            }
        }
        prop_assert_eq!(indexer.len(), model.len());
        for namespace in ["a", "b"] {
            let expected: Vec<_> =
                model.keys().filter(|key| key.namespace() == Some(namespace)).cloned().collect();
            prop_assert_eq!(indexer.index_keys(NAMESPACE_INDEX, namespace).unwrap(), expected);
        }
        if indexed {
            let mut expected = BTreeMap::<String, BTreeSet<ObjectKey>>::new();
            for (key, version) in &model {
                for value in values(&object("x", "u", *version)) {
                    expected.entry(value).or_default().insert(key.clone());
                }
            }
            let found: Vec<String> = indexer.index_values("values").unwrap();
            prop_assert_eq!(found, expected.keys().cloned().collect::<Vec<_>>());
            for (value, keys) in expected {
                let found = indexer.index_keys("values", &value).unwrap();
                prop_assert_eq!(found, keys.into_iter().collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn an_unknown_index_is_an_error_that_names_it() {
    let indexer = Indexer::<ConfigMap>::default();
    assert_eq!(indexer.by_index("node", "n1").unwrap_err(), IndexError::Unknown("node".into()));
    assert_eq!(
        indexer.add_index(NAMESPACE_INDEX, values).unwrap_err(),
        IndexError::Exists(NAMESPACE_INDEX.into())
    );
}

#[test]
fn an_index_function_that_panics_leaves_the_cache_whole() {
    let indexer = Indexer::<ConfigMap>::default();
    indexer.add_index("bad", |_: &ConfigMap| panic!("as planned")).unwrap();
    indexer.add_index("good", values).unwrap();
    indexer.write(|writer| writer.insert("a/x".into(), object("a/x", "u", 2)));
    assert_eq!(indexer.by_index("good", "even").unwrap().len(), 1);
    assert!(indexer.index_values("bad").unwrap().is_empty());
}

#[test]
fn a_view_is_one_moment_with_its_watermark() {
    let indexer = Indexer::<ConfigMap>::default();
    indexer.write(|writer| {
        writer.insert("a/x".into(), object("a/x", "u", 2));
        writer.set_watermark(&Scope::Cluster, "7".into());
    });
    let (objects, version) =
        indexer.view(|view| (view.list_namespace("a").len(), view.watermark(&Scope::Cluster).cloned()));
    assert_eq!((objects, version), (1, Some("7".into())));
}
