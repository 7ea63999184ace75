//! `Context::for_test`: what a reconcile sees in a unit test.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Resource;
use kube::core::DynamicObject;
use serde_json::json;
use setpoint::controller::TestContext;
use setpoint::{Cause, Context, Event, Reason, Reasons, ScopedResource, Watch};
use setpoint_sim::World;

use crate::support::map;

fn names<T: setpoint::Watchable>(test: &TestContext, watch: &Watch<T>) -> Vec<String> {
    let lister = test.context().lister_of(watch).unwrap();
    let mut names: Vec<String> = lister.keys().iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[test]
fn objects_of_one_kind_that_are_given_at_several_times_are_in_one_cache() {
    World::run(1, async |world| {
        let test = Context::for_test(world.direct()).stored([map("a")]).await.unwrap();
        let test = test.stored([map("b")]).await.unwrap().cached::<ConfigMap>(.., [map("c")]);
        assert_eq!(test.context().lister::<ConfigMap>().unwrap().len(), 3);
        assert_eq!(names(&test, &Watch::<ConfigMap>::new()), ["default/a", "default/b", "default/c"]);
    });
}

/// The labels of a canary, a name, and what else a Pod must have.
fn canary(name: &str) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "labels": {"track": "canary"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
        "status": {"phase": "Running"},
    })
}

#[test]
fn a_cache_has_of_what_is_stored_what_its_watch_takes() {
    World::run(1, async |world| {
        let by_phase = |pod: &Pod| pod.status.iter().filter_map(|status| status.phase.clone()).collect();
        let canaries = Watch::<Pod>::new().labels("track=canary").index("phase", by_phase);
        let mut stable = canary("stable");
        stable["metadata"]["labels"]["track"] = "stable".into();
        let test = Context::for_test(world.direct());
        let test = test.stored_in(&canaries, [canary("a"), stable]).await.unwrap();
        assert_eq!(names(&test, &canaries), ["default/a"]);
        let running = test.context().lister::<Pod>().unwrap().by_index("phase", "Running").unwrap();
        assert_eq!(running.len(), 1, "its status is stored and cached");
        let elsewhere = Watch::<Pod>::new().namespaces(["kube-system"]);
        let test = test.stored_in(&elsewhere, [canary("b")]).await.unwrap();
        assert_eq!(names(&test, &elsewhere), [""; 0]);
        assert!(test.context().lister::<Pod>().is_err(), "there are two caches now");
        assert_eq!(test.requests(), []);
    });
}

#[test]
fn what_is_stored_may_be_cached_as_metadata_or_of_a_kind_without_a_type() {
    World::run(1, async |world| {
        let metadata = Watch::<Pod>::metadata_only();
        let nodes = Watch::dynamic(&ScopedResource::of::<Node>());
        let node = DynamicObject::new("n", &ScopedResource::of::<Node>().api);
        let test = Context::for_test(world.direct()).stored_in(&metadata, [canary("a")]).await.unwrap();
        let test = test
            .stored_in(&nodes, [node, serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap()]);
        let test = test.await.unwrap();
        assert_eq!(names(&test, &metadata), ["default/a"]);
        assert_eq!(names(&test, &nodes), ["m", "n"]);
        let node = test.context().lister_of(&nodes).unwrap().get(&"n".into()).unwrap();
        assert!(node.meta().uid.is_some() && node.types.is_some(), "{node:?}");
    });
}

#[test]
#[should_panic(expected = "configmaps: ")]
fn a_name_that_stands_for_two_indices_is_not_taken_for_one() {
    World::run(1, async |world| {
        let by = |value: &str| {
            let value = value.to_owned();
            Watch::<ConfigMap>::new().index("value", move |_| vec![value.clone()])
        };
        let _test = Context::for_test(world.direct()).cached(by("a"), []).cached(by("b"), []);
    });
}

#[test]
fn a_test_says_why_and_sees_the_events() {
    World::run(1, async |world| {
        let test = Context::for_test(world.direct()).reasons(Reason::new(Cause::Retry));
        let cx = test.context();
        assert_eq!(cx.reasons().to_string(), "retry");
        assert_eq!(test.events(), [""; 0]);
        for note in ["one", "two"] {
            cx.recorder().event(&map("a"), Event::warning("Failed", note));
        }
        assert_eq!(test.events(), ["Warning Failed ConfigMap/a one", "Warning Failed ConfigMap/a two"]);
        let reasons: Reasons = [Cause::Added, Cause::Start].map(Reason::new).into_iter().collect();
        assert!(test.reasons(reasons).context().reasons().contains(Cause::Start));
    });
}
