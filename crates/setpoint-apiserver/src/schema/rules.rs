//! `x-kubernetes-validations`: the CEL rules of a schema.

mod convert;
mod field_path;
mod types;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::correlate::Correlated;
use super::{Structural, Type};
use crate::cel::{self, Budget, Failure, Program};
use crate::field_error::{FieldError, Problem, Shown};

pub(super) use field_path::field_path;

/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// One of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    /// The CEL expression that must be true.
    pub(crate) rule: String,
    /// What to say when it is false; empty when not set.
    pub(crate) message: String,
    /// A CEL expression for what to say; empty when not set.
    pub(crate) message_expression: String,
    /// The reason of the cause; `None` when not set.
    pub(crate) reason: Option<String>,
    /// The field to blame, as a path relative to the node; empty when not set.
    pub(crate) field_path: String,
    /// Whether `oldSelf` is an optional, so that the rule also runs without an old value.
    pub(crate) optional_old_self: Option<bool>,
    /// Compiled when first needed, and shared by the copies of the schema.
    pub(super) compiled: Arc<OnceLock<Compiled>>,
}

/// The expressions of a rule.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    rule: Result<Program, String>,
    message: Option<Result<Program, String>>,
}

impl Rule {
    fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| Compiled {
            rule: Program::compile(&self.rule),
            message: (!self.message_expression.is_empty())
                .then(|| Program::compile(&self.message_expression)),
        })
    }

    /// How errors name the rule.
    fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    fn is_optional(&self) -> bool {
        self.optional_old_self == Some(true)
    }
}

/// What is wrong with a rule of `schema`: it must parse, be right in its types, and be a bool.
pub(super) fn check(
    rule: &Rule,
    schema: &Structural,
    root: bool,
    uncorrelatable: Option<&str>,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if rule.rule.trim().is_empty() {
        return errors;
    }
    let variables = types::variables(schema, root || schema.embedded_resource, rule.is_optional());
    let compiled = rule.compiled();
    let problem = match &compiled.rule {
        Err(error) => Some(format!("compilation failed: {error}")),
        Ok(program) => match cel::check(program, &rule.rule, &variables) {
            Err(error) => Some(format!("compilation failed: {error}")),
            Ok(cel::Kind::Bool) => None,
            Ok(_) => Some("cel expression must evaluate to a bool".to_owned()),
        },
    };
    if let Some(problem) = problem {
        errors.push(FieldError::invalid(format!("{path}.rule"), shown(rule), problem));
        return errors;
    }
    let at = format!("{path}.messageExpression");
    let problem = compiled.message.as_ref().and_then(|message| match message {
        Err(error) => Some(format!("messageExpression compilation failed: {error}")),
        Ok(program) => match cel::check(program, &rule.message_expression, &variables) {
            Err(error) => Some(format!("messageExpression compilation failed: {error}")),
            Ok(cel::Kind::String) => None,
            Ok(_) => Some("messageExpression must evaluate to a string".to_owned()),
        },
    });
    errors.extend(problem.map(|problem| FieldError::invalid(at, shown(rule), problem)));
    let uses_old = compiled.rule.as_ref().is_ok_and(|program| program.mentions("oldSelf"));
    match (uses_old, uncorrelatable, rule.optional_old_self) {
        (true, Some(within), _) => {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            errors.push(FieldError::invalid(format!("{path}.rule"), rule.rule.as_str(), detail));
        }
        (false, _, Some(set)) => {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), set, detail));
        }
        _ => {}
    }
    errors
}

/// A rule as Go prints its struct.
fn shown(rule: &Rule) -> Shown {
    let escaped = |text: String| text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let text = |value: &str| escaped(Value::from(value).to_string());
    Shown::Raw(format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        rule.reason.as_deref().map_or("null".to_owned(), text),
        text(&rule.field_path),
        rule.optional_old_self.map_or("null".to_owned(), |set| set.to_string()),
    ))
}

impl Structural {
    /// What the rules say about a value on its own; nothing is let through for being unchanged.
    pub(super) fn validate_rules(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
    ) -> Vec<FieldError> {
        let mut validation = Validation { errors: Vec::new(), budget: Budget::for_object() };
        validation.node(self, value, old, path, resource, Ratchet::default());
        validation.errors
    }

    /// What the rules say about a custom resource.
    pub(super) fn validate_object_rules(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut validation = Validation { errors: Vec::new(), budget: Budget::for_object() };
        let current = old.map(|old| Correlated { old, new: object, schema: self });
        validation.node(self, object, old, "", true, Ratchet { current, parent: None });
        validation.errors
    }
}

/// What a value may be unchanged from: its own old value, else that of the nearest parent that has one.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(&self) -> bool {
        self.current.or(self.parent).is_some_and(|correlated| correlated.is_unchanged())
    }

    fn key(self, name: &str) -> Ratchet<'a> {
        let Some(current) = self.current else { return self };
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Ratchet::default();
        }
        Ratchet { current: current.key(name), parent: self.current }
    }

    fn item(self, item: Option<Correlated<'a>>) -> Ratchet<'a> {
        match self.current {
            None => self,
            Some(_) => Ratchet { current: item, parent: self.current },
        }
    }
}

struct Validation {
    errors: Vec<FieldError>,
    budget: Budget,
}

