//! `matchConditions` of webhooks and policies.

use serde_json::Value;

use crate::cel::{self, Budget, Failure, Program};

/// The conditions in their order.
#[derive(Debug, Default)]
pub(super) struct Conditions(Vec<Expression>);

/// An expression and its source.
#[derive(Debug)]
pub(super) struct Expression {
    source: String,
    program: Result<Program, String>,
}

/// Variables by name.
pub(super) type Variables<'a> = Vec<(&'a str, Result<cel::Value, Failure>)>;

impl Expression {
    pub(super) fn new(source: &str) -> Expression {
        Expression { source: source.to_owned(), program: Program::compile(source) }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn mentions(&self, name: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.mentions(name))
    }

    /// The value; an error says which expression it was.
    pub(super) fn evaluate(
        &self,
        variables: &Variables<'_>,
        budget: &mut Budget,
    ) -> Result<cel::Value, String> {
        let program = self.program.as_ref().map_err(|error| format!("compilation error: {error}"))?;
        if budget.is_spent() {
            return Err(OUT_OF_BUDGET.to_owned());
        }
        program.evaluate(variables, budget).map_err(|failure| match failure {
            Failure::TooExpensive => OUT_OF_BUDGET.to_owned(),
            Failure::Error(error) => format!("expression '{}' resulted in error: {error}", self.source),
        })
    }

    /// The value as a failure that others may meet through a variable.
    pub(super) fn evaluate_variable(
        &self,
        name: &str,
        variables: &Variables<'_>,
        budget: &mut Budget,
    ) -> Result<cel::Value, Failure> {
        let program = self.program.as_ref().map_err(|error| Failure::error(error.as_str()))?;
        program.evaluate(variables, budget).map_err(|failure| {
            Failure::error(format!("composited variable {name:?} fails to evaluate: {failure}"))
        })
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Conditions {
    pub(super) fn parse(conditions: &Value) -> Conditions {
        let listed = conditions.as_array().into_iter().flatten();
        let expression =
            |condition: &Value| Expression::new(condition["expression"].as_str().unwrap_or_default().trim());
        Conditions(listed.map(expression).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are true. One that is false decides, whatever the errors of others.
    pub(super) fn hold(&self, variables: &Variables<'_>) -> Result<bool, String> {
        let mut budget = Budget::for_conditions();
        let mut errors = Vec::new();
        for condition in &self.0 {
            match condition.evaluate(variables, &mut budget) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [error] => Err(error.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}
