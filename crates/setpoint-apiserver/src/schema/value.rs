//! OpenAPI v3 validation of a value.
//!
//! This follows kube-openapi's validators check by check, because which errors are reported when `anyOf` or `oneOf`
//! fail depends on how many checks each branch passed.

mod number;
mod outcome;

use serde_json::{Map, Value};

use super::correlate::Correlated;
use super::{AdditionalProperties, Structural, Type, format};
use crate::field_error::FieldError;
use outcome::{Failure, Outcome};

/// What is wrong with `value`, whose field is `field` (empty at the root of an object).
pub(super) fn validate(
    schema: &Structural,
    value: &Value,
    field: &str,
    correlated: Option<Correlated<'_>>,
) -> Vec<FieldError> {
    let outcome = node(schema, value, Path::Root, correlated);
    outcome.into_field_errors(field)
}

/// Where a value is, for messages.
#[derive(Clone, Copy, Debug)]
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, name) => f.write_str(name),
            Path::Key(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value with the old value that it replaces, if any: if nothing changed, nothing is wrong.
fn node(schema: &Structural, value: &Value, path: Path<'_>, correlated: Option<Correlated<'_>>) -> Outcome {
    let outcome = checks(schema, value, path, correlated);
    if !outcome.is_valid() && correlated.is_some_and(|correlated| correlated.is_unchanged()) {
        return outcome.forgiven();
    }
    outcome
}

fn checks(schema: &Structural, value: &Value, path: Path<'_>, correlated: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let format = format::effective(schema);
    if value.is_null() {
        outcome.merge(type_of(schema, format, value, path));
        outcome.merge(enumeration(schema, value, path));
        return outcome;
    }
    if schema.type_.is_some() || schema.int_or_string || !format.is_empty() {
        outcome.merge_check(type_of(schema, format, value, path));
    }
    outcome.merge_check(junctors(schema, value, path, correlated));
    match value {
        Value::String(text) => {
            outcome.merge_check(string(schema, text, path));
            if !format.is_empty() && format::is_known(format) {
                outcome.merge_check(text_format(format, text, path));
            }
        }
        Value::Number(number) => outcome.merge_check(number::validate(schema, format, number, path)),
        Value::Array(items) => outcome.merge_check(array(schema, items, path, correlated)),
        _ => {}
    }
    outcome.merge_check(enumeration(schema, value, path));
    if let Value::Object(fields) = value {
        outcome.merge_check(object(schema, fields, path, correlated));
    }
    outcome.passed += 1;
    outcome
}

fn type_of(schema: &Structural, format: &str, value: &Value, path: Path<'_>) -> Outcome {
    let types = Types::of(schema);
    if value.is_null() {
        return if !types.is_empty() && !schema.nullable {
            Failure::wrong_type(path, &types.to_string(), "null").into()
        } else {
            Outcome::passed()
        };
    }
    let (actual, actual_format) = match value {
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.as_i64().is_some() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        _ => ("object", ""),
    };
    let whole = actual == "number" && types.has("integer") && value.as_f64().is_some_and(number::is_whole);
    let fits = types.has(actual) || whole || (actual == "integer" && types.has("number"));
    let is_text_or_list = matches!(actual, "string" | "array");
    if !is_text_or_list && !format.is_empty() && !fits && format != actual_format {
        return Failure::wrong_type(path, format, actual_format).into();
    }
    if !types.has("number") && !types.has("integer") && !format.is_empty() && is_text_or_list {
        return Outcome::passed();
    }
    if !fits {
        return Failure::wrong_type(path, &types.to_string(), actual).into();
    }
    Outcome::passed()
}

/// The types that a value may have: none said, one, or the two of int-or-string.
struct Types<'a>(Vec<&'a str>);

