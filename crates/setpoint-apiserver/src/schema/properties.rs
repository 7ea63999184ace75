//! Laws that hold for any schema and any value.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Structural, check};
use crate::bounds::Room;

const NAMES: [&str; 6] = ["a", "b", "metadata", "apiVersion", "kind", "spec"];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.:/ -]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(&NAMES[..]), inner, 0..4).prop_map(|fields| {
                fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

/// The keywords of one node without children.
fn keywords() -> impl Strategy<Value = Value> {
    let types = ["object", "array", "string", "integer", "number", "boolean", "odd", ""];
    let extras = [
        json!({}),
        json!({"nullable": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-embedded-resource": true}),
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-list-type": "set"}),
        json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
        json!({"additionalProperties": true}),
        json!({"additionalProperties": false}),
        json!({"format": "date-time"}),
        json!({"format": "int32"}),
        json!({"format": "hostname", "maxLength": 3, "minLength": 1, "pattern": "^[a-c]+$"}),
        json!({"minimum": 0, "maximum": 3, "exclusiveMinimum": true, "multipleOf": 2}),
        json!({"multipleOf": 0}),
        json!({"enum": ["a", 1, null]}),
        json!({"required": ["a", "b"], "minProperties": 1, "maxProperties": 2}),
        json!({"minItems": 1, "maxItems": 2, "uniqueItems": true}),
        json!({"x-kubernetes-validations": [{"rule": "self == oldSelf"}, {"rule": "size(self) < 3"}]}),
        json!({"x-kubernetes-validations": [{"rule": "self.a.all(x, x == self.b)", "messageExpression": "self.a"}]}),
        json!({"x-kubernetes-validations": [{"rule": "((("}]}),
    ];
    (prop::sample::select(types.to_vec()), prop::sample::select(extras.to_vec())).prop_map(
        |(type_, extra)| {
            let mut node = extra;
            if !type_.is_empty() {
                node["type"] = type_.into();
            }
            node
        },
    )
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = (keywords(), prop::option::of(any_value())).prop_map(|(mut node, default)| {
        if let Some(default) = default {
            node["default"] = default;
        }
        node
    });
    leaf.prop_recursive(3, 20, 4, |inner| {
        let properties = prop::collection::btree_map(prop::sample::select(&NAMES[..]), inner.clone(), 0..4);
        let place = prop::sample::select(&["items", "additionalProperties", "not"][..]);
        let list = prop::sample::select(&["allOf", "anyOf", "oneOf"][..]);
        (keywords(), properties, prop::option::of((place, inner.clone())), prop::option::of((list, inner)))
            .prop_map(|(mut node, properties, one, many)| {
                if !properties.is_empty() {
                    node["properties"] = json!(properties);
                }
                if let Some((place, schema)) = one {
                    node[place] = schema;
                }
                if let Some((list, schema)) = many {
                    node[list] = json!([schema, {}]);
                }
                node
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn pruning_twice_is_pruning_once(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse(&schema).unwrap();
        let mut pruned = value;
        schema.prune(&mut pruned);
        let once = pruned.clone();
        prop_assert!(schema.prune(&mut pruned).is_empty());
        prop_assert_eq!(pruned, once);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse(&schema).unwrap();
        let mut defaulted = value;
        schema.default(&mut defaulted, &mut Room::default()).unwrap();
        let once = defaulted.clone();
        schema.default(&mut defaulted, &mut Room::default()).unwrap();
        prop_assert_eq!(defaulted, once);
    }

    #[test]
    fn nothing_about_a_schema_or_a_value_panics(schema in any_schema(), value in any_value(), old in any_value()) {
        check(&schema, "s", true);
        let schema = Structural::parse(&schema).unwrap();
        schema.validate(&value, None, &[]);
        schema.validate(&value, Some(&old), &[]);
        schema.validate_status(&value, &old, &[]);
    }

    #[test]
    fn what_is_valid_on_its_own_is_valid_unchanged(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse(&schema).unwrap();
        if schema.validate(&value, None, &[]).is_empty() {
            prop_assert_eq!(schema.validate(&value, Some(&value), &[]), []);
        }
    }

    #[test]
    fn what_a_schema_cleans_is_valid_as_before(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse(&schema).unwrap();
        let mut clean = value;
        schema.prune(&mut clean);
        schema.default(&mut clean, &mut Room::default()).unwrap();
        let mut again = clean.clone();
        schema.prune(&mut again);
        schema.default(&mut again, &mut Room::default()).unwrap();
        // Defaults may themselves hold what the schema does not know; what is clean stays as it is judged.
        if again == clean {
            prop_assert_eq!(schema.validate(&again, None, &[]), schema.validate(&clean, None, &[]));
        }
    }

    #[test]
    fn patterns_never_panic(pattern in "[a-z\\\\\\[\\]\\-^$.*+?(){}|&~:QEdws0-9,]{0,20}", text in "[a-z\\-\\[\\]]{0,10}") {
        let pattern = super::Pattern::new(&pattern);
        pattern.matches(&text);
    }

    #[test]
    fn expressions_never_panic(source in "[a-c0-9 .()\\[\\]{}'\"+*/%<>=!&|?:,-]{0,40}", value in any_value()) {
        if let Ok(program) = crate::cel::Program::compile(&source) {
            let variables = [("a", Ok(crate::cel::of_json(&value)))];
            let _value = program.evaluate(&variables, &mut crate::cel::Budget::for_object());
        }
    }
}
