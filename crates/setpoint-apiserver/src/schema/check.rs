//! Whether the schema of a CustomResourceDefinition may be used, in kube-apiserver's words.

mod defaults;
mod openapi;
mod structure;

use serde_json::Value;

use super::Structural;
use crate::field_error::FieldError;

/// The keywords that may stand at the root beside a status subresource: without the others, the schema of the status
/// can be taken out alone.
const ROOT_KEYWORDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// What is wrong with the JSON of a schema; `path` is where it stands, such as
/// `spec.versions[0].schema.openAPIV3Schema`.
pub(crate) fn check(schema: &Value, path: &str, status_subresource: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if status_subresource {
        errors.extend(check_root(schema, path));
    }
    if schema["nullable"] == true {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    let parsed = Structural::parse(schema);
    let mut rules = None;
    if let Ok(parsed) = &parsed {
        let found = parsed.violations(path);
        let found = if found.is_empty() { defaults::check(parsed, path) } else { found };
        rules = found.is_empty().then_some(parsed);
        errors.extend(found);
    }
    errors.extend(openapi::check(schema, rules, path));
    if let (Err(error), true) = (parsed, errors.is_empty()) {
        errors.push(FieldError::invalid(path, "", error.to_string()));
    }
    errors
}

/// What is wrong with the schemas of a CustomResourceDefinition. On an update, only those that changed are looked at.
pub(crate) fn check_definition(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let versions =
        |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    let has_status = |version: &Value| !version["subresources"]["status"].is_null();
    let before: Vec<Value> = old.map(versions).unwrap_or_default().iter().map(schema).collect();
    let versions = versions(definition);
    let mut errors = Vec::new();
    // kube-apiserver keeps a schema that all versions share in one place, and reports it there.
    if let Some(shared) = versions.first().map(schema)
        && !shared.is_null()
        && versions.iter().all(|version| schema(version) == shared)
    {
        if !before.contains(&shared) {
            errors = check(&shared, "spec.validation.openAPIV3Schema", versions.iter().any(has_status));
        }
        return errors;
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match schema(version) {
            // The definition's own rules say that it is missing.
            Value::Null => {}
            schema if before.contains(&schema) => {}
            schema => errors.extend(check(&schema, &path, has_status(version))),
        }
    }
    errors
}

fn check_root(schema: &Value, path: &str) -> Option<FieldError> {
    let keywords = schema.as_object()?.iter().filter(|(_, value)| is_set(value)).map(|(keyword, _)| keyword);
    for keyword in keywords {
        if keyword == "type" && schema["type"] != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                          enabled";
            return Some(FieldError::invalid(format!("{path}.type"), schema["type"].clone(), detail));
        }
        if !ROOT_KEYWORDS.iter().any(|(allowed, _)| allowed == keyword) {
            let allowed: Vec<&str> = ROOT_KEYWORDS.iter().map(|(_, name)| *name).collect();
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                allowed.join(" ")
            );
            return Some(FieldError::invalid(path, schema.clone(), detail));
        }
    }
    None
}

