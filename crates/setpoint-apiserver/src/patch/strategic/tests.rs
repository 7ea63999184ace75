use serde_json::json;
use setpoint_kinds::table;

use super::*;

fn patched(ty: &str, original: Value, patch: Value) -> Result<Value, Problem> {
    let ty = table().type_named(ty).expect("the table has the type");
    let (Value::Object(original), Value::Object(mut patch)) = (original, patch) else {
        panic!("objects are patched with objects");
    };
    merge(original, &mut patch, Schema::of_type(ty)).map(Value::Object)
}

/// The right sides come from the apimachinery of Kubernetes, see `xtask/kinds/strategic`.
#[test]
fn patches_merge_as_in_kube_apiserver() {
    let recorded = std::env::var("SETPOINT_STRATEGIC_VECTORS").map(std::fs::read_to_string);
    let vectors = match recorded {
        Ok(vectors) => vectors.expect("the file that is asked for"),
        Err(_) => include_str!("vectors.jsonl").to_owned(),
    };
    let mut wrong = Vec::new();
    for line in vectors.lines() {
        let mut vector: Value = serde_json::from_str(line).unwrap();
        let (original, patch) = (vector["original"].take(), vector["patch"].take());
        let found = match patched(vector["type"].as_str().unwrap(), original, patch) {
            Ok(result) => json!({"result": result}),
            Err(problem) => json!({"error": problem.to_string()}),
        };
        let expected = match vector.get("error") {
            Some(error) => json!({"error": error}),
            None => json!({"result": vector.get("result").cloned().unwrap_or(json!({}))}),
        };
        if found != expected {
            wrong.push(format!("{line}\nexpected {expected}\nfound    {found}\n"));
        }
    }
    let some = wrong.iter().take(3).cloned().collect::<String>();
    assert!(wrong.is_empty(), "{} of {}:\n{some}", wrong.len(), vectors.lines().count());
}

#[track_caller]
fn check(ty: &str, original: Value, patch: Value, expect: Value) {
    assert_eq!(patched(ty, original, patch).unwrap(), expect);
}

#[track_caller]
fn check_error(ty: &str, original: Value, patch: Value, expect: &str) {
    assert_eq!(patched(ty, original, patch).unwrap_err().to_string(), expect);
}

const POD: &str = "core.v1.PodSpec";

#[test]
fn items_are_merged_by_their_key_in_the_order_of_the_patch() {
    check(
        POD,
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "2", "command": ["x"]}]}),
        json!({"containers": [
            {"name": "c"}, {"name": "a", "image": "2", "command": ["x"]}, {"name": "b", "image": "1"}]}),
    );
}

#[test]
fn an_item_goes_when_the_patch_says_so() {
    let original = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let delete = json!({"containers": [{"name": "a", "$patch": "delete"}]});
    check(POD, original.clone(), delete, json!({"containers": [{"name": "b"}]}));
    let replace = json!({"containers": [{"$patch": "replace"}, {"name": "c"}]});
    check(POD, original.clone(), replace, json!({"containers": [{"name": "c"}]}));
    check(POD, original, json!({"$patch": "delete"}), json!({}));
}

#[test]
fn only_the_keys_to_retain_stay() {
    check(
        "apps.v1.DeploymentSpec",
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
        json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
        json!({"strategy": {"type": "Recreate"}}),
    );
}

#[test]
fn scalars_are_added_once_removed_and_put_in_order() {
    let original = json!({"finalizers": ["a", "b", "c"]});
    let ty = "meta.v1.ObjectMeta";
    check(
        ty,
        original.clone(),
        json!({"finalizers": ["d", "b"]}),
        json!({"finalizers": ["d", "a", "b", "c"]}),
    );
    check(
        ty,
        original.clone(),
        json!({"$deleteFromPrimitiveList/finalizers": ["b"]}),
        json!({"finalizers": ["a", "c"]}),
    );
    check(
        ty,
        original,
        json!({"$setElementOrder/finalizers": ["d", "c", "a"], "finalizers": ["d"]}),
        json!({"finalizers": ["d", "b", "c", "a"]}),
    );
}

#[test]
fn a_sidecar_that_only_the_server_knows_keeps_its_place() {
    check(
        POD,
        json!({"containers": [{"name": "old"}, {"name": "c"}, {"name": "sidecar"}]}),
        json!({
            "$setElementOrder/containers": [{"name": "c"}, {"name": "new"}],
            "containers": [{"name": "new"}, {"name": "old", "$patch": "delete"}],
        }),
        json!({"containers": [{"name": "c"}, {"name": "sidecar"}, {"name": "new"}]}),
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(
        POD,
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "b"}]}),
        json!({"tolerations": [{"key": "b"}]}),
    );
}

