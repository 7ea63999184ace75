//! Strategic merge patch: like a merge patch, but lists whose items have a key are merged item by item, and
//! directives in the patch say more than values can.
//!
//! | directive | where | meaning |
//! | --- | --- | --- |
//! | `$patch: replace` | an object, an item of a list | the patch takes the place of what is there |
//! | `$patch: delete` | an object, an item of a list | what is there goes |
//! | `$retainKeys: […]` | an object | other fields of what is there go |
//! | `$setElementOrder/FIELD: […]` | beside a list | the order of the merged list |
//! | `$deleteFromPrimitiveList/FIELD: […]` | beside a list of scalars | the items to remove |
//!
//! What kube-apiserver does with odd patches is part of the interface too: `kubectl apply` computes patches for
//! exactly that. Where Go's answer depends on the random order of its maps, fields are taken in alphabetical order.

mod go;
mod list;
mod order;
mod schema;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use setpoint_kinds::Type;

use self::go::Problem;
use self::schema::Schema;
use super::Patched;
use super::merge::drop_nulls;
use crate::body;
use crate::status::{Result, Status};

pub(crate) use self::go::{conversion_error, text as go_text, type_name as go_type};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;

/// Applies a patch to an object of type `ty`.
pub(super) fn apply(ty: &'static Type, current: &Value, patch: &[u8]) -> Result<Patched> {
    let decoded =
        body::parse_json(patch).map_err(|bad| bad.status(|_| Status::bad_request("invalid JSON patch")))?;
    let strict_errors = decoded.strict_errors();
    let mut patch = match decoded.value {
        Value::Object(patch) => patch,
        Value::Null => Object::new(),
        other => {
            let found = body::go_type(&other);
            let why =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Status::bad_request(why));
        }
    };
    let fields = current.as_object().cloned().unwrap_or_default();
    let merged = merge(fields, &mut patch, Schema::of_type(ty))?;
    Patched::new(current, Value::Object(merged), strict_errors, Some(Value::Object(patch)))
}

/// Merges a patch into an object. Of the patch remains what kube-apiserver would quote in an error.
fn merge(mut original: Object, patch: &mut Object, schema: Schema) -> Result<Object, Problem> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch.clone())
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(Problem::unknown_directive(directive, patch)),
        };
    }
    retain_keys(&mut original, patch)?;
    list::merge_ordered(&mut original, patch, schema)?;
    let names: Vec<String> = patch.keys().cloned().collect();
    for name in names {
        merge_field(&mut original, patch, &name, schema)?;
    }
    Ok(original)
}

/// `$retainKeys`: the original keeps only what the list names, and the patch may name nothing else.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Problem> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(Problem::RetainKeys)?;
    let keys: std::collections::BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_covered = |(name, value): (&String, &Value)| {
        value.is_null()
            || name.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            || name.starts_with(SET_ELEMENT_ORDER)
            || keys.contains(name.as_str())
    };
    if !patch.iter().all(is_covered) {
        return Err(Problem::RetainKeys);
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// The field that a directive is about: `FIELD` of `$setElementOrder/FIELD`.
fn subject<'a>(name: &'a str, directive: &str) -> Option<&'a str> {
    name.strip_prefix(directive)?.strip_prefix('/')
}

fn merge_field(original: &mut Object, patch: &mut Object, name: &str, schema: Schema) -> Result<(), Problem> {
    let removes = name.starts_with(DELETE_FROM_PRIMITIVE_LIST);
    let target =
        if removes { subject(name, DELETE_FROM_PRIMITIVE_LIST).ok_or(Problem::PrimitiveList)? } else { name };
    let value = patch.get_mut(name).expect("the name is one of the patch's");
    if value.is_null() {
        original.remove(target);
        return Ok(());
    }
    let old = original.get_mut(target).filter(|old| go::type_name(old) == go::type_name(value));
    match (old, value) {
        (Some(Value::Object(old)), Value::Object(value)) => {
            let field = schema.object_field(target)?;
            *old = if field.is_replaced {
                value.clone()
            } else {
                merge(std::mem::take(old), value, field.schema)?
            };
        }
        (Some(Value::Array(old)), Value::Array(items)) => {
            let field = schema.list_field(target)?;
            *old = list::merge(std::mem::take(old), items, &field, removes)?.items;
        }
        (None, _) if removes => {}
        (old, value) => {
            if old.is_none() {
                drop_nulls(value);
            }
            if remove_directives(value) {
                original.insert(target.to_owned(), value.clone());
            } else {
                original.remove(target);
            }
        }
    }
    Ok(())
}

/// Removes objects with a `$patch`, at any depth: where there is nothing, there is nothing to replace or delete.
/// Whether the value itself stays.
fn remove_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return false;
            }
            fields.retain(|_, value| remove_directives(value));
        }
        Value::Array(items) => items.retain_mut(remove_directives),
        _ => {}
    }
    true
}
