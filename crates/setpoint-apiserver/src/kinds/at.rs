//! A place in an object: its value, its path, and where its problems go.
//!
//! Rules walk an object with [`At`] and say what is wrong in one line each:
//! `spec.field("replicas").non_negative()`. A path is a chain of borrowed steps; nothing is written down or
//! cloned before something is wrong.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde_json::Value;

use crate::field_error::{FieldError, Problem, Shown};

/// Collects the problems of one object.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    list: RefCell<Vec<FieldError>>,
    /// How many there are; reading a cell is cheaper than borrowing the list.
    count: Cell<usize>,
}

impl Errors {
    pub(crate) fn push(&self, error: FieldError) {
        self.list.borrow_mut().push(error);
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn extend(&self, errors: impl IntoIterator<Item = FieldError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.list.into_inner()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Root,
    Field(&'p str),
    Index(usize),
    Key(&'p str),
}

/// Where a value is: `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_root = self.parent.is_none_or(|parent| matches!(parent.step, Step::Root));
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if at_root => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// A value of an object and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'v, 'p> {
    value: &'v Value,
    path: Path<'p>,
    errors: &'p Errors,
}

impl<'v> At<'v, '_> {
    /// The object itself.
    pub(crate) fn root<'p>(value: &'v Value, errors: &'p Errors) -> At<'v, 'p> {
        At { value, path: Path { parent: None, step: Step::Root }, errors }
    }

    fn step<'q>(&'q self, value: &'v Value, step: Step<'q>) -> At<'v, 'q> {
        At { value, path: Path { parent: Some(&self.path), step }, errors: self.errors }
    }

    /// A field; null when there is none.
    pub(crate) fn field<'q>(&'q self, name: &'q str) -> At<'v, 'q> {
        self.step(&self.value[name], Step::Field(name))
    }

    /// The same value under another name: some messages use a name that no field has.
    pub(crate) fn alias<'q>(&'q self, name: &'q str) -> At<'v, 'q> {
        self.step(self.value, Step::Field(name))
    }

    /// Another value under another name.
    pub(crate) fn alias_of<'q>(&'q self, name: &'q str, value: &'v Value) -> At<'v, 'q> {
        self.step(value, Step::Field(name))
    }

    /// An item of a list.
    pub(crate) fn index(&self, index: usize) -> At<'v, '_> {
        self.step(&self.value[index], Step::Index(index))
    }

    /// A value of a map: `limits[cpu]`.
    pub(crate) fn key<'q>(&'q self, key: &'q str) -> At<'v, 'q> {
        self.step(&self.value[key], Step::Key(key))
    }

    /// Another value at the same place.
    pub(crate) fn with<'w>(&self, value: &'w Value) -> At<'w, '_> {
        At { value, path: self.path, errors: self.errors }
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    /// Where it is, written down.
    pub(crate) fn path(&self) -> String {
        self.path.to_string()
    }

    pub(crate) fn errors(&self) -> &Errors {
        self.errors
    }

    /// Whether the field is there.
    pub(crate) fn exists(&self) -> bool {
        !self.value.is_null()
    }

    /// The text; empty when there is none.
    pub(crate) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    pub(crate) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Whether the value is `true`.
    pub(crate) fn is_true(&self) -> bool {
        *self.value == Value::Bool(true)
    }

    /// The items of a list, each at its place.
    pub(crate) fn items(&self) -> impl Iterator<Item = At<'v, '_>> {
        let items = items(self.value).iter().enumerate();
        items.map(|(index, value)| self.step(value, Step::Index(index)))
    }

    /// The texts of a list, each at its place.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'v str> {
        items(self.value).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// The entries of a map, each at its place: `limits[cpu]`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'v str, At<'v, '_>)> {
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(|(key, value)| (key.as_str(), self.step(value, Step::Key(key))))
    }

    /// How many items or entries there are.
    pub(crate) fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Whether there is nothing: no field, no text, no items.
    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// What is wrong.
impl At<'_, '_> {
    /// The value as Go writes a struct of its internal types: fields under their Go names, in their order. Each
    /// comes with what stands for it when it is not there.
    pub(crate) fn in_go(&self, fields: &[(&str, &str, &str)]) -> Shown {
        let text = |(go, name, zero): &(&str, &str, &str)| {
            let value = &self.value[*name];
            let value = if value.is_null() { (*zero).to_owned() } else { value.to_string() };
            format!("\"{go}\":{value}")
        };
        let fields: Vec<String> = fields.iter().map(text).collect();
        Shown::Raw(format!("{{{}}}", fields.join(",")))
    }