#[test]
fn patches_that_make_no_sense_are_explained() {
    let original = json!({"containers": [{"name": "a"}]});
    let check = |patch: Value, expect: &str| check_error(POD, original.clone(), patch, expect);
    check(
        json!({"containers": [{"image": "x", "tty": true}]}),
        "map: map[image:x tty:true] does not contain declared merge key: name",
    );
    check(
        json!({"$patch": "frob", "dnsPolicy": "x"}),
        "unknown patch type: frob in map: map[$patch:frob dnsPolicy:x]",
    );
    check(json!({"containers": [{"$patch": "merge"}]}), "merging lists cannot yet be specified in the patch");
    check(json!({"$retainKeys": ["volumes"], "containers": []}), "invalid patch format of retainKeys");
    check(json!({"$setElementOrder": []}), "invalid patch format of setElementOrder list");
    check(json!({"$deleteFromPrimitiveList": []}), "invalid patch format of primitive list");
    check(
        json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
        "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
    );
    check(json!({"$setElementOrder/containers": "a"}), "expected a []interface {}, but received a string");
    check(json!({"containers": ["a"]}), "list element types are not identical: [[map[name:a]] [a]]");
}

#[test]
fn a_patch_is_quoted_as_go_prints_it() {
    let value = json!({"b": [1, 2.5, 1e21, 0.00001, null, true], "a": {"x": "text"}});
    assert_eq!(go::text(&value), "map[a:map[x:text] b:[1 2.5 1e+21 1e-05 <nil> true]]");
}

#[test]
fn what_does_not_fit_a_field_is_explained_as_go_converts() {
    let ty = table().type_named("apps.v1.Deployment").unwrap();
    let check = |object: Value, expect: &str| {
        let decoding = "json: cannot unmarshal number into Go struct field X.y of type v1.Type";
        assert_eq!(conversion_error(ty, &object, decoding), expect);
    };
    check(json!({"spec": {"replicas": "3"}}), "unrecognized type: int32");
    check(json!({"spec": {"strategy": {"type": 1}}}), "cannot convert int64 to v1.Type");
    check(json!({"spec": 5}), "cannot restore struct from: int64");
    check(json!({"metadata": {"labels": []}}), "cannot restore map from slice");
    check(json!({"metadata": {"finalizers": {}}}), "cannot restore slice from map");
}

mod properties {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Containers by name, each with some environment by name.
    type Containers = BTreeMap<String, BTreeMap<String, String>>;

    fn containers() -> impl Strategy<Value = Containers> {
        let env = prop::collection::btree_map("[a-d]", "[x-z]", 0..4);
        prop::collection::btree_map("[a-e]", env, 0..5)
    }

    fn spec(containers: &Containers) -> Value {
        let env = |env: &BTreeMap<String, String>| -> Vec<Value> {
            env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
        };
        let items = containers.iter().map(|(name, content)| json!({"name": name, "env": env(content)}));
        json!({"containers": items.collect::<Vec<_>>()})
    }

    fn read(spec: &Value) -> Containers {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = spec["containers"].as_array().into_iter().flatten();
        items
            .map(|item| {
                let env = item["env"].as_array().into_iter().flatten();
                (text(&item["name"]), env.map(|e| (text(&e["name"]), text(&e["value"]))).collect())
            })
            .collect()
    }

    proptest! {
        /// The model: maps in maps.
        #[test]
        fn lists_with_keys_merge_like_maps(original in containers(), patch in containers()) {
            let merged = read(&patched(POD, spec(&original), spec(&patch)).unwrap());
            let mut expected = original;
            for (name, env) in patch {
                expected.entry(name).or_default().extend(env);
            }
            prop_assert_eq!(merged, expected);
        }

        #[test]
        fn a_patch_applied_twice_changes_nothing_more(original in containers(), patch in containers()) {
            let once = patched(POD, spec(&original), spec(&patch)).unwrap();
            let twice = patched(POD, once.clone(), spec(&patch)).unwrap();
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn the_order_that_is_asked_for_is_the_order(
            original in containers(),
            order in Just(vec!["a", "b", "c", "d", "e"]).prop_shuffle(),
        ) {
            let names: Vec<Value> = order.iter().map(|name| json!({"name": name})).collect();
            prop_assume!(!original.is_empty());
            let merged =
                patched(POD, spec(&original), json!({"$setElementOrder/containers": names})).unwrap();
            let found: Vec<&str> =
                merged["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
            let expected: Vec<&str> = order.into_iter().filter(|name| original.contains_key(*name)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