/// Whether a keyword has more than the zero value of its type.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: &str = "spec.versions[0].schema.openAPIV3Schema";

    fn errors(schema: &Value) -> Vec<String> {
        let errors = check(schema, PATH, true);
        errors.iter().map(|error| error.to_string().replace(PATH, "@")).collect()
    }

    #[test]
    fn schemas_are_refused_in_kube_apiservers_words() {
        let cases: Vec<(Value, &[&str])> = vec![
            (json!({"type": "object", "properties": {"x": {"type": "string"}}}), &[]),
            (json!({}), &["@.type: Required value: must not be empty at the root"]),
            (
                json!({"type": "object", "properties": {"x": {}}}),
                &["@.properties[x].type: Required value: must not be empty for specified object fields"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array"}}}),
                &["@.properties[x].items: Required value: must be specified"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "items": {}}}}),
                &["@.properties[x].items.type: Required value: must not be empty for specified array items"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "strin"}}}),
                &[
                    r#"@.properties[x].type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "anyOf": [{"type": "string", "description": "d"}]}}}),
                &[
                    "@.properties[x].anyOf[0].description: Forbidden: must be empty to be structural",
                    "@.properties[x].anyOf[0].type: Forbidden: must be empty to be structural",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"x-kubernetes-int-or-string": true,
                    "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
                &[],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                &[
                    "@.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
                     metadata is implicitly specified",
                ],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
                &[],
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
                &[r#"@.properties[kind].type: Invalid value: "integer": must be string"#],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "x-kubernetes-embedded-resource": true}}}),
                &[
                    "@.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is \
                     true without x-kubernetes-preserve-unknown-fields",
                    r#"@.properties[x].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true"#,
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "a("}}}),
                &[
                    r#"@.properties[x].pattern: Invalid value: "a(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(`"#,
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
                &[
                    "@.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime \
                     complexity becomes quadratic",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "object", "properties": {"a": {"type": "string"}},
                    "additionalProperties": {"type": "string"}}}}),
                &[
                    "@.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual \
                     exclusive",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"$ref": "#/a", "type": "string"}}}),
                &["@.properties[x].$ref: Forbidden: $ref is not supported"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "items": [{"type": "string"}]}}}),
                &["@.properties[x].items: Forbidden: items must be a schema object and not an array"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}}}),
                &[
                    "@.properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
                &["@.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if \
                     x-kubernetes-list-type is map"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k", "z"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
                &[
                    r#"@.properties[x].x-kubernetes-list-map-keys: Invalid value: ["k","z"]: entries must all be names of item properties"#,
                    "@.properties[x].items.properties[k].default: Required value: this property is in \
                     x-kubernetes-list-map-keys, so it must have a default or be a required property",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "x-kubernetes-list-type": "set",
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
                &[
                    "@.properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list \
                     with x-kubernetes-list-type=set",
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "x-kubernetes-map-type": "odd"}}}),
                &[
                    r#"@.properties[x].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified"#,
                    r#"@.properties[x].x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular""#,
                ],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "integer", "minimum": 1, "default": 0}}}),
                &["@.properties[x].default: Invalid value: 0:  in body should be greater than or equal to 1"],
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "object", "default": {"a": 1}}}}),
                &[r#"@.properties[x].default: Invalid value: {"a":1}: must not have unknown fields"#],
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "string", "default": "x"}}}),
                &["@.properties[kind].default: Forbidden: must not be set in top-level kind"],
            ),
            (
                json!({"type": "object", "maxProperties": 5}),
                &[
                    r#"@: Invalid value: {"maxProperties":5,"type":"object"}: only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled"#,
                ],
            ),
            (
                json!({"type": "object", "x-kubernetes-validations": [
                    {"rule": " "}, {"rule": "true", "message": "a\nb"}, {"rule": "true", "reason": "Odd"},
                    {"rule": "true", "fieldPath": ".nowhere"},
                ]}),
                &[
                    "@.x-kubernetes-validations[0].rule: Required value: rule is not specified",
                    r#"@.x-kubernetes-validations[1].message: Invalid value: "a\nb": must not contain line breaks"#,
                    r#"@.x-kubernetes-validations[2].reason: Unsupported value: "Odd": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
                    r#"@.x-kubernetes-validations[3].fieldPath: Invalid value: ".nowhere": must be a valid path"#,
                ],
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(errors(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn what_a_junctor_at_the_root_speaks_of_must_have_a_schema() {
        let schema = json!({"type": "object", "not": {"properties": {"y": {"pattern": "a"}}}});
        let errors = check(&schema, PATH, false);
        assert_eq!(
            errors.iter().map(|error| error.to_string().replace(PATH, "@")).collect::<Vec<_>>(),
            ["@.properties[y]: Required value: because it is defined in @.not.properties[y]"]
        );
    }
}
