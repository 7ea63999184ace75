//! The type checker: what cel-go refuses to compile, in its words.

use super::kind::{Kind, Object};
use super::node::{Binary, Bind, Loop, Node};
use super::overloads::{self, PARAMETERS};
use super::tokens::{LITERAL, Tokens};
use super::{Program, Value, functions};

/// How many errors of one expression are told.
const MOST_ERRORS: usize = 100;

/// The type of an expression that may mention `variables`, or what is wrong with it.
pub(crate) fn check<O: Object>(
    program: &Program,
    source: &str,
    variables: &[(&str, Kind<O>)],
) -> Result<Kind<O>, String> {
    let mut checker = Checker {
        variables,
        bound: Vec::new(),
        types: Types { known: Vec::new(), changes: Vec::new() },
        tokens: Tokens::new(source),
        errors: Vec::new(),
        late: Vec::new(),
        formatting: 0,
    };
    let found = checker.node(&program.node);
    let kind = checker.types.resolve(&found.kind, true);
    let Checker { mut errors, late, tokens, .. } = checker;
    // Literals are looked at when the types are right.
    if errors.is_empty() {
        errors = late;
    }
    if errors.is_empty() {
        return Ok(kind);
    }
    errors.sort_by_key(|(at, _)| *at);
    let mut lines: Vec<String> =
        errors.iter().take(MOST_ERRORS).map(|(at, message)| tokens.point(*at, message)).collect();
    if errors.len() > MOST_ERRORS {
        lines.push(format!("{} more errors were truncated", errors.len() - MOST_ERRORS));
    }
    Err(lines.join("\n"))
}

/// The type of a node, and where it stands.
struct Found<O> {
    kind: Kind<O>,
    at: usize,
}

struct Checker<'a, O> {
    variables: &'a [(&'a str, Kind<O>)],
    /// What macros bind, innermost last.
    bound: Vec<(&'a str, Kind<O>)>,
    types: Types<O>,
    tokens: Tokens<'a>,
    errors: Vec<(usize, String)>,
    /// What counts only if there are no other errors.
    late: Vec<(usize, String)>,
    /// How many calls of `format` this is in: their lists may be mixed.
    formatting: usize,
}

impl<'a, O: Object> Checker<'a, O> {
    fn node(&mut self, node: &'a Node) -> Found<O> {
        match node {
            Node::Literal(value) => Found { at: self.tokens.take(LITERAL), kind: literal(value) },
            Node::Name(name) => self.name(name),
            Node::Select { operand, field, optional } => self.select(operand, field, *optional),
            Node::Has { operand, field } => {
                self.tokens.take("has");
                let at = self.tokens.take("(");
                let operand = self.node(operand);
                self.tokens.take(".");
                self.field(&operand.kind, field, false, at);
                Found { kind: Kind::Bool, at }
            }
            Node::Index { operand, index, optional } => {
                let operand = self.node(operand);
                let at = self.tokens.take("[");
                let index = self.node(index);
                self.call(if *optional { "_[?_]" } else { "_[_]" }, false, &[operand.kind, index.kind], at)
            }
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::And(a, b) => self.logic("&&", a, b),
            Node::Or(a, b) => self.logic("||", a, b),
            Node::Not(operand) => {
                let at = self.tokens.take("!");
                let operand = self.node(operand);
                self.call("!_", false, &[operand.kind], at)
            }
            Node::Negate(operand) => {
                let at = self.tokens.take("-");
                let operand = self.node(operand);
                self.call("-_", false, &[operand.kind], at)
            }
            Node::NotStrictlyFalse(operand) => Found { kind: Kind::Bool, ..self.node(operand) },
            Node::Conditional(parts) => self.conditional(parts),
            Node::Binary(operator, sides) => self.binary(*operator, sides),
            Node::Call { name, target, args } => self.function(name, target.as_deref(), args),
            Node::Loop(fold) => self.fold(fold),
            Node::Bind { name, value, body, kind } => self.bind(name, value, body, *kind),
            Node::Insert(parts) => {
                let [map, key, value] = &**parts;
                let map = self.hidden(|checker| checker.node(map));
                let key = self.hidden(|checker| checker.node(key));
                let value = self.node(value);
                let grown = Kind::map(key.kind, value.kind);
                self.expect(&map.kind, &grown, value.at);
                Found { kind: map.kind, at: value.at }
            }
            Node::SortBy { list, name, key } => self.sort_by(list, name, key),
        }
    }

