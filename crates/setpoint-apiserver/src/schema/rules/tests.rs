use serde_json::{Value, json};

use crate::schema::{Structural, check};

fn errors(schema: &Value, spec: Value, old: Option<Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": schema}});
    assert_eq!(check(&schema, "schema", true), [], "{schema}");
    let schema = Structural::parse(&schema).unwrap();
    let wrap =
        |spec: Value| json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec});
    let old = old.map(wrap);
    schema.validate(&wrap(spec), old.as_ref(), &[]).iter().map(ToString::to_string).collect()
}

/// An object with some fields of each type, and one rule.
fn with_rule(rule: Value) -> Value {
    json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"},
        "ratio": {"type": "number"},
        "namespace": {"type": "string"}, "dash-ed": {"type": "string"},
        "when": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
    }})
}

#[test]
fn rules_hold_or_are_reported_with_their_message() {
    let cases: Vec<(Value, Value, &[&str])> = vec![
        (json!({"rule": "self.min <= self.max"}), json!({"min": 1, "max": 2}), &[]),
        (
            json!({"rule": "self.min <= self.max"}),
            json!({"min": 3, "max": 2}),
            &["spec: Invalid value: failed rule: self.min <= self.max"],
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "min is above max"}),
            json!({"min": 3, "max": 2}),
            &["spec: Invalid value: min is above max"],
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "m",
                "messageExpression": "'min %d is above max %d'.format([self.min, self.max])"}),
            json!({"min": 3, "max": 2}),
            &["spec: Invalid value: min 3 is above max 2"],
        ),
        (
            json!({"rule": "self.min <= self.max", "fieldPath": ".min", "reason": "FieldValueForbidden"}),
            json!({"min": 3, "max": 2}),
            &["spec.min: Forbidden: failed rule: self.min <= self.max"],
        ),
        (
            json!({"rule": "self.min > 0"}),
            json!({}),
            &[r#"spec: Invalid value: "object": no such key: min evaluating rule: self.min > 0"#],
        ),
        (
            json!({"rule": "has(self.__namespace__) && self.dash__dash__ed == 'x'"}),
            json!({"namespace": "n", "dash-ed": "x"}),
            &[],
        ),
        (
            json!({"rule": "self.when > timestamp('2020-01-01T00:00:00Z') && self.wait < duration('2h')"}),
            json!({"when": "2024-01-01T00:00:00Z", "wait": "90m"}),
            &[],
        ),
        (
            json!({"rule": "type(self.port) == int ? self.port < 10 : self.port.endsWith('%')"}),
            json!({"port": "5%"}),
            &[],
        ),
        (
            json!({"rule": "type(self.port) == int ? self.port < 10 : self.port.endsWith('%')"}),
            json!({"port": 5}),
            &[],
        ),
        (
            json!({"rule": "self.list.all(x, x.matches('^[a-z]+$')) && self.list.exists_one(x, x == 'a')"}),
            json!({"list": ["a", "b"]}),
            &[],
        ),
        (
            json!({"rule": "self.labels.all(k, k.startsWith('app') && self.labels[k] != '')"}),
            json!({"labels": {"app": "x", "app2": "y"}}),
            &[],
        ),
        (
            json!({"rule": "self.items.map(i, i.v).sum() == 6 && self.items.filter(i, i.v > 1).size() == 2"}),
            json!({"items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c", "v": 3}]}),
            &[],
        ),
        (
            json!({"rule": "self.items.sortBy(i, -i.v)[0].k == 'c'"}),
            json!({"items": [{"k": "a", "v": 1}, {"k": "c", "v": 3}]}),
            &[],
        ),
        (json!({"rule": "self.list.all(i, v, v == string(i))"}), json!({"list": ["0", "1"]}), &[]),
        (
            json!({"rule": "self.labels.transformMap(k, v, k == 'a', v + '!') == {'a': 'x!'}"}),
            json!({"labels": {"a": "x", "b": "y"}}),
            &[],
        ),
        (
            json!({"rule": "quantity(self.name).isLessThan(quantity('2Gi')) && isQuantity(self.name)"}),
            json!({"name": "1500Mi"}),
            &[],
        ),
        (
            json!({"rule": "ip(self.name).family() == 4 && cidr('10.0.0.0/8').containsIP(self.name)"}),
            json!({"name": "10.1.2.3"}),
            &[],
        ),
        (json!({"rule": "url(self.name).getHost() == 'a.b:80'"}), json!({"name": "https://a.b:80/c"}), &[]),
        (json!({"rule": "semver(self.name).major() == 1"}), json!({"name": "1.2.3"}), &[]),
        (json!({"rule": "sets.contains(self.list, ['a'])"}), json!({"list": ["a", "b"]}), &[]),
        (json!({"rule": "self.?name.orValue('none') == 'none' && !has(self.name)"}), json!({}), &[]),
        (
            json!({"rule": "self.name.split('.').join('-').upperAscii() == 'A-B'"}),
            json!({"name": "a.b"}),
            &[],
        ),
        (json!({"rule": "self.ratio > 1 && self.ratio == 2.0"}), json!({"ratio": 2}), &[]),
        (json!({"rule": "self.min / 0 == 1 || true"}), json!({"min": 1}), &[]),
        (
            json!({"rule": "self.min / 0 == 1"}),
            json!({"min": 1}),
            &[r#"spec: Invalid value: "object": division by zero evaluating rule: self.min / 0 == 1"#],
        ),
    ];
    for (rule, spec, expected) in cases {
        assert_eq!(errors(&with_rule(rule.clone()), spec.clone(), None), expected, "{rule} {spec}");
    }
}

