//! What is wrong with a custom resource, in kube-apiserver's words and order.

use serde_json::Value;

use super::correlate::Correlated;
use super::{Structural, embedded, list_type, value};
use crate::field_error::{FieldError, Problem};

/// What is said last of an object whose rules could not be looked at.
pub(crate) const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";

impl Structural {
    /// What is wrong with `object`; on an update, what was wrong with `old` already and did not change is let through.
    /// `found` is what is wrong with its metadata.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        found: &[FieldError],
    ) -> Vec<FieldError> {
        let correlated = old.map(|old| Correlated { old, new: object, schema: self });
        let mut errors = value::validate(self, object, "", correlated);
        embedded::validate(self, object, "", &mut errors);
        errors.extend(self.validate_lists(object, old));
        self.finish(errors, object, old, found)
    }

    /// The same for a write of the status subresource: of the values, only those of the status are looked at.
    pub(crate) fn validate_status(
        &self,
        object: &Value,
        old: &Value,
        found: &[FieldError],
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let (Some(schema), Some(status)) = (self.properties.get("status"), object.get("status")) {
            let correlated = Correlated { old, new: object, schema: self }.key("status");
            errors = value::validate(schema, status, "status", correlated);
        }
        errors.extend(self.validate_lists(object, Some(old)));
        self.finish(errors, object, Some(old), found)
    }

    /// Rules run last, and only on objects of the right shape.
    fn finish(
        &self,
        mut errors: Vec<FieldError>,
        object: &Value,
        old: Option<&Value>,
        found: &[FieldError],
    ) -> Vec<FieldError> {
        if self.has_rules {
            match blocking_error(found).or_else(|| blocking_error(&errors)) {
                Some(blocked) => errors.push(blocked),
                None => errors.extend(self.validate_object_rules(object, old)),
            }
        }
        errors
    }

    /// Lists with duplicates are let through if there were some before.
    fn validate_lists(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(old) = old {
            list_type::validate(self, old, "", &mut errors);
            if !errors.is_empty() {
                return Vec::new();
            }
        }
        list_type::validate(self, object, "", &mut errors);
        errors
    }
}

