//! What a check found.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use super::Path;
use crate::field_error::{FieldError, Problem, Shown};

/// A list of more problems than this helps nobody, and takes memory.
const MAX_FAILURES: usize = 1000;

/// The failures of some checks, and how many passed.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    failures: Vec<Failure>,
    /// Counts as kube-openapi counts: the branch of `anyOf` that came furthest is the one whose failures are shown.
    pub(super) passed: usize,
}

impl Outcome {
    pub(super) fn passed() -> Outcome {
        Outcome { failures: Vec::new(), passed: 1 }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.failures.is_empty()
    }

    /// The same with nothing wrong.
    pub(super) fn forgiven(self) -> Outcome {
        Outcome { failures: Vec::new(), ..self }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }

    pub(super) fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        let room = MAX_FAILURES - self.failures.len();
        if self.failures.is_empty() {
            self.failures = other.failures;
        } else {
            self.failures.extend(other.failures.into_iter().take(room));
        }
    }

    /// Merges, and counts that a check was done.
    pub(super) fn merge_check(&mut self, other: Outcome) {
        self.merge(other);
        self.passed += 1;
    }

    /// As errors of the field `field` and what is below it; each once, though a junctor may have found it again.
    pub(super) fn into_field_errors(self, field: &str) -> Vec<FieldError> {
        let mut seen = BTreeSet::new();
        let new = |failure: &Failure| seen.insert(failure.message.clone());
        self.failures.into_iter().filter(new).collect::<Vec<_>>().into_iter().map(|f| f.at(field)).collect()
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome { failures: vec![failure], passed: 0 }
    }
}

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Failure {
    /// `None` for what kube-apiserver cannot pin to a field.
    path: Option<String>,
    message: String,
    problem: Kind,
}

#[derive(Debug)]
enum Kind {
    Required,
    TooLong(i64),
    TooMany(i64, i64),
    NotSupported(Value, Vec<String>),
    Type(Shown),
    Invalid(Shown),
}

impl Failure {
    fn new(path: Path<'_>, message: &str, problem: Kind) -> Failure {
        let path = path.to_string();
        Failure { message: format!("{path} in body {message}"), path: Some(path), problem }
    }

    pub(super) fn required(path: Path<'_>, name: &str) -> Failure {
        Failure::new(Path::Key(&path, name), "is required", Kind::Required)
    }

    pub(super) fn wrong_type(path: Path<'_>, expected: &str, value: &str) -> Failure {
        let shown = Shown::from(value);
        Failure::new(path, &format!("must be of type {expected}: {shown}"), Kind::Type(shown))
    }

    pub(super) fn too_long(path: Path<'_>, most: i64) -> Failure {
        Failure::new(path, &format!("should be at most {most} chars long"), Kind::TooLong(most))
    }

    pub(super) fn too_many(path: Path<'_>, size: i64, most: i64, what: &str) -> Failure {
        Failure::new(path, &format!("should have at most {most} {what}"), Kind::TooMany(size, most))
    }

    pub(super) fn text(path: Path<'_>, value: &str, message: String) -> Failure {
        Failure::new(path, &message, Kind::Invalid(value.into()))
    }

    pub(super) fn count(path: Path<'_>, size: i64, message: String) -> Failure {
        Failure::new(path, &message, Kind::Invalid(size.into()))
    }

    pub(super) fn number(path: Path<'_>, number: &Number, message: String) -> Failure {
        Failure::new(path, &message, Kind::Invalid(shown_number(number)))
    }

    pub(super) fn not_in(path: Path<'_>, value: &Value, allowed: &[Value]) -> Failure {
        let texts = allowed.iter().map(|allowed| match allowed {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let texts: Vec<String> = texts.collect();
        let message = format!("should be one of [{}]", texts.join(" "));
        Failure::new(path, &message, Kind::NotSupported(value.clone(), texts))
    }

    pub(super) fn forbidden(path: Path<'_>, name: &str) -> Failure {
        let message = format!("{path}.{name} in body is a forbidden property");
        Failure { path: Some(path.to_string()), message, problem: Kind::Invalid(name.into()) }
    }

    /// Of `anyOf` and its like: the message names the path itself.
    pub(super) fn junctor(path: Path<'_>, message: &str) -> Failure {
        let quoted = Shown::from(path.to_string());
        Failure::nowhere(format!("{quoted} {message}"))
    }

    pub(super) fn nowhere(message: String) -> Failure {
        Failure { path: None, message, problem: Kind::Invalid("".into()) }
    }

    fn at(self, field: &str) -> FieldError {
        let path = match (self.path.as_deref(), field) {
            (None | Some(""), "") => "<nil>".to_owned(),
            (None | Some(""), field) => field.to_owned(),
            (Some(path), "") => path.to_owned(),
            (Some(path), field) => format!("{field}.{path}"),
        };
        let size = |count: i64| usize::try_from(count).unwrap_or_default();
        let problem = match self.problem {
            Kind::Required => Problem::Required(String::new()),
            Kind::TooLong(most) => Problem::TooLong(size(most)),
            Kind::TooMany(count, most) => Problem::TooMany(size(count), size(most)),
            Kind::NotSupported(value, allowed) => Problem::NotSupported(value.into(), allowed),
            Kind::Type(value) => Problem::TypeInvalid(value, self.message),
            Kind::Invalid(value) => Problem::Invalid(value, self.message),
        };
        FieldError::new(path, problem)
    }
}

/// A number as Go prints it.
fn shown_number(number: &Number) -> Shown {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) => Shown::Raw(super::number::go_float(float)),
        _ => Shown::Value(number.clone().into()),
    }
}
