//! The evaluator: every step is paid for.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{ExecutionError, Value};

use super::functions;
use super::node::{Binary, Bind, Loop, Node};
use super::value::{self, TypeValue, in_optional};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error of the expression, in cel-go's words.
    Error(Arc<str>),
    /// It would have cost too much.
    TooExpensive,
}

impl Failure {
    pub(crate) fn error(message: impl Into<Arc<str>>) -> Failure {
        Failure::Error(message.into())
    }

    pub(super) fn no_such_overload() -> Failure {
        Failure::error("no such overload")
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Error(message) => f.write_str(message),
            Failure::TooExpensive => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

/// Never the values: they may be huge.
impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Failure {
        match error {
            ExecutionError::NoSuchKey(key) => Failure::error(format!("no such key: {key}")),
            ExecutionError::DivisionByZero(_) => Failure::error("division by zero"),
            ExecutionError::RemainderByZero(_) => Failure::error("modulus by zero"),
            ExecutionError::Overflow(..) => Failure::error("integer overflow"),
            ExecutionError::IndexOutOfBounds(_) => Failure::error("index out of bounds"),
            ExecutionError::UndeclaredReference(name) => {
                Failure::error(format!("undeclared reference to '{name}'"))
            }
            ExecutionError::FunctionError { message, .. } => Failure::error(message),
            _ => Failure::no_such_overload(),
        }
    }
}

type Evaluated = Result<Value, Failure>;

/// One evaluation.
pub(super) struct Evaluator<'a> {
    variables: &'a [(&'a str, Evaluated)],
    /// The names that macros bind, innermost last.
    scope: Vec<(&'a str, Evaluated)>,
    left: u64,
    pub(super) patterns: functions::Patterns,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(variables: &'a [(&'a str, Evaluated)], left: u64) -> Evaluator<'a> {
        Evaluator { variables, scope: Vec::new(), left, patterns: functions::Patterns::default() }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Pays for what is about to be done.
    pub(super) fn pay(&mut self, cost: u64) -> Result<(), Failure> {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Failure::TooExpensive)
            }
        }
    }

    pub(super) fn evaluate(&mut self, node: &'a Node) -> Evaluated {
        self.pay(1)?;
        match node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Name(name) => self.name(name),
            Node::Select { operand, field, optional } => self.select(operand, field, *optional),
            Node::Has { operand, field } => self.has(operand, field),
            Node::Index { operand, index, optional } => self.index(operand, index, *optional),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::And(a, b) => self.logic(a, b, false),
            Node::Or(a, b) => self.logic(a, b, true),
            Node::Not(operand) => Ok(Value::Bool(!self.truth(operand)?)),
            Node::Negate(operand) => negate(self.evaluate(operand)?),
            Node::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                if self.truth(condition)? { self.evaluate(yes) } else { self.evaluate(no) }
            }
            Node::NotStrictlyFalse(operand) => match self.evaluate(operand) {
                Err(Failure::TooExpensive) => Err(Failure::TooExpensive),
                Ok(Value::Bool(false)) => Ok(Value::Bool(false)),
                _ => Ok(Value::Bool(true)),
            },
            Node::Binary(operator, sides) => self.binary(*operator, &sides[0], &sides[1]),
            Node::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Node::Loop(fold) => self.fold(fold),
            Node::Bind { name, value, body, kind } => self.bind(name, value, body, *kind),
            Node::Insert(parts) => self.insert(parts),
            Node::SortBy { list, name, key } => self.sort_by(list, name, key),
        }
    }

    fn truth(&mut self, node: &'a Node) -> Result<bool, Failure> {
        match self.evaluate(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn lookup(&self, name: &str) -> Option<Evaluated> {
        let bound = self.scope.iter().rev().find(|(bound, _)| *bound == name);
        let found = bound.or_else(|| self.variables.iter().find(|(variable, _)| *variable == name));
        found.map(|(_, value)| value.clone())
    }

    fn name(&mut self, name: &str) -> Evaluated {
        if let Some(value) = self.lookup(name) {
            return value;
        }
        match name {
            "int" | "uint" | "double" | "bool" | "string" | "bytes" | "list" | "map" | "null_type"
            | "type" => Ok(Value::Opaque(Arc::new(TypeValue(name.to_owned())))),
            _ => Err(Failure::error(format!("undeclared reference to '{name}'"))),
        }
    }

    /// `a.b` where only `a.b` is a variable, as with the variables of a policy.
    fn qualified(&self, operand: &Node, field: &str) -> Option<Evaluated> {
        let Node::Name(name) = operand else { return None };
        self.lookup(&format!("{name}.{field}"))
    }

    fn select(&mut self, operand: &'a Node, field: &str, optional: bool) -> Evaluated {
        if let Some(value) = self.qualified(operand, field) {
            return value;
        }
        let operand = self.evaluate(operand)?;
        if let Some(inner) = in_optional(&operand) {
            return Ok(match inner.and_then(|inner| get_field(inner, field)) {
                Some(found) => value::optional(found.clone()),
                None => value::none(),
            });
        }
        match get_field(&operand, field) {
            Some(found) if optional => Ok(value::optional(found.clone())),
            Some(found) => Ok(found.clone()),
            None if optional && matches!(operand, Value::Map(_)) => Ok(value::none()),
            None if matches!(operand, Value::Map(_)) => Err(no_such_key(field)),
            None => Err(Failure::no_such_overload()),
        }
    }

    fn has(&mut self, operand: &'a Node, field: &str) -> Evaluated {
        if let Some(value) = self.qualified(operand, field) {
            return value.map(|_| Value::Bool(true));
        }
        let operand = self.evaluate(operand)?;
        match in_optional(&operand).unwrap_or(Some(&operand)) {
            None => Ok(Value::Bool(false)),
            Some(value @ Value::Map(_)) => Ok(Value::Bool(get_field(value, field).is_some())),
            Some(_) => Err(Failure::no_such_overload()),
        }
    }

    fn index(&mut self, operand: &'a Node, index: &'a Node, optional: bool) -> Evaluated {
        let operand = self.evaluate(operand)?;
        let index = self.evaluate(index)?;
        if let Some(inner) = in_optional(&operand) {
            let found = inner.and_then(|inner| get_index(inner, &index).ok());
            return Ok(found.map_or_else(value::none, value::optional));
        }
        match get_index(&operand, &index) {
            found if optional => Ok(found.map_or_else(|_| value::none(), value::optional)),
            found => found,
        }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Evaluated {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.evaluate(item)?;
            match in_optional(&value).filter(|_| *optional) {
                Some(inner) => values.extend(inner.cloned()),
                None => values.push(value),
            }
        }
        Ok(value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Evaluated {
        let mut pairs = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.evaluate(key)?;
            let key = value::key(&key).ok_or_else(Failure::no_such_overload)?;
            let value = self.evaluate(value)?;
            match in_optional(&value).filter(|_| *optional) {
                Some(inner) => pairs.extend(inner.cloned().map(|inner| (key, inner))),
                None => pairs.push((key, value)),
            }
        }
        Ok(Value::Map(Map { map: Arc::new(pairs.into_iter().collect()) }))
    }

    /// Either side decides if it is `decisive`, even if the other is an error.
    fn logic(&mut self, a: &'a Node, b: &'a Node, decisive: bool) -> Evaluated {
        let first = self.truth(a);
        match first {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Err(Failure::TooExpensive) => return Err(Failure::TooExpensive),
            _ => {}
        }
        let second = self.truth(b);
        match (first, second) {
            (_, Err(Failure::TooExpensive)) => Err(Failure::TooExpensive),
            (_, Ok(value)) if value == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Ok(Value::Bool(!decisive)),
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "these operators return an error when they overflow")]
    fn binary(&mut self, operator: Binary, a: &'a Node, b: &'a Node) -> Evaluated {
        // The result of a fold is moved out, so that it can grow in place.
        let left = match a {
            Node::Name(name) if operator == Binary::Add && name.starts_with('@') => self.take(name)?,
            a => self.evaluate(a)?,
        };
        let right = self.evaluate(b)?;
        let ordered = |accept: fn(Ordering) -> bool| match left.partial_cmp(&right) {
            Some(order) => Ok(Value::Bool(accept(order))),
            None if is_nan(&left) || is_nan(&right) => Ok(Value::Bool(false)),
            None => Err(Failure::no_such_overload()),
        };
        match operator {
            Binary::Equal => Ok(Value::Bool(self.equal(&left, &right)?)),
            Binary::NotEqual => Ok(Value::Bool(!self.equal(&left, &right)?)),
            Binary::In => self.contains(&right, &left),
            Binary::Less => ordered(Ordering::is_lt),
            Binary::LessEqual => ordered(Ordering::is_le),
            Binary::Greater => ordered(Ordering::is_gt),
            Binary::GreaterEqual => ordered(Ordering::is_ge),
            Binary::Add => self.add(left, right),
            Binary::Subtract => Ok((left - right)?),
            Binary::Multiply => Ok((left * right)?),
            Binary::Divide => Ok((left / right)?),
            Binary::Modulo => Ok((left % right)?),
        }
    }

    fn take(&mut self, name: &str) -> Evaluated {
        let slot = self.scope.iter_mut().rev().find(|(bound, _)| *bound == name);
        slot.map_or_else(
            || Err(Failure::error(format!("undeclared reference to '{name}'"))),
            |(_, value)| std::mem::replace(value, Ok(Value::Null)),
        )
    }

    #[expect(clippy::arithmetic_side_effects, reason = "this operator returns an error when it overflows")]
    fn add(&mut self, left: Value, right: Value) -> Evaluated {
        match (left, right) {
            (Value::List(mut left), Value::List(right)) => {
                let copied = if Arc::strong_count(&left) == 1 { 0 } else { left.len() };
                self.pay((copied + right.len()) as u64)?;
                Arc::make_mut(&mut left).extend(right.iter().cloned());
                Ok(Value::List(left))
            }
            (Value::String(left), Value::String(right)) => {
                self.pay((left.len() + right.len()) as u64 / 10)?;
                Ok(Value::String(Arc::new(format!("{left}{right}"))))
            }
            (Value::Bytes(left), Value::Bytes(right)) => {
                self.pay((left.len() + right.len()) as u64 / 10)?;
                Ok(Value::Bytes(Arc::new([left.as_slice(), right.as_slice()].concat())))
            }
            (left @ (Value::Map(_) | Value::List(_)), _) | (_, left @ (Value::Map(_) | Value::List(_))) => {
                drop(left);
                Err(Failure::no_such_overload())
            }
            (left, right) => Ok((left + right)?),
        }
    }

    fn contains(&mut self, container: &Value, wanted: &Value) -> Evaluated {
        match container {
            Value::List(items) => {
                for item in items.iter() {
                    if self.equal(item, wanted)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Value::Map(map) => {
                Ok(Value::Bool(value::key(wanted).is_some_and(|key| map.map.contains_key(&key))))
            }
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn fold(&mut self, fold: &'a Loop) -> Evaluated {
        let range = self.evaluate(&fold.range)?;
        let range = match &range {
            Value::Opaque(_) => in_optional(&range).flatten().cloned().unwrap_or(range),
            _ => range,
        };
        let start = self.evaluate(&fold.start)?;
        let depth = self.scope.len();
        self.scope.push((&fold.result_name, Ok(start)));
        let result = self.fold_items(fold, &range).and_then(|()| self.evaluate(&fold.result));
        self.scope.truncate(depth);
        result
    }

    fn fold_items(&mut self, fold: &'a Loop, range: &Value) -> Result<(), Failure> {
        match range {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    if !self.fold_item(fold, index, item, item)? {
                        break;
                    }
                }
                Ok(())
            }
            Value::Map(map) => {
                self.pay(map.map.len() as u64)?;
                for key in value::sorted_keys(map) {
                    let name = of_key(&key);
                    let Some(item) = map.map.get(&key) else { continue };
                    if !self.fold_item(fold, name.clone(), item, &name)? {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Failure::no_such_overload()),
        }
    }

    /// One round; whether to go on. With one variable that is `only`: the item of a list, the key of a map.
    fn fold_item(
        &mut self,
        fold: &'a Loop,
        index: Value,
        item: &Value,
        only: &Value,
    ) -> Result<bool, Failure> {
        if !self.truth(&fold.condition)? {
            return Ok(false);
        }
        let depth = self.scope.len();
        match &fold.second {
            None => self.scope.push((&fold.first, Ok(only.clone()))),
            Some(second) => {
                self.scope.push((&fold.first, Ok(index)));
                self.scope.push((second, Ok(item.clone())));
            }
        }
        let stepped = self.evaluate(&fold.step);
        self.scope.truncate(depth);
        if stepped == Err(Failure::TooExpensive) {
            return Err(Failure::TooExpensive);
        }
        // An error may yet be overruled by a later item.
        if let Some((_, result)) = self.scope.last_mut() {
            *result = stepped;
        }
        Ok(true)
    }

    fn bind(&mut self, name: &'a str, bound: &'a Node, body: &'a Node, kind: Bind) -> Evaluated {
        let mut bound = self.evaluate(bound)?;
        if kind != Bind::Plain {
            bound = match in_optional(&bound) {
                Some(Some(inner)) => inner.clone(),
                Some(None) => return Ok(value::none()),
                None => return Err(Failure::no_such_overload()),
            };
        }
        self.scope.push((name, Ok(bound)));
        let result = self.evaluate(body);
        self.scope.pop();
        match kind {
            Bind::OptionalMap => result.map(value::optional),
            Bind::Plain | Bind::OptionalFlatMap => result,
        }
    }

    fn insert(&mut self, parts: &'a [Node; 3]) -> Evaluated {
        let [map, key, item] = parts;
        let map = match map {
            Node::Name(name) => self.take(name)?,
            other => self.evaluate(other)?,
        };
        let key = self.evaluate(key)?;
        let item = self.evaluate(item)?;
        let (Value::Map(mut map), Some(key)) = (map, value::key(&key)) else {
            return Err(Failure::no_such_overload());
        };
        Arc::make_mut(&mut map.map).insert(key, item);
        Ok(Value::Map(map))
    }

    fn sort_by(&mut self, list: &'a Node, name: &'a str, key: &'a Node) -> Evaluated {
        let Value::List(items) = self.evaluate(list)? else { return Err(Failure::no_such_overload()) };
        let mut keyed = Vec::with_capacity(items.len());
        for item in items.iter() {
            self.scope.push((name, Ok(item.clone())));
            let key = self.evaluate(key);
            self.scope.pop();
            keyed.push((key?, item.clone()));
        }
        self.pay(keyed.len() as u64 * 16)?;
        let mut comparable = true;
        keyed.sort_by(|(a, _), (b, _)| {
            a.partial_cmp(b).unwrap_or_else(|| {
                comparable = false;
                Ordering::Equal
            })
        });
        if !comparable {
            return Err(Failure::no_such_overload());
        }
        Ok(value::list(keyed.into_iter().map(|(_, item)| item).collect()))
    }

    fn call(&mut self, name: &'a str, target: Option<&'a Node>, args: &'a [Node]) -> Evaluated {
        // `sets.contains(a, b)` is a function of that name, unless `sets` is a variable.
        if let Some(Node::Name(space)) = target
            && functions::is_namespace(space)
            && self.lookup(space).is_none()
        {
            let args = self.arguments(args)?;
            return functions::call(self, &format!("{space}.{name}"), None, args);
        }
        let target = match target {
            Some(target) => Some(self.evaluate(target)?),
            None => None,
        };
        let args = self.arguments(args)?;
        functions::call(self, name, target, args)
    }

    fn arguments(&mut self, args: &'a [Node]) -> Result<Vec<Value>, Failure> {
        args.iter().map(|arg| self.evaluate(arg)).collect()
    }
}

fn no_such_key(name: &str) -> Failure {
    Failure::error(format!("no such key: {name}"))
}

fn get_field<'v>(value: &'v Value, field: &str) -> Option<&'v Value> {
    let Value::Map(map) = value else { return None };
    map.map.get(&Key::String(Arc::new(field.to_owned())))
}

fn get_index(operand: &Value, index: &Value) -> Evaluated {
    match operand {
        Value::List(items) => {
            let position = match value::key(index) {
                Some(Key::Int(position)) => position,
                Some(Key::Uint(position)) => i64::try_from(position).unwrap_or(i64::MAX),
                _ => return Err(Failure::no_such_overload()),
            };
            let item = usize::try_from(position).ok().and_then(|position| items.get(position));
            item.cloned().ok_or_else(|| Failure::error(format!("index out of bounds: {position}")))
        }
        Value::Map(map) => {
            let key = value::key(index).ok_or_else(Failure::no_such_overload)?;
            map.map.get(&key).cloned().ok_or_else(|| match index {
                Value::String(name) => no_such_key(name),
                _ => Failure::error("no such key"),
            })
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn of_key(key: &Key) -> Value {
    match key {
        Key::Int(integer) => Value::Int(*integer),
        Key::Uint(integer) => Value::UInt(*integer),
        Key::Bool(truth) => Value::Bool(*truth),
        Key::String(text) => Value::String(text.clone()),
    }
}

fn is_nan(value: &Value) -> bool {
    matches!(value, Value::Float(float) if float.is_nan())
}

fn negate(value: Value) -> Evaluated {
    match value {
        Value::Int(integer) => {
            integer.checked_neg().map(Value::Int).ok_or_else(|| Failure::error("integer overflow"))
        }
        Value::Float(float) => Ok(Value::Float(-float)),
        _ => Err(Failure::no_such_overload()),
    }
}
