//! Maps and lists inside maps and lists: what is left of them, and whose it is, when a manager gives up its part. The
//! outcomes are kube-apiserver's.

use serde_json::{Value, json};

use super::{apply, owners};
use crate::support::{Answer, Api};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GEAR: &str = "/apis/example.com/v1/namespaces/default/gears/a";

/// A definition with a field of each sort.
fn definition() -> Value {
    let text = json!({"type": "string"});
    let map = |of: &Value| json!({"type": "object", "additionalProperties": of});
    let properties = json!({
        "struct": {"type": "object", "properties": {"x": text, "map": map(&text)}},
        "maps": map(&map(&text)),
        "structs": map(&json!({"type": "object", "properties": {"x": text, "map": map(&text)}})),
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "untyped": {"x-kubernetes-preserve-unknown-fields": true},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "nullable": {"type": "object", "nullable": true, "additionalProperties": text},
        "defaulted": {"type": "object", "default": {"x": "d"}, "additionalProperties": text},
        "list": {"type": "array", "items": text},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "keyed": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": text, "v": text, "map": map(&text)}}
        }
    });
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties}
    }}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]
        }
    })
}

/// One write of a spec.
enum Step {
    Apply(&'static str, Value),
    /// A merge patch.
    Update(&'static str, Value),
}

use Step::{Apply, Update};

async fn run(api: &Api, step: &Step) -> Answer {
    match step {
        Apply(manager, spec) => {
            let object = json!({
                "apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "a"}, "spec": spec
            });
            apply(api, GEAR, manager, "&force=true", &object).await
        }
        Update(manager, spec) => {
            api.merge(&format!("{GEAR}?fieldManager={manager}"), &json!({"spec": spec})).await
        }
    }
}

/// What the last of the steps leaves: the spec without its default, and the owners of its fields.
async fn outcome(steps: &[Step]) -> Result<(Value, Vec<(String, Value)>), String> {
    let api = Api::new();
    api.post(DEFINITIONS, &definition()).await.ok();
    let (last, before) = steps.split_last().unwrap();
    for step in before {
        run(&api, step).await.ok();
    }
    let answer = run(&api, last).await;
    if answer.code != 200 {
        assert_eq!(answer.code, 422, "{}", answer.body);
        let message = answer.message().to_owned();
        return Err(message.trim_start_matches("Gear.example.com \"a\" is invalid: ").to_owned());
    }
    let mut object = answer.ok();
    if object["spec"]["defaulted"] == json!({"x": "d"}) {
        object["spec"].as_object_mut().unwrap().remove("defaulted");
    }
    let owners = owners(&object).into_iter().map(|(who, fields)| (who, fields["f:spec"].clone())).collect();
    Ok((object["spec"].take(), owners))
}

/// A field that nothing is left of is null, and most fields may not be.
fn is_null(path: &str, of: &str) -> Result<(Value, Vec<(String, Value)>), String> {
    Err(format!("{path}: Invalid value: \"null\": {path} in body must be of type {of}: \"null\""))
}

fn left(spec: Value, owners: &[(&str, Value)]) -> Result<(Value, Vec<(String, Value)>), String> {
    Ok((spec, owners.iter().map(|(who, fields)| ((*who).to_owned(), fields.clone())).collect()))
}

#[tokio::test]
async fn what_a_manager_gives_up_is_removed_without_what_others_have_in_it() {
    let inside = |field: &str, mine: Value, theirs: Value| {
        vec![
            Apply("one", json!({field: mine})),
            Apply("two", json!({field: theirs})),
            Apply("one", json!({})),
        ]
    };
    let cases = [
        (
            inside("struct", json!({"map": {"a": "1"}}), json!({"map": {"b": "2"}})),
            left(
                json!({"struct": {"map": {"b": "2"}}}),
                &[("one Apply", json!({})), ("two Apply", json!({"f:struct": {"f:map": {"f:b": {}}}}))],
            ),
        ),
        (
            inside("maps", json!({"m": {"a": "1"}}), json!({"m": {"b": "2"}})),
            left(
                json!({"maps": {"m": {"b": "2"}}}),
                &[("one Apply", json!({})), ("two Apply", json!({"f:maps": {"f:m": {".": {}, "f:b": {}}}}))],
            ),
        ),
        (
            inside("open", json!({"m": {"a": 1}}), json!({"m": {"b": [2]}})),
            left(
                json!({"open": {"m": {"b": [2]}}}),
                &[("one Apply", json!({})), ("two Apply", json!({"f:open": {"f:m": {".": {}, "f:b": {}}}}))],
            ),
        ),
        (
            inside("atomic", json!({"a": "1"}), json!({"b": "2"})),
            left(
                json!({"atomic": {"b": "2"}}),
                &[("one Apply", json!({})), ("two Apply", json!({"f:atomic": {}}))],
            ),
        ),
        (
            inside("set", json!(["a", "b"]), json!(["b", "c"])),
            left(
                json!({"set": ["b", "c"]}),
                &[("one Apply", json!({})), ("two Apply", json!({"f:set": {"v:\"b\"": {}, "v:\"c\"": {}}}))],
            ),
        ),
        (
            inside("keyed", json!([{"k": "a", "v": "1"}]), json!([{"k": "a", "map": {"b": "2"}}])),
            left(
                json!({"keyed": [{"k": "a", "map": {"b": "2"}}]}),
                &[
                    ("one Apply", json!({})),
                    (
                        "two Apply",
                        json!({"f:keyed": {"k:{\"k\":\"a\"}": {".": {}, "f:k": {}, "f:map": {"f:b": {}}}}}),
                    ),
                ],
            ),
        ),
        (
            // Who updates owns the field, and not the map that it is in. A field with a name stays with what is below it.
            vec![
                Apply("one", json!({"struct": {"map": {"a": "1"}}})),
                Update("two", json!({"struct": {"map": {"b": "2"}}})),
                Apply("one", json!({})),
            ],
            left(
                json!({"struct": {"map": {"b": "2"}}}),
                &[("one Apply", json!({})), ("two Update", json!({"f:struct": {"f:map": {"f:b": {}}}}))],
            ),
        ),
    ];
    for (steps, expected) in cases {
        assert_eq!(outcome(&steps).await, expected);
    }
}

#[tokio::test]
async fn what_others_have_is_never_removed_silently_with_a_map_that_is_given_up() {
    let updated = |field: &str, mine: Value, theirs: Value| {
        vec![
            Apply("one", json!({field: mine})),
            Update("two", json!({field: theirs})),
            Apply("one", json!({})),
        ]
    };
    let cases = [
        (updated("maps", json!({"m": {"a": "1"}}), json!({"m": {"b": "2"}})), "maps", "object"),
        (updated("open", json!({"m": {"a": 1}}), json!({"m": {"b": 2}})), "open", "object"),
        (
            updated("structs", json!({"m": {"x": "1"}}), json!({"m": {"map": {"b": "2"}}})),
            "structs",
            "object",
        ),
        (updated("keyed", json!([{"k": "a"}]), json!([{"k": "a", "map": {"b": "2"}}])), "keyed", "array"),
    ];
    for (steps, field, of) in cases {
        assert_eq!(outcome(&steps).await, is_null(&format!("spec.{field}"), of));
    }
}

#[tokio::test]
async fn what_is_emptied_is_null_and_refused_where_null_may_not_be() {
    let emptied = |full: Value, empty: Value| vec![Apply("one", full), Apply("one", empty)];
    let cases = [
        (emptied(json!({"struct": {"x": "1"}}), json!({"struct": {}})), is_null("spec.struct", "object")),
        (emptied(json!({"maps": {"m": {}}}), json!({"maps": {}})), is_null("spec.maps", "object")),
        (
            emptied(json!({"maps": {"m": {"a": "1"}}}), json!({"maps": {"m": {}}})),
            is_null("spec.maps.m", "object"),
        ),
        (emptied(json!({"open": {"a": 1}}), json!({"open": {}})), is_null("spec.open", "object")),
        (
            emptied(
                json!({"keyed": [{"k": "a", "map": {"b": "1"}}]}),
                json!({"keyed": [{"k": "a", "map": {}}]}),
            ),
            is_null("spec.keyed[0].map", "object"),
        ),
        (
            vec![
                Apply("two", json!({"maps": {"m": {}}})),
                Apply("one", json!({"maps": {"m": {"a": "1"}}})),
                Apply("one", json!({})),
            ],
            is_null("spec.maps.m", "object"),
        ),
        (
            emptied(json!({"open": {"m": {"a": 1}}}), json!({"open": {"m": {}}})),
            left(json!({"open": {"m": null}}), &[("one Apply", json!({"f:open": {"f:m": {}}}))]),
        ),
        (
            emptied(json!({"untyped": {"a": 1}}), json!({"untyped": {}})),
            left(json!({}), &[("one Apply", json!({"f:untyped": {}}))]),
        ),
        (
            emptied(json!({"nullable": {"a": "1"}}), json!({"nullable": {}})),
            left(json!({"nullable": null}), &[("one Apply", json!({"f:nullable": {}}))]),
        ),
        (
            emptied(json!({"atomic": {"a": "1"}}), json!({"atomic": {}})),
            left(json!({"atomic": {}}), &[("one Apply", json!({"f:atomic": {}}))]),
        ),
        (
            emptied(json!({"list": ["a"]}), json!({"list": []})),
            left(json!({"list": []}), &[("one Apply", json!({"f:list": {}}))]),
        ),
    ];
    for (steps, expected) in cases {
        assert_eq!(outcome(&steps).await, expected);
    }
}

#[tokio::test]
async fn a_null_that_is_applied_is_not_dropped() {
    let cases = [
        (json!({"maps": null}), is_null("spec.maps", "object")),
        (json!({"maps": {"m": null}}), is_null("spec.maps.m", "object")),
        (json!({"struct": {"x": null}}), is_null("spec.struct.x", "string")),
        (json!({"keyed": [{"k": "a", "v": null}]}), is_null("spec.keyed[0].v", "string")),
        (
            json!({"open": {"a": null}}),
            left(json!({"open": {"a": null}}), &[("one Apply", json!({"f:open": {"f:a": {}}}))]),
        ),
        (
            json!({"nullable": null}),
            left(json!({"nullable": null}), &[("one Apply", json!({"f:nullable": {}}))]),
        ),
        (json!({"defaulted": null}), left(json!({}), &[("one Apply", json!({"f:defaulted": {}}))])),
    ];
    for (spec, expected) in cases {
        assert_eq!(outcome(&[Apply("one", json!({})), Apply("one", spec)]).await, expected);
    }
}

#[tokio::test]
async fn what_becomes_one_value_belongs_to_all_who_own_a_part_of_it() {
    let api = Api::new();
    api.post(DEFINITIONS, &definition()).await.ok();
    let parts = |name: &str| {
        json!({
            "maps": {"m": {name: "1"}}, "struct": {"map": {name: "1"}}, "set": [name], "keyed": [{"k": name}],
            "open": {"m": {name: 1}}
        })
    };
    run(&api, &Apply("one", parts("a"))).await.ok();
    run(&api, &Apply("two", parts("b"))).await.ok();

    let mut changed = api.get(&format!("{DEFINITIONS}/gears.example.com")).await.ok();
    let schema = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let properties = &mut schema["properties"]["spec"]["properties"];
    for map in ["maps", "struct"] {
        properties[map]["x-kubernetes-map-type"] = json!("atomic");
    }
    for list in ["set", "keyed"] {
        properties[list]["x-kubernetes-list-type"] = json!("atomic");
    }
    properties["keyed"].as_object_mut().unwrap().remove("x-kubernetes-list-map-keys");
    api.put(&format!("{DEFINITIONS}/gears.example.com"), &changed).await.ok();

    let object = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "a"}, "spec": spec});
    apply(&api, GEAR, "one", "", &object(parts("a"))).await.refused(
        409,
        "Apply failed with 4 conflicts: conflicts with \"two\":\n- .spec.keyed\n- .spec.maps\n- .spec.set\n- .spec.struct",
    );
    let whole = |name: &str| {
        json!({
            "f:keyed": {}, "f:maps": {}, "f:set": {}, "f:struct": {}, "f:open": {"f:m": {".": {}, (format!("f:{name}")): {}}}
        })
    };
    let updated = run(&api, &Update("three", json!({"list": ["x"]}))).await.ok();
    let found: Vec<_> = owners(&updated).into_iter().map(|(who, set)| (who, set["f:spec"].clone())).collect();
    let expected =
        [("one Apply", whole("a")), ("two Apply", whole("b")), ("three Update", json!({"f:list": {}}))];
    assert_eq!(found, expected.map(|(who, set)| (who.to_owned(), set)));
    let left = apply(&api, GEAR, "one", "", &object(json!({}))).await.ok();
    assert_eq!(left["spec"]["maps"], json!({"m": {"a": "1", "b": "1"}}));
    assert_eq!(left["spec"]["keyed"], json!([{"k": "a"}, {"k": "b"}]));
    assert_eq!(left["spec"]["open"], json!({"m": {"b": 1}}));
}
