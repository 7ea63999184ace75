//! What can be known of the types in a rule without running it: enough to refuse a misspelt field or function when the
//! CustomResourceDefinition is written. What is not known passes, and is checked when the rule runs.

use crate::cel::{self, Node, Program};
use crate::schema::{Structural, Type};

/// Where a rule stands.
pub(super) struct Scope<'a> {
    pub(super) schema: &'a Structural,
    /// Whether apiVersion, kind and metadata can be seen.
    pub(super) root: bool,
    /// Whether `oldSelf` is an optional.
    pub(super) optional: bool,
}

/// The type of an expression as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    Unknown,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    List(Box<Kind<'a>>),
    Map(Box<Kind<'a>>),
    Object(At<'a>),
}

/// The schema of an object, by identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    schema: &'a Structural,
    resource: bool,
}

impl PartialEq for At<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.schema, other.schema)
    }
}

impl<'a> Kind<'a> {
    /// Whether a value of this type could be of the other.
    pub(super) fn may_be(&self, other: &Kind<'a>) -> bool {
        *self == Kind::Unknown || self == other
    }

    fn of(schema: &'a Structural, resource: bool) -> Kind<'a> {
        if schema.int_or_string || schema.nullable {
            return Kind::Unknown;
        }
        match (&schema.type_, schema.values.format.as_str()) {
            (Some(Type::Boolean), _) => Kind::Bool,
            (Some(Type::Integer), _) => Kind::Int,
            (Some(Type::Number), _) => Kind::Double,
            (Some(Type::String), "byte") => Kind::Bytes,
            (Some(Type::String), "date" | "date-time" | "duration") => Kind::Unknown,
            (Some(Type::String), _) => Kind::String,
            (Some(Type::Array), _) => {
                let items = schema.items.as_deref();
                Kind::List(Box::new(
                    items.map_or(Kind::Unknown, |items| Kind::of(items, items.embedded_resource)),
                ))
            }
            (Some(Type::Object), _) => match schema.additional() {
                Some(values) => Kind::Map(Box::new(Kind::of(values, values.embedded_resource))),
                None => Kind::Object(At { schema, resource }),
            },
            _ => Kind::Unknown,
        }
    }

    fn word(&self) -> Option<&'static str> {
        match self {
            Kind::Bool => Some("bool"),
            Kind::Int => Some("int"),
            Kind::Double => Some("double"),
            Kind::String => Some("string"),
            Kind::Bytes => Some("bytes"),
            _ => None,
        }
    }
}

/// The type of the expression, or what is wrong with it, as cel-go says it.
pub(super) fn check<'a>(program: &'a Program, source: &str, scope: &Scope<'a>) -> Result<Kind<'a>, String> {
    let mut checker = Checker { scope, bound: Vec::new() };
    checker.kind(program.node()).map_err(|problem| problem.print(source))
}

/// What is wrong, and the text to point at.
struct Problem {
    message: String,
    near: String,
}

impl Problem {
    fn print(&self, source: &str) -> String {
        cel::pointed(source, &self.near, &self.message)
    }
}

struct Checker<'s, 'a> {
    scope: &'s Scope<'a>,
    bound: Vec<(&'a str, Kind<'a>)>,
}

