//! The annotation of client-side apply: `kubectl apply --server-side` takes over what `kubectl apply` has set.

use serde_json::Value;

use super::Apply;
use super::compare::compare;
use super::field_set::FieldSet;
use super::managed::{Managed, Operation};
use super::owners::Conflict;
use super::target::Target;
use super::to_set::field_set;
use super::validate::{Duplicates, validate};
use crate::metadata;
use crate::object;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whoever calls itself otherwise does without the annotation.
pub(super) const MANAGER: &str = "kubectl";

/// Applies; conflicts about fields that are as kubectl has set them by client-side apply are none.
pub(super) fn apply(
    target: Target<'_>,
    live: &Value,
    applied: &Value,
    managed: Managed,
    wish: Apply<'_>,
) -> Result<(Option<Value>, Managed), Vec<Conflict>> {
    let attempt = |force: bool| {
        let mut managed = managed.clone();
        let new = target.apply(live, applied, &mut managed, wish.manager, force)?;
        if new.is_some() {
            for (manager, owned) in &mut managed.0 {
                if manager.operation == Operation::Apply
                    && manager.name == wish.manager
                    && manager.subresource == target.subresource
                {
                    owned.time = Some(wish.now.to_owned());
                }
            }
        }
        Ok((new, managed))
    };
    let conflicts: Vec<Conflict> = match attempt(wish.force) {
        Err(conflicts) if wish.manager == MANAGER => conflicts,
        outcome => return outcome,
    };
    let Some(allowed) = allowed_conflicts(target, live) else { return Err(conflicts) };
    let left: Vec<Conflict> = conflicts.into_iter().filter(|found| !allowed.has(&found.path)).collect();
    if left.is_empty() { attempt(true) } else { Err(left) }
}

/// The fields that are as the annotation says.
fn allowed_conflicts(target: Target<'_>, live: &Value) -> Option<FieldSet> {
    let annotation = annotation(live)?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    if last["apiVersion"] != target.api_version {
        return None;
    }
    let schema = target.schema();
    validate(schema, live, Duplicates::Refused).ok()?;
    validate(schema, &last, Duplicates::Refused).ok()?;
    let comparison = compare(schema, &last, live);
    let set = field_set(schema, &last);
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

fn annotation(object: &Value) -> Option<&str> {
    object::text(object, &["metadata", "annotations", ANNOTATION]).filter(|text| !text.is_empty())
}

/// Keeps the annotation up to date where there is one, so that client-side apply can take over again.
pub(super) fn refresh(new: &mut Value, applied: &Value) {
    if annotation(new).is_none() {
        return;
    }
    let mut last = applied.clone();
    if let Some(annotations) = last["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ANNOTATION);
    }
    if last["metadata"]["annotations"].is_null()
        && let Some(fields) = last["metadata"].as_object_mut()
    {
        fields.remove("annotations");
    }
    let text = go_json(&last);
    new["metadata"]["annotations"][ANNOTATION] = text.into();
    if !metadata::validate_annotations_size(&new["metadata"]["annotations"])
        && let Some(annotations) = new["metadata"]["annotations"].as_object_mut()
    {
        annotations.remove(ANNOTATION);
    }
}

/// JSON as Go's encoder writes it: a line of its own, safe to put into HTML.
fn go_json(value: &Value) -> String {
    let mut text = value.to_string();
    for (from, to) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        if text.contains(from) {
            text = text.replace(from, to);
        }
    }
    text.push('\n');
    text
}
