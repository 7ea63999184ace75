//! Functions: those that need a price of their own here, the others those of `kube-cel`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, Value};

use super::evaluate::{Evaluator, Failure};
use super::value::{self, TypeValue, in_optional, size};
use crate::schema::Pattern;

/// What compiling a regular expression costs, whatever it is: the compiler's own limits bound it.
const PATTERN_COST: u64 = 10_000;
/// More digits than this after the point are nobody's wish.
const MAX_PRECISION: usize = 100;

/// Words before a dot that belong to the name of a function.
pub(super) fn is_namespace(name: &str) -> bool {
    matches!(
        name,
        "sets"
            | "math"
            | "base64"
            | "optional"
            | "ip"
            | "cidr"
            | "jsonpatch"
            | "lists"
            | "format"
            | "strings"
    )
}

/// The regular expressions that an evaluation has compiled.
#[derive(Default)]
pub(super) struct Patterns(BTreeMap<String, Arc<Pattern>>);

/// Calls a function.
pub(super) fn call(
    evaluator: &mut Evaluator<'_>,
    name: &str,
    target: Option<Value>,
    args: Vec<Value>,
) -> Result<Value, Failure> {
    if let Some(result) = own(evaluator, name, target.as_ref(), &args) {
        return result;
    }
    evaluator.pay(price(name, target.as_ref(), &args)?)?;
    delegate(name, target, args)
}