    fn error(&mut self, at: usize, message: String) {
        self.errors.push((at, message));
    }

    fn hidden<T>(&mut self, visit: impl FnOnce(&mut Self) -> T) -> T {
        self.tokens.hidden += 1;
        let result = visit(self);
        self.tokens.hidden -= 1;
        result
    }

    fn within<T>(&mut self, names: Vec<(&'a str, Kind<O>)>, visit: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.bound.len();
        self.bound.extend(names);
        let result = visit(self);
        self.bound.truncate(depth);
        result
    }

    /// Says so if a value of one type cannot stand where another is wanted.
    fn expect(&mut self, wanted: &Kind<O>, found: &Kind<O>, at: usize) {
        if !self.types.assign(wanted, found) {
            let [wanted, found] = [wanted, found].map(|kind| self.types.resolve(kind, true).shown());
            self.error(at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    fn undeclared(&mut self, name: &str, at: usize) -> Found<O> {
        self.error(at, format!("undeclared reference to '{name}' (in container '')"));
        Found { kind: Kind::Error, at }
    }

    fn variable(&self, name: &str) -> Option<Kind<O>> {
        let bound = self.bound.iter().rev().find(|(bound, _)| *bound == name);
        let found = bound.or_else(|| self.variables.iter().find(|(variable, _)| *variable == name));
        found.map(|(_, kind)| kind.clone()).or_else(|| {
            let kind = match name {
                "int" => Kind::Int,
                "uint" => Kind::Uint,
                "double" => Kind::Double,
                "bool" => Kind::Bool,
                "string" => Kind::String,
                "bytes" => Kind::Bytes,
                "list" => Kind::list(Kind::Dyn),
                "map" => Kind::map(Kind::Dyn, Kind::Dyn),
                "null_type" => Kind::Null,
                "type" => Kind::of_type(Kind::Dyn),
                _ => return None,
            };
            Some(Kind::of_type(kind))
        })
    }

    fn name(&mut self, name: &'a str) -> Found<O> {
        let at = self.tokens.take(name);
        match self.variable(name) {
            Some(kind) => Found { kind, at },
            None => self.undeclared(name, at),
        }
    }

    fn select(&mut self, operand: &'a Node, field: &'a str, optional: bool) -> Found<O> {
        if let Some(name) = qualified(operand)
            && let Some(kind) = type_name(&format!("{name}.{field}"))
        {
            self.tokens.take(".");
            return Found { at: self.tokens.take(field), kind: Kind::of_type(kind) };
        }
        let operand = self.node(operand);
        let at = self.tokens.take(".");
        Found { kind: self.field(&operand.kind, field, optional, at), at }
    }

    fn field(&mut self, operand: &Kind<O>, field: &str, optional: bool, at: usize) -> Kind<O> {
        let operand = self.types.resolve(operand, false);
        let (inner, was_optional) = match operand {
            Kind::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let found = match &inner {
            Kind::Map(entry) => entry.1.clone(),
            Kind::Object(object) => object.field(field).unwrap_or_else(|| {
                self.error(at, format!("undefined field '{field}'"));
                Kind::Error
            }),
            Kind::Free(_) => {
                self.types.assign(&Kind::Dyn, &inner);
                Kind::Dyn
            }
            Kind::Dyn | Kind::Error => Kind::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", other.shown());
                self.error(at, message);
                Kind::Dyn
            }
        };
        if optional || was_optional { Kind::optional(found) } else { found }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Found<O> {
        let at = self.tokens.take("[");
        let mut all = None;
        for (item, optional) in items {
            let found = self.node(item);
            let kind = if *optional { self.unwrapped(found.kind, found.at) } else { found.kind };
            all = Some(self.join(all, kind, found.at));
        }
        let item = all.unwrap_or_else(|| self.types.fresh());
        Found { kind: Kind::list(item), at }
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Found<O> {
        let at = self.tokens.take("{");
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            let found = self.node(key);
            keys = Some(self.join(keys, found.kind, found.at));
            let found = self.node(value);
            let kind = if *optional { self.unwrapped(found.kind, found.at) } else { found.kind };
            values = Some(self.join(values, kind, found.at));
        }
        let key = keys.unwrap_or_else(|| self.types.fresh());
        let value = values.unwrap_or_else(|| self.types.fresh());
        Found { kind: Kind::map(key, value), at }
    }

    /// What is in an optional that stands behind a question mark.
    fn unwrapped(&mut self, kind: Kind<O>, at: usize) -> Kind<O> {
        match self.types.resolve(&kind, false) {
            Kind::Optional(inner) => (*inner).clone(),
            Kind::Dyn => Kind::Dyn,
            other => {
                let text = other.shown();
                self.error(at, format!("expected type 'optional_type({text})' but found '{text}'"));
                other
            }
        }
    }

    /// The type of both. That literals of lists and maps must be of one type is told late.
    fn join(&mut self, before: Option<Kind<O>>, kind: Kind<O>, at: usize) -> Kind<O> {
        let Some(before) = before else { return kind };
        let [first, other] = [&before, &kind].map(|kind| self.types.resolve(kind, true));
        if first != other && self.formatting == 0 {
            let message = format!("expected type '{}' but found '{}'", first.shown(), other.shown());
            self.late.push((at, message));
        }
        match self.types.assign(&before, &kind) {
            true if is_less_specific(&before, &kind) => before,
            true => kind,
            false => Kind::Dyn,
        }
    }

    fn logic(&mut self, word: &str, a: &'a Node, b: &'a Node) -> Found<O> {
        let left = self.node(a);
        let at = if is_made(a) { left.at } else { self.tokens.take(word) };
        let right = self.node(b);
        for side in [left, right] {
            self.expect(&Kind::Bool, &side.kind, side.at);
        }
        Found { kind: Kind::Bool, at }
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Found<O> {
        let [condition, yes, no] = parts;
        let condition = self.node(condition);
        // Filters are conditionals, which nobody wrote.
        let at = if is_made(no) { condition.at } else { self.tokens.take("?") };
        let yes = self.node(yes);
        let no = self.node(no);
        self.call("_?_:_", false, &[condition.kind, yes.kind, no.kind], at)
    }

    fn binary(&mut self, operator: Binary, sides: &'a [Node; 2]) -> Found<O> {
        let (word, function) = match operator {
            Binary::Add => ("+", "_+_"),
            Binary::Subtract => ("-", "_-_"),
            Binary::Multiply => ("*", "_*_"),
            Binary::Divide => ("/", "_/_"),
            Binary::Modulo => ("%", "_%_"),
            Binary::Equal => ("==", "_==_"),
            Binary::NotEqual => ("!=", "_!=_"),
            Binary::Less => ("<", "_<_"),
            Binary::LessEqual => ("<=", "_<=_"),
            Binary::Greater => (">", "_>_"),
            Binary::GreaterEqual => (">=", "_>=_"),
            Binary::In => ("in", "@in"),
        };
        let [a, b] = sides;
        if is_made(a) {
            return self.grown(function, a, b);
        }
        let left = self.node(a);
        let at = self.tokens.take(word);
        let right = self.node(b);
        self.call(function, false, &[left.kind, right.kind], at)
    }

    /// How a macro makes its result grow: `@result + [body]`, `@result + 1`, and `@result == 1` in the end.
    fn grown(&mut self, function: &str, result: &'a Node, more: &'a Node) -> Found<O> {
        let result = self.hidden(|checker| checker.node(result));
        let more = match more {
            Node::List(items) => {
                let item = items.first().map(|(item, _)| match item {
                    // That of a filter was not written.
                    Node::Name(name) if self.bound.last().is_some_and(|(bound, _)| bound == name) => {
                        self.hidden(|checker| checker.node(item))
                    }
                    item => self.node(item),
                });
                match item {
                    Some(item) => Found { kind: Kind::list(item.kind), at: item.at },
                    None => Found { kind: Kind::list(Kind::Dyn), at: result.at },
                }
            }
            other => self.hidden(|checker| checker.node(other)),
        };
        self.call(function, false, &[result.kind, more.kind], more.at)
    }

    fn function(&mut self, name: &'a str, target: Option<&'a Node>, args: &'a [Node]) -> Found<O> {
        let Some(target) = target else {
            self.tokens.take(name);
            let at = self.tokens.take("(");
            let kinds = self.args(name, args);
            if overloads::of(name).is_empty() {
                return self.undeclared(name, at);
            }
            return self.call(name, false, &kinds, at);
        };
        let space = qualified(target).map(|space| format!("{space}.{name}"));
        let space = space.filter(|full| !overloads::of(full).is_empty());
        let mut kinds = Vec::new();
        if space.is_none() {
            kinds.push(self.node(target).kind);
        }
        self.tokens.take(".");
        self.tokens.take(name);
        let at = self.tokens.take("(");
        kinds.extend(self.args(name, args));
        match space {
            Some(full) => self.call(&full, false, &kinds, at),
            None if overloads::of(name).is_empty() => self.undeclared(name, at),
            None => self.call(name, true, &kinds, at),
        }
    }

    fn args(&mut self, name: &str, args: &'a [Node]) -> Vec<Kind<O>> {
        let is_format = usize::from(name == "format");
        self.formatting += is_format;
        let mut kinds = Vec::new();
        for arg in args {
            let Found { kind, at } = self.node(arg);
            kinds.push(kind);
            if let (Node::Literal(Value::String(text)), [_]) = (arg, args)
                && !functions::is_argument(name, text)
            {
                self.late.push((at, format!("invalid {name} argument")));
            }
        }
        self.formatting -= is_format;
        kinds
    }

    /// The type of a call: that of its overloads that fit.
    fn call(&mut self, function: &str, member: bool, args: &[Kind<O>], at: usize) -> Found<O> {
        let mut result: Option<Kind<O>> = None;
        for overload in overloads::of(function).iter().filter(|overload| overload.member == member) {
            let (wanted, made) = overload.at(self.types.parameters());
            if wanted.len() != args.len() || !self.types.assign_all(args, &wanted) {
                continue;
            }
            let made = self.types.resolve(&made, false);
            result = Some(match result {
                None => made,
                Some(before) if before == made => before,
                Some(_) => Kind::Dyn,
            });
        }
        let kind = result.unwrap_or_else(|| {
            let mut words: Vec<String> =
                args.iter().map(|arg| self.types.resolve(arg, true).shown()).collect();
            let target = if member { format!("{}.", words.remove(0)) } else { String::new() };
            self.error(
                at,
                format!(
                    "found no matching overload for '{function}' applied to '{target}({})'",
                    words.join(", ")
                ),
            );
            Kind::Error
        });
        Found { kind, at }
    }

    fn fold(&mut self, fold: &'a Loop) -> Found<O> {
        let range = self.node(&fold.range);
        self.tokens.take(".");
        let at = self.tokens.take("(");
        self.tokens.take(&fold.first);
        if let Some(second) = &fold.second {
            self.tokens.take(second);
        }
        let both = fold.second.is_some();
        let (first, second) = match self.types.resolve(&range.kind, false) {
            Kind::List(item) if both => (Kind::Int, (*item).clone()),
            Kind::List(item) => ((*item).clone(), Kind::Dyn),
            Kind::Map(entry) => entry.as_ref().clone(),
            kind @ (Kind::Dyn | Kind::Error | Kind::Free(_)) => {
                self.types.assign(&Kind::Dyn, &kind);
                (Kind::Dyn, Kind::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.shown()
                );
                self.error(range.at, message);
                (Kind::Error, Kind::Error)
            }
        };
        let start = self.hidden(|checker| checker.node(&fold.start)).kind;
        let mut names = vec![(fold.first.as_str(), first)];
        names.extend(fold.second.as_deref().map(|name| (name, second)));
        let result = (fold.result_name.as_str(), start.clone());
        let kind = self.within(vec![result], |checker| {
            let step = checker.within(names, |checker| checker.node(&fold.step));
            checker.expect(&start, &step.kind, step.at);
            checker.hidden(|checker| checker.node(&fold.result)).kind
        });
        Found { kind: self.types.resolve(&kind, false), at }
    }

    /// `optMap` and `optFlatMap`. `cel.bind` is no part of Kubernetes' environment.
    fn bind(&mut self, name: &'a str, value: &'a Node, body: &'a Node, kind: Bind) -> Found<O> {
        if kind == Bind::Plain {
            let at = self.tokens.take("cel");
            self.undeclared("cel", at);
            let call = self.tokens.take("(");
            self.name(name);
            self.node(value);
            self.node(body);
            return self.undeclared("bind", call);
        }
        let value = self.node(value);
        self.tokens.take(".");
        let at = self.tokens.take("(");
        self.tokens.take(name);
        self.call("hasValue", true, std::slice::from_ref(&value.kind), at);
        let inner = match self.types.resolve(&value.kind, false) {
            Kind::Optional(inner) => (*inner).clone(),
            _ => Kind::Dyn,
        };
        let body = self.within(vec![(name, inner)], |checker| checker.node(body));
        if kind == Bind::OptionalMap {
            return Found { kind: Kind::optional(body.kind), at };
        }
        let open = Kind::optional(self.types.fresh());
        self.call("_?_:_", false, &[Kind::Bool, body.kind, open], at)
    }

    fn sort_by(&mut self, list: &'a Node, name: &'a str, key: &'a Node) -> Found<O> {
        let list = self.node(list);
        self.tokens.take(".");
        let at = self.tokens.take("(");
        self.tokens.take(name);
        let item = match self.types.resolve(&list.kind, false) {
            Kind::List(item) => (*item).clone(),
            _ => Kind::Dyn,
        };
        let key = self.within(vec![(name, item)], |checker| checker.node(key));
        self.call("sort", true, &[Kind::list(key.kind)], at);
        Found { kind: list.kind, at }
    }
}

/// Whether a macro made a node, rather than whoever wrote the expression.
fn is_made(node: &Node) -> bool {
    matches!(node, Node::Name(name) if name.starts_with('@'))
}

/// `a.b.c` as a name.
fn qualified(node: &Node) -> Option<String> {
    match node {
        Node::Name(name) => Some(name.clone()),
        Node::Select { operand, field, optional: false } => Some(format!("{}.{field}", qualified(operand)?)),
        _ => None,
    }
}

/// Types whose names have dots.
fn type_name<O: Object>(name: &str) -> Option<Kind<O>> {
    match name {
        "google.protobuf.Duration" => Some(Kind::Duration),
        "google.protobuf.Timestamp" => Some(Kind::Timestamp),
        _ => None,
    }
}

fn literal<O: Object>(value: &Value) -> Kind<O> {
    match value {
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) => Kind::Int,
        Value::UInt(_) => Kind::Uint,
        Value::Float(_) => Kind::Double,
        Value::String(_) => Kind::String,
        Value::Bytes(_) => Kind::Bytes,
        Value::Null => Kind::Null,
        _ => Kind::Dyn,
    }
}

/// What is known of the types that were left open.
struct Types<O> {
    known: Vec<Option<Kind<O>>>,
    /// What was known before, so that a failed try can be taken back.
    changes: Vec<(usize, Option<Kind<O>>)>,
}

impl<O: Object> Types<O> {
    fn fresh(&mut self) -> Kind<O> {
        self.known.push(None);
        Kind::Free(self.known.len() - 1)
    }

    /// Room for the open types of an overload.
    fn parameters(&mut self) -> usize {
        let first = self.known.len();
        self.known.extend((0..PARAMETERS).map(|_| None));
        first
    }

    fn set(&mut self, free: usize, kind: Kind<O>) {
        let before = self.known[free].replace(kind);
        self.changes.push((free, before));
    }

    /// Whether `a` can stand where `b` is wanted, or the other way round; notes what that says about open types.
    fn assign(&mut self, a: &Kind<O>, b: &Kind<O>) -> bool {
        self.assign_all(std::slice::from_ref(a), std::slice::from_ref(b))
    }

    fn assign_all(&mut self, a: &[Kind<O>], b: &[Kind<O>]) -> bool {
        let before = self.changes.len();
        let fits = a.iter().zip(b).all(|(a, b)| self.unify(a, b));
        if !fits {
            for (free, kind) in self.changes.drain(before..).rev() {
                self.known[free] = kind;
            }
        }
        fits
    }

    fn unify(&mut self, a: &Kind<O>, b: &Kind<O>) -> bool {
        if let Kind::Free(free) = b {
            let had = self.known[*free].is_some();
            if self.substitute(a, *free) {
                return true;
            }
            if had {
                return false;
            }
        }
        match (a, b) {
            (Kind::Free(free), _) => self.substitute(b, *free),
            (Kind::Dyn | Kind::Error, _) | (_, Kind::Dyn | Kind::Error) => true,
            (Kind::Null, Kind::Null) => true,
            (Kind::Null, other) | (other, Kind::Null) => matches!(
                other,
                Kind::Optional(_) | Kind::Opaque(_) | Kind::Object(_) | Kind::Duration | Kind::Timestamp
            ),
            (Kind::List(a), Kind::List(b)) | (Kind::Optional(a), Kind::Optional(b)) => self.unify(a, b),
            (Kind::Map(a), Kind::Map(b)) => self.unify(&a.0, &b.0) && self.unify(&a.1, &b.1),
            (Kind::Type(_), Kind::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Whether an open type can be this one.
    fn substitute(&mut self, kind: &Kind<O>, free: usize) -> bool {
        if *kind == Kind::Free(free) {
            return true;
        }
        if let Some(known) = self.known[free].clone() {
            if known == *kind {
                return true;
            }
            if !self.unify(kind, &known) {
                return false;
            }
            let general = if is_less_specific(kind, &known) { kind.clone() } else { known };
            if !self.occurs(free, &general) {
                self.set(free, general);
            }
            return true;
        }
        let fits = !self.occurs(free, kind);
        if fits {
            self.set(free, kind.clone());
        }
        fits
    }

    fn occurs(&self, free: usize, within: &Kind<O>) -> bool {
        match within {
            Kind::Free(other) if *other == free => true,
            Kind::Free(other) => self.known[*other].as_ref().is_some_and(|kind| self.occurs(free, kind)),
            Kind::List(item) | Kind::Optional(item) | Kind::Type(item) => self.occurs(free, item),
            Kind::Map(entry) => self.occurs(free, &entry.0) || self.occurs(free, &entry.1),
            _ => false,
        }
    }

    /// A type with all that is known of it; `finally`, what is open is any.
    fn resolve(&self, kind: &Kind<O>, finally: bool) -> Kind<O> {
        match kind {
            Kind::Free(free) => match &self.known[*free] {
                Some(kind) => self.resolve(kind, finally),
                None if finally => Kind::Dyn,
                None => kind.clone(),
            },
            Kind::List(item) => Kind::list(self.resolve(item, finally)),
            Kind::Optional(item) => Kind::optional(self.resolve(item, finally)),
            Kind::Type(item) => Kind::of_type(self.resolve(item, finally)),
            Kind::Map(entry) => Kind::map(self.resolve(&entry.0, finally), self.resolve(&entry.1, finally)),
            other => other.clone(),
        }
    }
}

/// Whether the first type says no more than the second.
fn is_less_specific<O: Object>(a: &Kind<O>, b: &Kind<O>) -> bool {
    match (a, b) {
        (Kind::Dyn | Kind::Error | Kind::Free(_), _) => true,
        (_, Kind::Dyn | Kind::Error | Kind::Free(_)) => false,
        (Kind::List(a), Kind::List(b)) | (Kind::Optional(a), Kind::Optional(b)) => is_less_specific(a, b),
        (Kind::Map(a), Kind::Map(b)) => is_less_specific(&a.0, &b.0) && is_less_specific(&a.1, &b.1),
        (Kind::Type(_), Kind::Type(_)) => true,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests;