    fn problem(&self, problem: Problem) {
        self.errors.push(FieldError::new(self.path.to_string(), problem));
    }

    pub(crate) fn required(&self, detail: impl Into<String>) {
        self.problem(Problem::Required(detail.into()));
    }

    /// The value is wrong.
    pub(crate) fn invalid(&self, detail: impl Into<String>) {
        self.invalid_as(self.value.clone(), detail);
    }

    /// The value is wrong; shown as `value`.
    pub(crate) fn invalid_as(&self, value: impl Into<Shown>, detail: impl Into<String>) {
        self.problem(Problem::Invalid(value.into(), detail.into()));
    }

    /// The text is wrong; one that is not there is shown as `""`.
    pub(crate) fn invalid_text(&self, detail: impl Into<String>) {
        self.invalid_as(self.text(), detail);
    }

    /// The number is wrong; one that is not there is shown as `0`.
    pub(crate) fn invalid_number(&self, detail: impl Into<String>) {
        self.invalid_as(self.number().unwrap_or(0), detail);
    }

    /// The value is wrong, and not shown.
    pub(crate) fn invalid_hidden(&self, detail: impl Into<String>) {
        self.problem(Problem::InvalidHidden(detail.into()));
    }

    pub(crate) fn forbidden(&self, detail: impl Into<String>) {
        self.problem(Problem::Forbidden(detail.into()));
    }

    pub(crate) fn not_supported(&self, allowed: &[&str]) {
        self.not_supported_as(self.text(), allowed);
    }

    pub(crate) fn not_supported_as(&self, value: impl Into<Shown>, allowed: &[&str]) {
        let allowed = allowed.iter().map(|&text| text.to_owned()).collect();
        self.problem(Problem::NotSupported(value.into(), allowed));
    }

    pub(crate) fn duplicate(&self) {
        self.duplicate_as(self.value.clone());
    }

    pub(crate) fn duplicate_as(&self, value: impl Into<Shown>) {
        self.problem(Problem::Duplicate(value.into(), String::new()));
    }

    pub(crate) fn duplicate_because(&self, value: impl Into<Shown>, detail: &str) {
        self.problem(Problem::Duplicate(value.into(), detail.to_owned()));
    }

    pub(crate) fn not_found(&self) {
        self.not_found_because(String::new());
    }

    pub(crate) fn not_found_because(&self, detail: String) {
        self.problem(Problem::NotFound(self.text().into(), detail));
    }

    pub(crate) fn too_long(&self, most: usize) {
        self.problem(Problem::TooLong(most));
    }

    pub(crate) fn too_many(&self, most: usize) {
        self.problem(Problem::TooMany(self.len(), most));
    }
}

/// The items of a list; none when it is none.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether Go's semantic equality holds: null, an empty list and an empty map are all the same.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.into_iter().all(|key| same_or_absent(a.get(key), b.get(key)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => {
            matches!((a, b), (Value::Null | Value::Array(_), _) | (_, Value::Null | Value::Array(_)))
                && nothing(a)
                && nothing(b)
        }
    }
}

/// An absent field is the same as an empty list; an empty struct behind a pointer is something.
fn same_or_absent(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (Some(one), None) | (None, Some(one)) => match one {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            _ => false,
        },
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_is_written_as_kubectl_users_know_it() {
        let pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}});
        let errors = Errors::default();
        let root = At::root(&pod, &errors);
        let spec = root.field("spec");
        let containers = spec.field("containers");
        for container in containers.items() {
            container.field("resources").field("limits").key("cpu").required("");
        }
        root.alias("x").required("");
        assert_eq!(errors.len(), 2);
        let texts: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["spec.containers[0].resources.limits[cpu]: Required value", "x: Required value"]);
    }

    #[test]
    fn empty_lists_are_the_same_as_none() {
        assert!(same(&json!({"a": [], "b": 1}), &json!({"b": 1})));
        assert!(same(&json!(null), &json!([])));
        assert!(!same(&json!({"a": {}}), &json!({})));
        assert!(!same(&json!({"a": [1]}), &json!({})));
    }
}