impl<'a> Checker<'_, 'a> {
    fn kind(&mut self, node: &'a Node) -> Result<Kind<'a>, Problem> {
        Ok(match node {
            Node::Literal(value) => literal(value),
            Node::Name(name) => self.name(name)?,
            Node::Select { operand, field, optional } => {
                let operand = self.kind(operand)?;
                let found = self.field(&operand, field)?;
                if *optional { Kind::Unknown } else { found }
            }
            Node::Has { operand, field } => {
                let operand = self.kind(operand)?;
                self.field(&operand, field)?;
                Kind::Bool
            }
            Node::Index { operand, index, optional } => {
                let operand = self.kind(operand)?;
                self.kind(index)?;
                match operand {
                    Kind::List(item) | Kind::Map(item) if !optional => *item,
                    _ => Kind::Unknown,
                }
            }
            Node::List(items) => {
                for (item, _) in items {
                    self.kind(item)?;
                }
                Kind::List(Box::new(Kind::Unknown))
            }
            Node::Map(entries) => {
                for (key, value, _) in entries {
                    self.kind(key)?;
                    self.kind(value)?;
                }
                Kind::Map(Box::new(Kind::Unknown))
            }
            Node::And(a, b) => self.logic("&&", a, b)?,
            Node::Or(a, b) => self.logic("||", a, b)?,
            Node::Not(operand) => {
                let operand = self.kind(operand)?;
                if !operand.may_be(&Kind::Bool) {
                    return Err(no_overload("!_", "!", &[operand]));
                }
                Kind::Bool
            }
            Node::Negate(operand) => self.kind(operand)?,
            Node::NotStrictlyFalse(operand) => {
                self.kind(operand)?;
                Kind::Bool
            }
            Node::Conditional(parts) => {
                self.kind(&parts[0])?;
                let (yes, no) = (self.kind(&parts[1])?, self.kind(&parts[2])?);
                if yes == no { yes } else { Kind::Unknown }
            }
            Node::Binary(operator, sides) => self.binary(*operator, &sides[0], &sides[1])?,
            Node::Call { name, target, args } => self.call(name, target.as_deref(), args)?,
            Node::Loop(fold) => self.fold(fold)?,
            Node::Bind { name, value, body, kind } => {
                let value = self.kind(value)?;
                let value = if *kind == cel::Bind::Plain { value } else { Kind::Unknown };
                let body = self.within(&[(name, value)], |checker| checker.kind(body))?;
                if *kind == cel::Bind::Plain { body } else { Kind::Unknown }
            }
            Node::Insert(parts) => {
                for part in parts.iter() {
                    self.kind(part)?;
                }
                Kind::Map(Box::new(Kind::Unknown))
            }
            Node::SortBy { list, name, key } => {
                let list = self.kind(list)?;
                let item = match &list {
                    Kind::List(item) => (**item).clone(),
                    _ => Kind::Unknown,
                };
                self.within(&[(name, item)], |checker| checker.kind(key))?;
                list
            }
        })
    }

    fn within<T>(&mut self, names: &[(&'a str, Kind<'a>)], visit: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.bound.len();
        self.bound.extend_from_slice(names);
        let result = visit(self);
        self.bound.truncate(depth);
        result
    }

    fn name(&self, name: &str) -> Result<Kind<'a>, Problem> {
        if let Some((_, kind)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(kind.clone());
        }
        match name {
            "self" => Ok(Kind::of(self.scope.schema, self.scope.root)),
            "oldSelf" if self.scope.optional => Ok(Kind::Unknown),
            "oldSelf" => Ok(Kind::of(self.scope.schema, self.scope.root)),
            "int" | "uint" | "double" | "bool" | "string" | "bytes" | "list" | "map" | "null_type"
            | "type" => Ok(Kind::Unknown),
            _ => Err(undeclared(name, name.to_owned())),
        }
    }

    fn field(&self, operand: &Kind<'a>, field: &str) -> Result<Kind<'a>, Problem> {
        let undefined =
            || Problem { message: format!("undefined field '{field}'"), near: format!(".{field}") };
        match operand {
            Kind::Unknown => Ok(Kind::Unknown),
            Kind::Map(value) => Ok((**value).clone()),
            Kind::Object(At { schema, resource }) => {
                if *resource && matches!(field, "apiVersion" | "kind") {
                    return Ok(Kind::String);
                }
                if *resource && field == "metadata" {
                    return Ok(Kind::Map(Box::new(Kind::String)));
                }
                let found =
                    schema.properties.iter().find(|(name, _)| cel::escape(name).as_deref() == Some(field));
                let (_, schema) = found.ok_or_else(undefined)?;
                Ok(Kind::of(schema, schema.embedded_resource))
            }
            other => match other.word() {
                Some(word) => Err(Problem {
                    message: format!("type '{word}' does not support field selection"),
                    near: format!(".{field}"),
                }),
                None => Err(undefined()),
            },
        }
    }

    fn logic(&mut self, word: &str, a: &'a Node, b: &'a Node) -> Result<Kind<'a>, Problem> {
        let sides = [self.kind(a)?, self.kind(b)?];
        if sides.iter().all(|side| side.may_be(&Kind::Bool)) {
            return Ok(Kind::Bool);
        }
        Err(no_overload(&format!("_{word}_"), word, &sides))
    }

    fn binary(&mut self, operator: cel::Binary, a: &'a Node, b: &'a Node) -> Result<Kind<'a>, Problem> {
        use cel::Binary as B;
        let sides = [self.kind(a)?, self.kind(b)?];
        let (word, is_comparison) = match operator {
            B::Equal => ("==", true),
            B::NotEqual => ("!=", true),
            B::Less => ("<", true),
            B::LessEqual => ("<=", true),
            B::Greater => (">", true),
            B::GreaterEqual => (">=", true),
            B::In => return Ok(Kind::Bool),
            B::Add => ("+", false),
            B::Subtract => ("-", false),
            B::Multiply => ("*", false),
            B::Divide => ("/", false),
            B::Modulo => ("%", false),
        };
        let is_ordered = is_comparison && !matches!(operator, B::Equal | B::NotEqual);
        let numbers = |kind: &Kind<'_>| matches!(kind, Kind::Int | Kind::Double);
        // Numbers of different types can be put in order, but not be equal, without a conversion.
        let fits = match (sides[0].word(), sides[1].word()) {
            (Some(_), Some(_)) => sides[0] == sides[1] || (is_ordered && sides.iter().all(numbers)),
            _ => true,
        };
        if !fits {
            return Err(no_overload(&format!("_{word}_"), word, &sides));
        }
        Ok(match is_comparison {
            true => Kind::Bool,
            false if sides[0] == sides[1] && sides[0].word().is_some() => sides[0].clone(),
            false => Kind::Unknown,
        })
    }

    fn call(
        &mut self,
        name: &'a str,
        target: Option<&'a Node>,
        args: &'a [Node],
    ) -> Result<Kind<'a>, Problem> {
        for arg in args {
            self.kind(arg)?;
        }
        let space = match target {
            Some(Node::Name(space)) if cel::is_function(&format!("{space}.{name}")) => Some(space),
            _ => None,
        };
        if let (None, Some(target)) = (space, target) {
            self.kind(target)?;
        }
        if space.is_none() && !cel::is_function(name) {
            return Err(undeclared(name, format!("{name}(")).after(name));
        }
        Ok(match name {
            "size" | "int" | "indexOf" | "lastIndexOf" if space.is_none() => Kind::Int,
            "startsWith" | "endsWith" | "contains" | "matches" | "isURL" | "isIP" | "isCIDR"
            | "isQuantity" | "isSemver" | "isSorted" | "hasValue" | "bool" => Kind::Bool,
            "string" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "join" | "substring" | "charAt"
            | "find"
                if space.is_none() =>
            {
                Kind::String
            }
            "double" => Kind::Double,
            _ => Kind::Unknown,
        })
    }

    fn fold(&mut self, fold: &'a cel::Loop) -> Result<Kind<'a>, Problem> {
        let range = self.kind(&fold.range)?;
        let (index, item) = match range {
            Kind::List(item) => (Kind::Int, *item),
            Kind::Map(value) => (Kind::String, *value),
            Kind::Unknown => (Kind::Unknown, Kind::Unknown),
            ref other => match other.word() {
                Some(word) => {
                    let message = format!(
                        "expression of type '{word}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    );
                    return Err(Problem { message, near: String::new() });
                }
                None => (Kind::String, Kind::Unknown),
            },
        };
        let start = self.kind(&fold.start)?;
        let is_list = index == Kind::Int;
        let names: Vec<(&str, Kind<'_>)> = match &fold.second {
            None => vec![(&fold.first, if is_list { item } else { index })],
            Some(second) => vec![(&fold.first, index), (second, item)],
        };
        let result = (fold.result_name.as_str(), start);
        self.within(&[result], |checker| {
            checker.within(&names, |checker| checker.kind(&fold.step))?;
            checker.kind(&fold.result)
        })
    }
}

impl Problem {
    /// Points behind a name: at the bracket of a call.
    fn after(mut self, name: &str) -> Problem {
        self.near = self.near.trim_start_matches(name).to_owned();
        self
    }
}

fn undeclared(name: &str, near: String) -> Problem {
    Problem { message: format!("undeclared reference to '{name}' (in container '')"), near }
}

fn no_overload(function: &str, near: &str, sides: &[Kind<'_>]) -> Problem {
    let words: Vec<&str> = sides.iter().map(|side| side.word().unwrap_or("dyn")).collect();
    let message = format!("found no matching overload for '{function}' applied to '({})'", words.join(", "));
    Problem { message, near: near.to_owned() }
}

fn literal<'a>(value: &cel::Value) -> Kind<'a> {
    match value {
        cel::Value::Bool(_) => Kind::Bool,
        cel::Value::Int(_) => Kind::Int,
        cel::Value::Float(_) => Kind::Double,
        cel::Value::String(_) => Kind::String,
        cel::Value::Bytes(_) => Kind::Bytes,
        _ => Kind::Unknown,
    }
}