fn own(
    evaluator: &mut Evaluator<'_>,
    name: &str,
    target: Option<&Value>,
    args: &[Value],
) -> Option<Result<Value, Failure>> {
    Some(match (name, target, args) {
        ("type", None, [value]) => Ok(type_of(value)),
        ("dyn", None, [value]) => Ok(value.clone()),
        ("size", Some(value), []) | ("size", None, [value]) => length(value),
        ("bool", None, [value]) => truth(value),
        ("contains" | "startsWith" | "endsWith", Some(Value::String(text)), [Value::String(part)]) => {
            let cost = text.len() as u64 / 10 + 1;
            evaluator.pay(cost).map(|()| {
                Value::Bool(match name {
                    "contains" => text.contains(part.as_str()),
                    "startsWith" => text.starts_with(part.as_str()),
                    _ => text.ends_with(part.as_str()),
                })
            })
        }
        ("matches", Some(Value::String(text)), [Value::String(pattern)])
        | ("matches", None, [Value::String(text), Value::String(pattern)]) => {
            matched(evaluator, text, pattern, |pattern| Value::Bool(pattern.matches(text)))
        }
        ("find", Some(Value::String(text)), [Value::String(pattern)]) => {
            matched(evaluator, text, pattern, |pattern| {
                value::text(pattern.find(text, 1).first().unwrap_or(&""))
            })
        }
        ("findAll", Some(Value::String(text)), [Value::String(pattern)]) => {
            found_all(evaluator, text, pattern, usize::MAX)
        }
        ("findAll", Some(Value::String(text)), [Value::String(pattern), Value::Int(most)]) => {
            found_all(evaluator, text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        ("unwrapOpt" | "unwrap", Some(Value::List(items)), []) => Ok(value::list(
            items.iter().filter_map(|item| in_optional(item).unwrap_or(Some(item)).cloned()).collect(),
        )),
        ("hasValue", Some(value), []) => match in_optional(value) {
            Some(inner) => Ok(Value::Bool(inner.is_some())),
            None => Err(Failure::no_such_overload()),
        },
        ("value", Some(value), []) => match in_optional(value) {
            Some(Some(inner)) => Ok(inner.clone()),
            Some(None) => Err(Failure::error("optional.none() dereference")),
            None => Err(Failure::no_such_overload()),
        },
        ("orValue", Some(value), [other]) => match in_optional(value) {
            Some(inner) => Ok(inner.unwrap_or(other).clone()),
            None => Err(Failure::no_such_overload()),
        },
        ("or", Some(value), [other]) => match in_optional(value) {
            Some(Some(_)) => Ok(value.clone()),
            Some(None) => Ok(other.clone()),
            None => Err(Failure::no_such_overload()),
        },
        ("optional.of", None, [value]) => Ok(value::optional(value.clone())),
        ("optional.none", None, []) => Ok(value::none()),
        ("optional.ofNonZeroValue", None, [value]) => {
            Ok(if value.is_zero() { value::none() } else { value::optional(value.clone()) })
        }
        _ => return None,
    })
}

fn type_of(value: &Value) -> Value {
    Value::Opaque(Arc::new(TypeValue(value::type_name(value).to_owned())))
}

fn length(value: &Value) -> Result<Value, Failure> {
    let length = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        _ => return Err(Failure::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn truth(value: &Value) -> Result<Value, Failure> {
    match value {
        Value::Bool(truth) => Ok(Value::Bool(*truth)),
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(Failure::error("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn matched(
    evaluator: &mut Evaluator<'_>,
    text: &str,
    pattern: &str,
    result: impl FnOnce(&Pattern) -> Value,
) -> Result<Value, Failure> {
    let compiled = match evaluator.patterns.0.get(pattern) {
        Some(compiled) => compiled.clone(),
        None => {
            evaluator.pay(PATTERN_COST)?;
            let compiled = Arc::new(Pattern::new(pattern));
            evaluator.patterns.0.insert(pattern.to_owned(), compiled.clone());
            compiled
        }
    };
    if let Some(error) = compiled.error() {
        return Err(Failure::error(error));
    }
    evaluator.pay((text.len() as u64 / 10 + 1) * (pattern.len() as u64 / 4 + 1))?;
    Ok(result(&compiled))
}

fn found_all(
    evaluator: &mut Evaluator<'_>,
    text: &str,
    pattern: &str,
    most: usize,
) -> Result<Value, Failure> {
    matched(evaluator, text, pattern, |pattern| {
        value::list(pattern.find(text, most).into_iter().map(value::text).collect())
    })
}

/// What a function may at most read and make.
fn price(name: &str, target: Option<&Value>, args: &[Value]) -> Result<u64, Failure> {
    let all = target.map_or(0, size) + args.iter().map(size).sum::<u64>();
    let length = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.len() as u64,
        Some(Value::List(items)) => items.len() as u64,
        _ => 0,
    };
    Ok(match name {
        "replace" => all + length(target).saturating_add(1).saturating_mul(length(args.get(1)) + 1) / 10,
        "join" => all + length(target).saturating_mul(length(args.first()) + 1) / 10,
        "split" => all + length(target),
        "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            let sizes: Vec<u64> = args.iter().map(size).collect();
            sizes.iter().product()
        }
        "distinct" | "sort" => all.saturating_mul(all),
        "lists.range" => match args {
            [Value::Int(count)] => all + u64::try_from(*count).unwrap_or(0),
            _ => all,
        },
        "format" => {
            if let Some(Value::String(text)) = target
                && widest_precision(text) > MAX_PRECISION
            {
                return Err(Failure::error(format!("precision is more than {MAX_PRECISION}")));
            }
            // An argument may be printed once for each verb, but there is one verb for each.
            all.saturating_mul(4)
        }
        _ => all,
    })
}

fn widest_precision(format: &str) -> usize {
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().unwrap_or(usize::MAX)).max().unwrap_or(0)
}

thread_local! {
    static LIBRARY: Context<'static> = Context::default().with_all();
}

/// Whether a function takes this text as its only argument; `true` for those that take any.
pub(super) fn is_argument(name: &str, text: &str) -> bool {
    match name {
        "duration" | "timestamp" => delegate(name, None, vec![super::text(text)]).is_ok(),
        "matches" => Pattern::new(text).error().is_none(),
        _ => true,
    }
}

/// Calls a function of the crates. Their interface wants expressions, so the values become variables.
pub(super) fn delegate(name: &str, target: Option<Value>, args: Vec<Value>) -> Result<Value, Failure> {
    if !super::library::is_function(name) {
        return Err(Failure::error(format!("undeclared reference to '{name}'")));
    }
    if args.iter().chain(&target).any(holds_type) {
        return Err(Failure::no_such_overload());
    }
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        let mut variable = |name: String, value: Value| {
            scope.add_variable_from_value(name.clone(), value);
            IdedExpr { id: 0, expr: Expr::Ident(name) }
        };
        let target = target.map(|target| Box::new(variable("@target".to_owned(), target)));
        let args =
            args.into_iter().enumerate().map(|(index, arg)| variable(format!("@{index}"), arg)).collect();
        let call = CallExpr { func_name: name.to_owned(), target, args };
        Ok(scope.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) })?)
    })
}

/// Types as values are ours alone.
fn holds_type(value: &Value) -> bool {
    matches!(value, Value::Opaque(opaque) if opaque.downcast_ref::<TypeValue>().is_some())
        || matches!(value, Value::Function(..))
}