impl<'a> Types<'a> {
    fn of(schema: &'a Structural) -> Types<'a> {
        match &schema.type_ {
            _ if schema.int_or_string => Types(vec!["integer", "string"]),
            Some(word) => Types(vec![word.as_str()]),
            None => Types(vec![]),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
}

impl std::fmt::Display for Types<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

fn junctors(
    schema: &Structural,
    value: &Value,
    path: Path<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let check = |schema: &Structural| checks(schema, value, path, correlated);
    let values = &schema.values;
    if !values.any_of.is_empty() {
        outcome.merge(any_of(&values.any_of, path, check));
    }
    if !values.one_of.is_empty() {
        outcome.merge(one_of(&values.one_of, path, check));
    }
    if !values.all_of.is_empty() {
        outcome.merge(all_of(&values.all_of, path, check));
    }
    if let Some(not) = &values.not
        && check(not).is_valid()
    {
        outcome.fail(Failure::junctor(path, "must not validate the schema (not)"));
    }
    outcome.passed += 1;
    outcome
}

fn any_of(schemas: &[Structural], path: Path<'_>, check: impl Fn(&Structural) -> Outcome) -> Outcome {
    let mut best: Option<Outcome> = None;
    for schema in schemas {
        let result = check(schema);
        if result.is_valid() {
            return result;
        }
        if best.as_ref().is_none_or(|best| result.passed > best.passed) {
            best = Some(result);
        }
    }
    let mut outcome: Outcome = Failure::junctor(path, "must validate at least one schema (anyOf)").into();
    outcome.merge(best.unwrap_or_default());
    outcome
}

fn one_of(schemas: &[Structural], path: Path<'_>, check: impl Fn(&Structural) -> Outcome) -> Outcome {
    let mut best: Option<Outcome> = None;
    let mut valid: Vec<Outcome> = Vec::new();
    for schema in schemas {
        let result = check(schema);
        if result.is_valid() {
            valid.push(result);
        } else if valid.is_empty() && best.as_ref().is_none_or(|best| result.passed > best.passed) {
            best = Some(result);
        }
    }
    let found = match valid.len() {
        1 => return valid.remove(0),
        0 => "Found none valid".to_owned(),
        count => format!("Found {count} valid alternatives"),
    };
    let message = format!("must validate one and only one schema (oneOf). {found}");
    let mut outcome: Outcome = Failure::junctor(path, &message).into();
    if valid.is_empty() {
        outcome.merge(best.unwrap_or_default());
    }
    outcome
}

fn all_of(schemas: &[Structural], path: Path<'_>, check: impl Fn(&Structural) -> Outcome) -> Outcome {
    let mut outcome = Outcome::default();
    let mut valid = 0;
    for schema in schemas {
        let result = check(schema);
        valid += usize::from(result.is_valid());
        outcome.merge(result);
    }
    if valid != schemas.len() {
        let more = if valid == 0 { ". None validated" } else { "" };
        outcome.fail(Failure::junctor(path, &format!("must validate all the schemas (allOf){more}")));
    }
    outcome
}

fn string(schema: &Structural, text: &str, path: Path<'_>) -> Outcome {
    let values = &schema.values;
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(most) = values.max_length.filter(|most| length() > *most) {
        return Failure::too_long(path, most).into();
    }
    if let Some(least) = values.min_length.filter(|least| length() < *least) {
        return Failure::text(path, text, format!("should be at least {least} chars long")).into();
    }
    if let Some(pattern) = values.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
        let shown = match pattern.error() {
            None => pattern.source().to_owned(),
            Some(error) => format!("{}, but pattern is invalid: {error}", pattern.source()),
        };
        return Failure::text(path, text, format!("should match '{shown}'")).into();
    }
    Outcome::default()
}

fn text_format(format: &str, text: &str, path: Path<'_>) -> Outcome {
    if format::matches(format, text) {
        return Outcome::default();
    }
    Failure::wrong_type(path, format, text).into()
}

fn array(
    schema: &Structural,
    items: &[Value],
    path: Path<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(schema) = &schema.items {
        let old = correlated.and_then(|correlated| correlated.items());
        for (index, item) in items.iter().enumerate() {
            let old = old.as_ref().and_then(|old| *old.get(index)?);
            outcome.merge(node(schema, item, Path::Index(&path, index), old));
        }
    }
    let values = &schema.values;
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = values.min_items.filter(|least| size < *least) {
        outcome.fail(Failure::count(path, size, format!("should have at least {least} items")));
    }
    if let Some(most) = values.max_items.filter(|most| size > *most) {
        outcome.fail(Failure::too_many(path, size, most, "items"));
    }
    if values.unique_items && has_duplicates(items) {
        outcome.fail(Failure::text(path, "", "shouldn't contain duplicates".to_owned()));
    }
    outcome.passed += 1;
    outcome
}

fn has_duplicates(items: &[Value]) -> bool {
    let texts: std::collections::BTreeSet<String> = items.iter().map(ToString::to_string).collect();
    texts.len() < items.len()
}

fn enumeration(schema: &Structural, value: &Value, path: Path<'_>) -> Outcome {
    let allowed = &schema.values.enumeration;
    let same = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
        (Some(allowed), Some(value)) => allowed == value,
        _ => !value.is_null() && allowed == value,
    };
    if allowed.is_empty() || allowed.iter().any(same) {
        return Outcome::default();
    }
    Failure::not_in(path, value, allowed).into()
}

fn object(
    schema: &Structural,
    fields: &Map<String, Value>,
    path: Path<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let values = &schema.values;
    let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
    if let Some(least) = values.min_properties.filter(|least| size < *least) {
        outcome.fail(Failure::count(path, size, format!("should have at least {least} properties")));
    }
    if let Some(most) = values.max_properties.filter(|most| size > *most) {
        outcome.fail(Failure::too_many(path, size, most, "properties"));
    }
    let unknown = fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name));
    match &schema.additional_properties {
        Some(AdditionalProperties::Allowed(false)) => {
            unknown.for_each(|(name, _)| outcome.fail(Failure::forbidden(path, name)));
        }
        Some(AdditionalProperties::Schema(schema)) => {
            for (name, value) in unknown {
                outcome.merge(field(schema, name, value, path, correlated));
            }
        }
        _ => {}
    }
    for (name, schema) in &schema.properties {
        if let Some(value) = fields.get(name) {
            outcome.merge(field(schema, name, value, path, correlated));
        }
    }
    for name in values.required.iter().filter(|name| !fields.contains_key(*name)) {
        outcome.fail(Failure::required(path, name));
    }
    outcome
}

fn field(
    schema: &Structural,
    name: &str,
    value: &Value,
    path: Path<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    // A change of the version is invisible here: both were converted to the same.
    let is_type = matches!(path, Path::Root) && matches!(name, "apiVersion" | "kind");
    let old = correlated.filter(|_| !is_type).and_then(|correlated| correlated.key(name));
    node(schema, value, Path::Key(&path, name), old)
}

/// Whether the schema asks for exactly this type.
fn is_only(schema: &Structural, type_: &Type) -> bool {
    !schema.int_or_string && schema.type_.as_ref() == Some(type_)
}
