use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use super::*;

type Maps = Predicate<ConfigMap>;

fn map(version: &str, generation: i64, label: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some("a".into()),
        resource_version: Some(version.into()),
        generation: Some(generation),
        labels: Some([("a".to_owned(), label.to_owned())].into()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn held(map: ConfigMap) -> Held<ConfigMap> {
    Held::new("a".into(), Arc::new(map))
}

fn passes(predicate: &Maps, old: &ConfigMap, new: &ConfigMap) -> bool {
    let (old, new) = (held(old.clone()), held(new.clone()));
    predicate.passes(|| Change::Updated(&old, &new))
}

#[test]
fn each_predicate_passes_what_its_name_says() {
    let old = map("1", 1, "x");
    let cases = [
        (map("1", 1, "x"), [false, false, false]),
        (map("2", 1, "x"), [false, true, false]),
        (map("2", 2, "x"), [true, true, false]),
        (map("2", 1, "y"), [false, true, true]),
    ];
    let predicates = [Maps::generation_changed(), Maps::version_changed(), Maps::labels_changed()];
    for (new, expect) in &cases {
        let passed: Vec<bool> = predicates.iter().map(|predicate| passes(predicate, &old, new)).collect();
        assert_eq!(passed, expect, "{new:?}");
    }
    let old = held(old);
    assert!(predicates.iter().all(|predicate| predicate.passes(|| Change::Deleted(&old))));
}

#[test]
fn a_filter_by_generation_passes_what_finalizers_need() {
    let old = map("1", 1, "x");
    let mut finalized = map("2", 1, "x");
    finalized.metadata.finalizers = Some(vec!["example.com/a".into()]);
    let mut deleted = finalized.clone();
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let predicate = Maps::generation_changed();
    assert!(passes(&predicate, &old, &finalized), "a finalizer came");
    assert!(passes(&predicate, &finalized, &old), "a finalizer went");
    assert!(passes(&predicate, &finalized, &deleted), "it is to go");
    assert!(!passes(&predicate, &old, &map("2", 1, "y")), "a label is no news");
}

#[test]
fn predicates_see_whole_objects() {
    let mut new = map("2", 1, "x");
    let predicate = Maps::updates(|old, new| old.data != new.data);
    assert!(!passes(&predicate, &map("1", 1, "x"), &new));
    new.data = Some([("a".to_owned(), "b".to_owned())].into());
    assert!(passes(&predicate, &map("1", 1, "x"), &new));
}

#[test]
fn predicates_can_be_combined() {
    let (old, new) = (map("1", 1, "x"), map("2", 1, "y"));
    assert!(passes(&Maps::generation_changed().or(Maps::labels_changed()), &old, &new));
    assert!(!passes(&Maps::generation_changed().and(Maps::labels_changed()), &old, &new));
    assert!(passes(&Maps::default().and(Maps::labels_changed()), &old, &new));
    assert!(passes(&Maps::default().or(Maps::generation_changed()), &old, &new), "everything, or less");
}

#[test]
fn the_opposite_of_a_predicate_about_updates_passes_adds_and_deletes_too() {
    let (old, new) = (map("1", 1, "x"), map("2", 1, "y"));
    for (predicate, expect) in [
        (Maps::labels_changed(), false),
        (Maps::generation_changed(), true),
        (Maps::labels_changed().and(Maps::generation_changed()), true),
        (Maps::labels_changed().or(Maps::generation_changed()), false),
    ] {
        let predicate = !predicate;
        assert_eq!(passes(&predicate, &old, &new), expect);
        let old = held(old.clone());
        assert!(predicate.passes(|| Change::Added(&old)) && predicate.passes(|| Change::Deleted(&old)));
    }
}

#[test]
fn the_opposite_of_a_function_is_the_opposite_for_every_change() {
    let one = held(map("1", 1, "x"));
    let adds = Maps::new(|change| matches!(change, Change::Added(_)));
    assert!(adds.passes(|| Change::Added(&one)) && !adds.passes(|| Change::Deleted(&one)));
    let others = !adds;
    assert!(!others.passes(|| Change::Added(&one)) && others.passes(|| Change::Deleted(&one)));
    assert!(!(!Maps::default()).passes(|| Change::Added(&one)));
}
