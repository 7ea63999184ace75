//! Whether a schema is structural, as kube-apiserver asks for: every value has one type, stated in one place.

use serde_json::{Map, Value};

use crate::error::{Error, FieldPath};

/// What a schema of a CRD cannot have at all.
const FORBIDDEN: [&str; 7] =
    ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id", "$schema"];

/// What the parts of `allOf`, `anyOf`, `oneOf` and `not` cannot have.
const NOT_IN_PARTS: [&str; 5] = ["type", "additionalProperties", "default", "description", "nullable"];

/// Checks the schema of a whole object.
pub(crate) fn check_root(schema: &Map<String, Value>, path: &FieldPath) -> Result<(), Error> {
    if type_of(schema) != Some("object") {
        return Err(Error::new(path.field("type"), "must be object at the root"));
    }
    check(schema, path)
}

pub(crate) fn type_of(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

pub(crate) fn is_true(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool) == Some(true)
}

/// An integer or a string.
pub(crate) fn is_int_or_string(schema: &Map<String, Value>) -> bool {
    is_true(schema, "x-kubernetes-int-or-string")
}

pub(crate) fn preserves_unknown(schema: &Map<String, Value>) -> bool {
    is_true(schema, "x-kubernetes-preserve-unknown-fields")
}

fn check(schema: &Map<String, Value>, path: &FieldPath) -> Result<(), Error> {
    check_keys(schema, path)?;
    match type_of(schema) {
        Some("object" | "array" | "string" | "integer" | "number" | "boolean") => {}
        Some(other) => return Err(Error::new(path.field("type"), format!("{other:?} is not a type"))),
        None if is_int_or_string(schema) || preserves_unknown(schema) => {}
        None => return Err(Error::new(path.field("type"), "is missing: the schema is not structural")),
    }
    check_parts(schema, path, true)?;
    let children = path.field("properties");
    for (name, property) in properties(schema, path)? {
        check(object(property, &children.key(name))?, &children.key(name))?;
    }
    if let Some(items) = schema.get("items") {
        check(object(items, &path.field("items"))?, &path.field("items"))?;
    } else if type_of(schema) == Some("array") {
        return Err(Error::new(path.field("items"), "is missing: the schema is not structural"));
    }
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => {
            return Err(Error::new(path.field("additionalProperties"), "cannot be false"));
        }
        Some(values) => {
            let path = path.field("additionalProperties");
            check(object(values, &path)?, &path)?;
        }
    }
    let has_properties =
        schema.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if has_properties && schema.contains_key("additionalProperties") {
        return Err(Error::new(
            path,
            "has both properties and additionalProperties; it can have one of them",
        ));
    }
    Ok(())
}

fn check_keys(schema: &Map<String, Value>, path: &FieldPath) -> Result<(), Error> {
    match FORBIDDEN.iter().find(|key| schema.contains_key(**key)) {
        Some(&"$ref") => Err(Error::new(
            path.field("$ref"),
            "a CRD cannot refer to other schemas, nor to itself: write it out",
        )),
        Some(key) => Err(Error::new(path.field(key), "cannot be in the schema of a CRD")),
        None => Ok(()),
    }
}

/// Checks what `allOf` and its like hold: conditions on values, not the types of values.
fn check_parts(schema: &Map<String, Value>, path: &FieldPath, is_outside: bool) -> Result<(), Error> {
    // controller-gen writes out the two types of an int-or-string.
    let may_name_types = is_outside && is_int_or_string(schema);
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(parts) = schema.get(key) else { continue };
        let path = path.field(key);
        let parts = parts.as_array().ok_or_else(|| Error::new(&path, "must be a list"))?;
        for (index, part) in parts.iter().enumerate() {
            check_part(object(part, &path.key(index))?, &path.key(index), may_name_types)?;
        }
    }
    match schema.get("not") {
        Some(part) => check_part(object(part, &path.field("not"))?, &path.field("not"), false),
        None => Ok(()),
    }
}

fn check_part(part: &Map<String, Value>, path: &FieldPath, may_name_types: bool) -> Result<(), Error> {
    check_keys(part, path)?;
    let forbidden = NOT_IN_PARTS.iter().find(|key| part.contains_key(**key));
    if let Some(key) = forbidden.filter(|key| !(may_name_types && **key == "type")) {
        return Err(Error::new(path.field(key), "cannot be there: the schema is not structural"));
    }
    // `allOf: [{anyOf: [{type: integer}, {type: string}]}, {pattern: …}]` is the other way to write it.
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in part.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let path = path.field(key).key(index);
            check_part(object(inner, &path)?, &path, may_name_types)?;
        }
    }
    for (name, property) in properties(part, path)? {
        let path = path.field("properties").key(name);
        check_part(object(property, &path)?, &path, false)?;
    }
    for key in ["not", "items"] {
        if let Some(inner) = part.get(key) {
            check_part(object(inner, &path.field(key))?, &path.field(key), false)?;
        }
    }
    Ok(())
}

pub(crate) fn properties<'a>(
    schema: &'a Map<String, Value>,
    path: &FieldPath,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, Error> {
    let properties = match schema.get("properties") {
        None => None,
        Some(map) => Some(object(map, &path.field("properties"))?),
    };
    Ok(properties.into_iter().flatten())
}

pub(crate) fn object<'a>(value: &'a Value, path: &FieldPath) -> Result<&'a Map<String, Value>, Error> {
    value.as_object().ok_or_else(|| Error::new(path, "must be a schema, that is an object"))
}
