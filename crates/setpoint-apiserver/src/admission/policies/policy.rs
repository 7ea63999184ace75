//! One policy, compiled.

use serde_json::Value;

use crate::admission::conditions::{Conditions, Expression, Variables};
use crate::admission::matching::Matching;
use crate::cel::{self, Budget};
use crate::schema::usable_message;

/// A ValidatingAdmissionPolicy.
pub(super) struct Policy {
    pub(super) matching: Matching,
    /// Whether what cannot be decided is refused.
    pub(super) is_needed: bool,
    /// The kind of its parameters: apiVersion and kind.
    pub(super) param_kind: Option<(String, String)>,
    conditions: Conditions,
    /// By the name under which expressions find them.
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// Why a policy refuses.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) message: String,
    pub(super) reason: String,
}

impl Decision {
    pub(super) fn error(message: String) -> Decision {
        Decision { message, reason: String::new() }
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

impl Policy {
    pub(super) fn parse(policy: &Value) -> Policy {
        let spec = &policy["spec"];
        let listed = |name: &str| spec[name].as_array().map_or(&[][..], Vec::as_slice).iter();
        let kind = &spec["paramKind"];
        Policy {
            matching: Matching::parse(&spec["matchConstraints"], "resourceRules"),
            is_needed: spec["failurePolicy"] != "Ignore",
            param_kind: (!kind.is_null())
                .then(|| (text(kind, "apiVersion").to_owned(), text(kind, "kind").to_owned())),
            conditions: Conditions::parse(&spec["matchConditions"]),
            variables: listed("variables")
                .map(|variable| {
                    let name = format!("variables.{}", text(variable, "name"));
                    (name, Expression::new(text(variable, "expression")))
                })
                .collect(),
            validations: listed("validations").map(Validation::parse).collect(),
        }
    }

    /// Everything that the policy has against a request.
    pub(super) fn decide(&self, mut variables: Variables<'_>) -> Vec<Decision> {
        let failed =
            |message: String| if self.is_needed { vec![Decision::error(message)] } else { Vec::new() };
        match self.conditions.hold(&variables) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(why) => return failed(why),
        }
        let mut budget = Budget::for_object();
        let mut known: Variables<'_> = std::mem::take(&mut variables);
        for (name, expression) in &self.variables {
            // What nothing mentions is not worked out.
            if self.mentions(name) {
                let short = name.trim_start_matches("variables.");
                let value = expression.evaluate_variable(short, &known, &mut budget);
                known.push((name, value));
            }
        }
        let mut decisions = Vec::new();
        for validation in &self.validations {
            match validation.expression.evaluate(&known, &mut budget) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(_) => decisions.push(validation.refusal(&known, &mut budget)),
                Err(why) => decisions.extend(failed(why)),
            }
        }
        decisions
    }

    fn mentions(&self, name: &str) -> bool {
        let in_variables = self.variables.iter().map(|(_, expression)| expression);
        let in_validations = self.validations.iter().flat_map(|validation| {
            std::iter::once(&validation.expression).chain(validation.message_expression.as_ref())
        });
        in_variables.chain(in_validations).any(|expression| expression.mentions(name))
    }
}

impl Validation {
    fn parse(validation: &Value) -> Validation {
        let message_expression = text(validation, "messageExpression");
        Validation {
            expression: Expression::new(text(validation, "expression")),
            message: text(validation, "message").trim().to_owned(),
            message_expression: (!message_expression.trim().is_empty())
                .then(|| Expression::new(message_expression)),
            reason: text(validation, "reason").to_owned(),
        }
    }

    fn refusal(&self, variables: &Variables<'_>, budget: &mut Budget) -> Decision {
        let made = self
            .message_expression
            .as_ref()
            .and_then(|expression| usable_message(&expression.evaluate(variables, budget).ok()?));
        let message = made.unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.source().trim()),
            message => message.to_owned(),
        });
        Decision { message, reason: self.reason.clone() }
    }
}