/// CEL rules see only objects of the right shape; otherwise this says that they were not run.
fn blocking_error(errors: &[FieldError]) -> Option<FieldError> {
    let blocks = |error: &FieldError| {
        matches!(
            error.problem,
            Problem::NotSupported(..)
                | Problem::Required(_)
                | Problem::TooLong(_)
                | Problem::TooMany(..)
                | Problem::TypeInvalid(..)
        )
    };
    errors.iter().any(blocks).then(|| FieldError::invalid("<nil>", Value::Null, NOT_CHECKED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: &Value, object: Value, old: Option<Value>) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": schema}});
        let schema = Structural::parse(&schema).unwrap();
        let wrap = |spec: Value| json!({"apiVersion": "g/v1", "kind": "K", "spec": spec});
        let old = old.map(wrap);
        schema.validate(&wrap(object), old.as_ref(), &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_refused_in_kube_apiservers_words() {
        let cases: Vec<(Value, Value, &[&str])> = vec![
            (
                json!({"type": "integer"}),
                json!("x"),
                &[r#"spec: Invalid value: "string": spec in body must be of type integer: "string""#],
            ),
            (json!({"type": "integer"}), json!(3.0), &[]),
            (json!({"type": "number"}), json!(3), &[]),
            (
                json!({"type": "integer"}),
                json!(1.5),
                &[
                    r#"spec: Invalid value: "number": spec in body must be of type integer: "number""#,
                    r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec"#,
                ],
            ),
            (
                json!({"type": "integer", "format": "int32"}),
                json!(3_000_000_000i64),
                &[
                    r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec"#,
                ],
            ),
            (
                json!({"type": "string"}),
                Value::Null,
                &[r#"spec: Invalid value: "null": spec in body must be of type string: "null""#],
            ),
            (json!({"type": "string", "nullable": true}), Value::Null, &[]),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                &[
                    r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#,
                ],
            ),
            (json!({"x-kubernetes-int-or-string": true}), json!("25%"), &[]),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                json!("c"),
                &[r#"spec: Unsupported value: "c": supported values: "a", "b""#],
            ),
            (
                json!({"type": "integer", "enum": [1, 2]}),
                json!(3),
                &[r#"spec: Unsupported value: 3: supported values: "1", "2""#],
            ),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 10}),
                json!(0),
                &["spec: Invalid value: 0: spec in body should be greater than or equal to 1"],
            ),
            (
                json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
                json!(10),
                &["spec: Invalid value: 10: spec in body should be less than 10"],
            ),
            (
                json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
                json!(0.5),
                &["spec: Invalid value: 0.5: spec in body should be greater than 0.5"],
            ),
            (
                json!({"type": "integer", "multipleOf": 5}),
                json!(7),
                &["spec: Invalid value: 7: spec in body should be a multiple of 5"],
            ),
            (
                json!({"type": "string", "maxLength": 2}),
                json!("abc"),
                &["spec: Too long: may not be more than 2 bytes"],
            ),
            (
                json!({"type": "string", "minLength": 2}),
                json!("é"),
                &[r#"spec: Invalid value: "é": spec in body should be at least 2 chars long"#],
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+$"}),
                json!("A"),
                &[r#"spec: Invalid value: "A": spec in body should match '^[a-z]+$'"#],
            ),
            (
                json!({"type": "string", "format": "ipv4"}),
                json!("x"),
                &[r#"spec: Invalid value: "x": spec in body must be of type ipv4: "x""#],
            ),
            (json!({"type": "string", "format": "whatever"}), json!("x"), &[]),
            (
                json!({"type": "object", "required": ["a"], "properties": {"b": {"type": "boolean"}}}),
                json!({"b": "x"}),
                &[
                    r#"spec.b: Invalid value: "string": spec.b in body must be of type boolean: "string""#,
                    "spec.a: Required value",
                ],
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 1}),
                json!(["a", 1]),
                &[
                    r#"spec[1]: Invalid value: "integer": spec[1] in body must be of type string: "integer""#,
                    "spec: Invalid value: 2: spec in body should have at least 3 items",
                    "spec: Too many: 2: must have at most 1 item",
                ],
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1, "minProperties": 3}),
                json!({"a": 1, "b": "x"}),
                &[
                    "spec: Invalid value: 2: spec in body should have at least 3 properties",
                    "spec: Too many: 2: must have at most 1 item",
                    r#"spec.a: Invalid value: "integer": spec.a in body must be of type string: "integer""#,
                ],
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                json!({"a": 1}),
                &[r#"spec: Invalid value: "a": spec.a in body is a forbidden property"#],
            ),
        ];
        for (schema, object, expected) in cases {
            assert_eq!(errors(&schema, object.clone(), None), expected, "{schema} {object}");
        }
    }

    #[test]
    fn junctors_show_the_branch_that_came_furthest() {
        let cases: Vec<(Value, Value, &[&str])> = vec![
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                json!({}),
                &[
                    r#"<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)"#,
                    "spec.a: Required value",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                json!({"a": "", "b": ""}),
                &[
                    r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
                ],
            ),
            (
                json!({"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^b"}]}),
                json!("a"),
                &[
                    r#"spec: Invalid value: "a": spec in body should be at least 2 chars long"#,
                    r#"spec: Invalid value: "a": spec in body should match '^b'"#,
                    r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated"#,
                ],
            ),
            (
                json!({"type": "string", "not": {"pattern": "^a"}}),
                json!("a"),
                &[r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#],
            ),
        ];
        for (schema, object, expected) in cases {
            assert_eq!(errors(&schema, object.clone(), None), expected, "{schema} {object}");
        }
    }

    #[test]
    fn unchanged_values_that_have_become_invalid_are_let_through() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "maxLength": 1},
            "b": {"type": "string"},
            "plain": {"type": "array", "items": {"type": "string", "maxLength": 1}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
        }});
        let old = json!({"a": "long", "plain": ["long"], "map": [{"k": "1", "v": "long"}]});
        let mut new = old.clone();
        new["b"] = "changed".into();
        assert_eq!(errors(&schema, new.clone(), Some(old.clone())), [""; 0]);

        new["plain"] = json!(["long", "x"]);
        new["map"] = json!([{"k": "2", "v": "long"}, {"k": "1", "v": "long"}]);
        assert_eq!(
            errors(&schema, new, Some(old)),
            [
                "spec.map[0].v: Too long: may not be more than 1 byte",
                "spec.plain[0]: Too long: may not be more than 1 byte",
            ]
        );
    }

    #[test]
    fn a_status_write_is_judged_by_the_status_alone() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "string"},
            "status": {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}},
        }}))
        .unwrap();
        let old = json!({"spec": 5, "status": {"m": "x"}});
        let errors = schema.validate_status(&json!({"spec": 5, "status": {"n": "x", "m": "x"}}), &old, &[]);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [r#"status.n: Invalid value: "string": n in body must be of type integer: "string""#]
        );
    }
}