#[test]
fn scalars_are_shown_with_the_refusal() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "must be even"}]},
    }});
    assert_eq!(errors(&schema, json!({"n": 3}), None), ["spec.n: Invalid value: 3: must be even"]);
}

#[test]
fn rules_at_the_root_see_the_name_and_no_other_metadata() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name == 'n' && self.kind == 'K'"}, {"rule": "!has(self.metadata.labels)"},
    ]});
    let schema = Structural::parse(&schema).unwrap();
    let object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}});
    assert_eq!(schema.validate(&object, None, &[]), []);
}

#[test]
fn transition_rules_compare_with_the_old_value() {
    let immutable = json!({"type": "object", "properties": {
        "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "must not shrink"}]}},
    }});
    assert_eq!(
        errors(&immutable, json!({"name": "a"}), None),
        [""; 0],
        "there is no old value to compare with"
    );
    assert_eq!(errors(&immutable, json!({"name": "a"}), Some(json!({}))), [""; 0]);
    assert_eq!(
        errors(&immutable, json!({"name": "b"}), Some(json!({"name": "a"}))),
        [r#"spec.name: Invalid value: "b": is immutable"#]
    );
    let old = json!({"items": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]});
    assert_eq!(
        errors(
            &immutable,
            json!({"items": [{"k": "b", "v": 2}, {"k": "a", "v": 4}, {"k": "c", "v": 0}]}),
            Some(old)
        ),
        ["spec.items[1]: Invalid value: must not shrink"]
    );
}

#[test]
fn an_optional_old_value_lets_a_rule_run_on_create() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "x-kubernetes-validations": [
        {"rule": "oldSelf.hasValue() ? self == oldSelf.value() : self != 'bad'", "optionalOldSelf": true},
    ]}}});
    assert_eq!(errors(&schema, json!({"name": "good"}), None), [""; 0]);
    assert_eq!(errors(&schema, json!({"name": "bad"}), None).len(), 1);
    assert_eq!(errors(&schema, json!({"name": "bad"}), Some(json!({"name": "bad"}))), [""; 0]);
    assert_eq!(errors(&schema, json!({"name": "x"}), Some(json!({"name": "y"}))).len(), 1);
}

#[test]
fn unchanged_values_that_break_a_rule_are_let_through() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 3"}]}, "b": {"type": "string"},
    }});
    let old = json!({"a": "long"});
    assert_eq!(errors(&schema, json!({"a": "long", "b": "new"}), Some(old.clone())), [""; 0]);
    assert_eq!(errors(&schema, json!({"a": "longer"}), Some(old)).len(), 1);
}

#[test]
fn rules_do_not_run_on_objects_of_the_wrong_shape() {
    let found = errors(&with_rule(json!({"rule": "self.min > 0"})), json!({"min": "x"}), None);
    assert_eq!(
        found,
        [
            r#"spec.min: Invalid value: "string": spec.min in body must be of type integer: "string""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
             the existing errors to complete validation",
        ]
    );
}

#[test]
fn rules_that_cannot_work_are_refused_with_the_schema() {
    let cases = [
        ("self.minn > 0", "undefined field 'minn'\n | self.minn > 0\n | ....^"),
        (
            "self.name > 0",
            "found no matching overload for '_>_' applied to '(string, int)'\n | self.name > 0\n | ..........^",
        ),
        ("nothing == 1", "undeclared reference to 'nothing' (in container '')"),
        (
            "self.name.shout() == ''",
            "undeclared reference to 'shout' (in container '')\n | self.name.shout() == ''\n | ...............^",
        ),
        ("self.items.all(i, i.w > 0)", "undefined field 'w'"),
        ("self.min +", "Syntax error"),
    ];
    for (rule, expected) in cases {
        let schema = json!({"type": "object", "properties": {"spec": with_rule(json!({"rule": rule}))}});
        let found = check(&schema, "s", true);
        assert_eq!(found.len(), 1, "{rule}: {found:?}");
        let text = found[0].to_string();
        let start = format!(
            "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {{\"Rule\":{},",
            Value::from(rule).to_string().replace('>', "\\u003e")
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("compilation failed: ERROR: <input>:1:"), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let not_bool =
        json!({"type": "object", "properties": {"spec": with_rule(json!({"rule": "self.min + 1"}))}});
    assert!(check(&not_bool, "s", true)[0].to_string().ends_with("cel expression must evaluate to a bool"));
}
