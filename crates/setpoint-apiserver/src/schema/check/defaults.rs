//! Defaults must be values that the schema takes, without unknown fields.

use crate::field_error::FieldError;
use crate::schema::{Structural, embedded, value};

/// What is wrong with the defaults of a structural schema.
pub(super) fn check(schema: &Structural, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(schema, path, true, false, &mut errors);
    errors
}

/// `inside_meta`: within apiVersion, kind or metadata of a resource, where an unknown field is not the schema's affair.
fn visit(schema: &Structural, path: &str, resource: bool, inside_meta: bool, errors: &mut Vec<FieldError>) {
    let inside_meta = inside_meta && !schema.embedded_resource;
    if let Some(default) = &schema.default {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        schema.prune_value(&mut pruned, schema.embedded_resource);
        if !inside_meta && pruned != *default {
            errors.push(FieldError::invalid(at.clone(), default.clone(), "must not have unknown fields"));
        }
        let mut found = Vec::new();
        embedded::validate(schema, default, &at, &mut found);
        if found.is_empty() {
            found = value::validate(schema, default, &at, None);
        }
        if found.is_empty() {
            found = schema.validate_rules(default, Some(default), &at, resource);
            if found.is_empty() {
                found = schema.validate_rules(default, None, &at, resource);
            }
        }
        errors.extend(found);
    }
    // Defaults below additionalProperties are not followed, as kube-apiserver does not.
    if let Some(items) = &schema.items {
        visit(items, &format!("{path}.items"), items.embedded_resource, inside_meta, errors);
    }
    for (name, property) in &schema.properties {
        let is_meta = (resource || schema.embedded_resource)
            && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let at = format!("{path}.properties[{name}]");
        visit(property, &at, property.embedded_resource, inside_meta || is_meta, errors);
    }
}