impl Validation {
    fn node(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
        ratchet: Ratchet<'_>,
    ) {
        if !schema.has_rules || value.is_null() || self.budget.is_spent() {
            return;
        }
        self.rules(schema, value, old.filter(|old| !old.is_null()), path, resource, ratchet);
        match value {
            Value::Array(items) => self.items(schema, items, value, old, path, ratchet),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(schema) = schema.additional() {
                        let at = format!("{path}[{name}]");
                        self.node(schema, value, old, &at, schema.embedded_resource, ratchet.key(name));
                    }
                    if let Some(schema) = schema.properties.get(name) {
                        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        self.node(schema, value, old, &at, schema.embedded_resource, ratchet.key(name));
                    }
                }
            }
            _ => {}
        }
    }

    fn items(
        &mut self,
        schema: &Structural,
        items: &[Value],
        list: &Value,
        old: Option<&Value>,
        path: &str,
        ratchet: Ratchet<'_>,
    ) {
        let Some(item_schema) = schema.items.as_deref() else { return };
        let old_items = old.and_then(|old| Correlated { old, new: list, schema }.items());
        let ratcheted = ratchet.current.and_then(|current| current.items());
        for (index, item) in items.iter().enumerate() {
            let old = old_items.as_ref().and_then(|items| *items.get(index)?).map(|item| item.old);
            let ratchet = ratchet.item(ratcheted.as_ref().and_then(|items| *items.get(index)?));
            let at = format!("{path}[{index}]");
            self.node(item_schema, item, old, &at, item_schema.embedded_resource, ratchet);
        }
    }

    fn rules(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
        ratchet: Ratchet<'_>,
    ) {
        if schema.rules.is_empty() {
            return;
        }
        let resource = resource || schema.embedded_resource;
        let this = convert::to_cel(value, schema, resource);
        let before = old.map(|old| convert::to_cel(old, schema, resource));
        let at = if path.is_empty() { "<nil>" } else { path };
        for rule in &schema.rules {
            if self.budget.is_spent() {
                self.errors.push(FieldError::invalid(at, type_word(schema), OUT_OF_BUDGET));
                return;
            }
            if let Some(error) = self.rule(schema, rule, &this, before.as_ref(), value, path, ratchet) {
                self.errors.push(error);
            }
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one rule at one place; a struct would be made for this call alone"
    )]
    fn rule(
        &mut self,
        schema: &Structural,
        rule: &Rule,
        this: &cel::Value,
        before: Option<&cel::Value>,
        value: &Value,
        path: &str,
        ratchet: Ratchet<'_>,
    ) -> Option<FieldError> {
        if rule.rule.trim().is_empty() {
            return None;
        }
        let at = if path.is_empty() { "<nil>" } else { path };
        let invalid = |detail: String| Some(FieldError::invalid(at, type_word(schema), detail));
        let program = match &rule.compiled().rule {
            Ok(program) => program,
            Err(error) => return invalid(format!("rule compile error: compilation failed: {error}")),
        };
        let uses_old = program.mentions("oldSelf");
        if uses_old && before.is_none() && !rule.is_optional() {
            return None;
        }
        let mut variables = vec![("self", Ok(this.clone()))];
        match before {
            _ if rule.is_optional() => {
                let old = before.cloned().map_or_else(cel::none, cel::optional);
                variables.push(("oldSelf", Ok(old)));
            }
            Some(before) => variables.push(("oldSelf", Ok(before.clone()))),
            None => {}
        }
        match program.evaluate(&variables, &mut self.budget) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(_) if !uses_old && ratchet.is_unchanged() => None,
            Ok(_) => Some(self.refusal(schema, rule, &variables, value, path)),
            Err(Failure::TooExpensive) => {
                let detail = if self.budget.is_spent() {
                    OUT_OF_BUDGET.to_owned()
                } else {
                    self.budget = Budget::nothing();
                    format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        Failure::TooExpensive,
                        rule.name()
                    )
                };
                invalid(detail)
            }
            Err(Failure::Error(error)) if error.starts_with("no such overload") => invalid(format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.name()
            )),
            Err(error) => invalid(format!("{error} evaluating rule: {}", rule.name())),
        }
    }

    /// The error for a rule that is false.
    fn refusal(
        &mut self,
        schema: &Structural,
        rule: &Rule,
        variables: &[(&str, Result<cel::Value, Failure>)],
        value: &Value,
        path: &str,
    ) -> FieldError {
        let field = match field_path(&rule.field_path, schema).filter(|_| !rule.field_path.is_empty()) {
            Some(below) if path.is_empty() => below,
            Some(below) if below.starts_with('[') => format!("{path}{below}"),
            Some(below) => format!("{path}.{below}"),
            None if path.is_empty() => "<nil>".to_owned(),
            None => path.to_owned(),
        };
        let made = rule.compiled().message.as_ref().and_then(|message| message.as_ref().ok());
        let made = made.and_then(|program| {
            let message = program.evaluate(variables, &mut self.budget).ok()?;
            usable_message(&message)
        });
        let detail = made.unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.name()),
            message => message.trim().to_owned(),
        });
        let hidden = matches!(schema.type_, Some(Type::Object | Type::Array));
        FieldError::new(
            field,
            match rule.reason.as_deref() {
                Some("FieldValueForbidden") => Problem::Forbidden(detail),
                Some("FieldValueRequired") => Problem::Required(detail),
                Some("FieldValueDuplicate") if hidden => {
                    Problem::Duplicate(Shown::Raw(String::new()), String::new())
                }
                Some("FieldValueDuplicate") => Problem::Duplicate(value.clone().into(), String::new()),
                _ if hidden => Problem::InvalidHidden(detail),
                _ => Problem::Invalid(value.clone().into(), detail),
            },
        )
    }
}

/// A message of one line that is not too long.
pub(crate) fn usable_message(message: &cel::Value) -> Option<String> {
    let cel::Value::String(message) = message else { return None };
    let message = message.trim();
    let usable = !message.is_empty() && message.len() <= MAX_MESSAGE && !message.contains('\n');
    usable.then(|| message.to_owned())
}

fn type_word(schema: &Structural) -> &str {
    schema.type_.as_ref().map_or("", Type::as_str)
}

#[cfg(test)]
mod tests;
