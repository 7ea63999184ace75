//! Custom resources: what holds for all of them. The rest is in their schemas.

use serde_json::Value;

use crate::definitions::Custom;
use crate::field_error::FieldError;
use crate::schema::NOT_CHECKED;
use crate::strategy::Part;

/// Everything that is wrong with an object beyond what was `found` in its metadata.
pub(super) fn validate(
    custom: &Custom,
    part: Part,
    object: &Value,
    old: Option<&Value>,
    found: &[FieldError],
) -> Vec<FieldError> {
    let mut errors = match (&custom.schema, part, old) {
        (Some(schema), Part::Status, Some(old)) => schema.validate_status(object, old, found),
        (Some(schema), _, old) => schema.validate(object, old, found),
        (None, ..) => Vec::new(),
    };
    // That rules were not checked is said last.
    let not_checked = errors.pop_if(|error| error.message().ends_with(NOT_CHECKED));
    if part != Part::Status {
        errors.extend(replicas(custom, object, Which::Spec));
    }
    errors.extend(replicas(custom, object, Which::Status));
    errors.extend(not_checked);
    errors
}

/// Which of the two counts of replicas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Spec,
    Status,
}

/// What can be scaled has counts that can be counts.
fn replicas(custom: &Custom, object: &Value, which: Which) -> Option<FieldError> {
    let scale = custom.scale.as_ref()?;
    let path = if which == Which::Spec { &scale.spec_replicas } else { &scale.status_replicas };
    let field = format!(".{}", path.join("."));
    let wrong = |found: &Value, expected: &str| {
        let (text, kind) = (crate::patch::go_text(found), crate::patch::go_type(found));
        let why = format!("{field} accessor error: {text} is of the type {kind}, expected {expected}");
        Some(FieldError::invalid(field.as_str(), 0, why))
    };
    let mut value = object;
    for name in path {
        match value {
            Value::Object(fields) => value = fields.get(name)?,
            other => return wrong(other, "map[string]interface{}"),
        }
    }
    match value.as_i64() {
        None => wrong(value, "int64"),
        Some(count) if count < 0 => {
            Some(FieldError::invalid(field, count, "should be a non-negative integer"))
        }
        Some(count) if count > i64::from(i32::MAX) => {
            Some(FieldError::invalid(field, count, format!("should be less than or equal to {}", i32::MAX)))
        }
        Some(_) => None,
    }
}
