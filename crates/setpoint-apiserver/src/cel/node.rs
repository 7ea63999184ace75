//! The tree of an expression.

use std::collections::BTreeSet;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

/// One node. Macros of the parser are loops here; those that it does not know are made into loops here.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A constant.
    Literal(Value),
    /// A variable, or the name of a type.
    Name(String),
    /// `operand.field`, or `operand.?field`.
    Select { operand: Box<Node>, field: String, optional: bool },
    /// `has(operand.field)`.
    Has { operand: Box<Node>, field: String },
    /// `operand[index]`, or `operand[?index]`.
    Index { operand: Box<Node>, index: Box<Node>, optional: bool },
    /// `[a, ?b]`.
    List(Vec<(Node, bool)>),
    /// `{a: b, ?c: d}`.
    Map(Vec<(Node, Node, bool)>),
    /// `a && b`: true or false if either side decides, whatever the other is.
    And(Box<Node>, Box<Node>),
    /// `a || b`.
    Or(Box<Node>, Box<Node>),
    /// `!a`.
    Not(Box<Node>),
    /// `-a`.
    Negate(Box<Node>),
    /// `a ? b : c`.
    Conditional(Box<[Node; 3]>),
    /// The others.
    Binary(Binary, Box<[Node; 2]>),
    /// True unless the operand is false, even if it is an error.
    NotStrictlyFalse(Box<Node>),
    /// A function.
    Call { name: String, target: Option<Box<Node>>, args: Vec<Node> },
    /// A macro over a list or map.
    Loop(Box<Loop>),
    /// `cel.bind(name, value, body)`, and `optMap` with its kin.
    Bind { name: String, value: Box<Node>, body: Box<Node>, kind: Bind },
    /// A map with one more entry; how `transformMap` grows its result.
    Insert(Box<[Node; 3]>),
    /// `list.sortBy(name, key)`.
    SortBy { list: Box<Node>, name: String, key: Box<Node> },
}

/// What happens to the value of [`Node::Bind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    /// Bound as it is.
    Plain,
    /// An optional: the body maps what is in it.
    OptionalMap,
    /// An optional: the body gives an optional itself.
    OptionalFlatMap,
}

/// Operators of two operands that both count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

/// A fold over a list, or over the keys of a map.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) range: Node,
    /// The item; with a second variable, the index or key.
    pub(crate) first: String,
    /// The item or value, if both are asked for.
    pub(crate) second: Option<String>,
    pub(crate) result_name: String,
    pub(crate) start: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

const RESULT: &str = "@result";

impl Node {
    /// From what the parser made.
    pub(super) fn of(expression: IdedExpr) -> Result<Node, String> {
        Ok(match expression.expr {
            Expr::Literal(literal) => Node::Literal(literal_value(&literal)),
            Expr::Ident(name) => Node::Name(name.trim_start_matches('.').to_owned()),
            Expr::Select(select) => {
                let operand = boxed(*select.operand)?;
                if select.test {
                    Node::Has { operand, field: select.field }
                } else {
                    Node::Select { operand, field: select.field, optional: false }
                }
            }
            Expr::List(list) => {
                let optional = list.optional_indices;
                let items = list.elements.into_iter().enumerate();
                let items = items.map(|(index, item)| Ok((Node::of(item)?, optional.contains(&index))));
                Node::List(items.collect::<Result<_, String>>()?)
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in map.entries {
                    let EntryExpr::MapEntry(entry) = entry.expr else { return Err(unsupported("a message")) };
                    entries.push((Node::of(entry.key)?, Node::of(entry.value)?, entry.optional));
                }
                Node::Map(entries)
            }
            Expr::Comprehension(comprehension) => Node::Loop(Box::new(Loop::of(*comprehension)?)),
            Expr::Call(call) => Node::of_call(call)?,
            Expr::Struct(_) => return Err(unsupported("a message")),
            Expr::Unspecified => return Err(unsupported("an empty expression")),
        })
    }

    fn of_call(call: CallExpr) -> Result<Node, String> {
        let CallExpr { func_name, target, args } = call;
        let target = match target {
            Some(target) => Some(boxed(*target)?),
            None => None,
        };
        let args = args.into_iter().map(Node::of).collect::<Result<Vec<_>, _>>()?;
        if target.is_none()
            && let Some(operator) = Node::of_operator(&func_name, &args)
        {
            return Ok(operator);
        }
        Node::of_macro(&func_name, target, args)
    }

    fn of_operator(name: &str, args: &[Node]) -> Option<Node> {
        let binary = match name {
            operators::ADD => Some(Binary::Add),
            operators::SUBSTRACT => Some(Binary::Subtract),
            operators::MULTIPLY => Some(Binary::Multiply),
            operators::DIVIDE => Some(Binary::Divide),
            operators::MODULO => Some(Binary::Modulo),
            operators::EQUALS => Some(Binary::Equal),
            operators::NOT_EQUALS => Some(Binary::NotEqual),
            operators::LESS => Some(Binary::Less),
            operators::LESS_EQUALS => Some(Binary::LessEqual),
            operators::GREATER => Some(Binary::Greater),
            operators::GREATER_EQUALS => Some(Binary::GreaterEqual),
            operators::IN => Some(Binary::In),
            _ => None,
        };
        Some(match (binary, name, args) {
            (Some(binary), _, [a, b]) => Node::Binary(binary, Box::new([a.clone(), b.clone()])),
            (_, operators::LOGICAL_AND, [a, b]) => Node::And(Box::new(a.clone()), Box::new(b.clone())),
            (_, operators::LOGICAL_OR, [a, b]) => Node::Or(Box::new(a.clone()), Box::new(b.clone())),
            (_, operators::LOGICAL_NOT, [a]) => Node::Not(Box::new(a.clone())),
            (_, operators::NEGATE, [a]) => Node::Negate(Box::new(a.clone())),
            (_, operators::NOT_STRICTLY_FALSE, [a]) => Node::NotStrictlyFalse(Box::new(a.clone())),
            (_, operators::CONDITIONAL, [a, b, c]) => {
                Node::Conditional(Box::new([a.clone(), b.clone(), c.clone()]))
            }
            (_, operators::INDEX | operators::OPT_INDEX, [a, b]) => Node::Index {
                operand: Box::new(a.clone()),
                index: Box::new(b.clone()),
                optional: name == operators::OPT_INDEX,
            },
            (_, operators::OPT_SELECT, [a, Node::Literal(Value::String(field))]) => {
                Node::Select { operand: Box::new(a.clone()), field: field.to_string(), optional: true }
            }
            _ => return None,
        })
    }

    /// The macros of cel-go's extensions that the parser leaves as calls.
    fn of_macro(name: &str, target: Option<Box<Node>>, args: Vec<Node>) -> Result<Node, String> {
        let names: Vec<Option<String>> = args.iter().map(Node::simple_name).collect();
        let named = |index: usize| names.get(index).cloned().flatten();
        let Some(target) = target else {
            return Ok(Node::Call { name: name.to_owned(), target: None, args });
        };
        let is_cel = matches!(&*target, Node::Name(name) if name == "cel");
        let node = match (name, args.as_slice()) {
            ("bind", [_, value, body]) if is_cel => named(0).map(|name| bind(name, value, body, Bind::Plain)),
            ("optMap", [_, body]) => named(0).map(|name| bind(name, &target, body, Bind::OptionalMap)),
            ("optFlatMap", [_, body]) => {
                named(0).map(|name| bind(name, &target, body, Bind::OptionalFlatMap))
            }
            ("sortBy", [_, key]) => {
                named(0).map(|name| Node::SortBy { list: target.clone(), name, key: Box::new(key.clone()) })
            }
            ("all" | "exists" | "existsOne" | "exists_one" | "transformList" | "transformMap", rest) => {
                match (named(0), named(1)) {
                    (Some(first), Some(second)) => two_variables(name, &target, first, second, &rest[2..]),
                    _ => None,
                }
            }
            _ => None,
        };
        Ok(node.unwrap_or_else(|| Node::Call { name: name.to_owned(), target: Some(target), args }))
    }

    fn simple_name(&self) -> Option<String> {
        match self {
            Node::Name(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Every name that is mentioned, alone and with the field selected from it.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.visit(&mut |node| match node {
            Node::Name(name) => {
                names.insert(name.clone());
            }
            Node::Select { operand, field, .. } | Node::Has { operand, field } => {
                if let Node::Name(name) = &**operand {
                    names.insert(format!("{name}.{field}"));
                }
            }
            _ => {}
        });
        names
    }

    /// Shows each node to `see`.
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&Node)) {
        see(self);
        match self {
            Node::Literal(_) | Node::Name(_) => {}
            Node::Select { operand, .. }
            | Node::Has { operand, .. }
            | Node::Not(operand)
            | Node::Negate(operand)
            | Node::NotStrictlyFalse(operand) => operand.visit(see),
            Node::Index { operand: a, index: b, .. }
            | Node::And(a, b)
            | Node::Or(a, b)
            | Node::Bind { value: a, body: b, .. }
            | Node::SortBy { list: a, key: b, .. } => {
                a.visit(see);
                b.visit(see);
            }
            Node::List(items) => items.iter().for_each(|(item, _)| item.visit(see)),
            Node::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                key.visit(see);
                value.visit(see);
            }),
            Node::Conditional(parts) | Node::Insert(parts) => {
                parts.iter().for_each(|part| part.visit(see));
            }
            Node::Binary(_, sides) => sides.iter().for_each(|side| side.visit(see)),
            Node::Call { target, args, .. } => {
                target.iter().for_each(|target| target.visit(see));
                args.iter().for_each(|arg| arg.visit(see));
            }
            Node::Loop(fold) => {
                for part in [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result] {
                    part.visit(see);
                }
            }
        }
    }
}

impl Loop {
    fn of(comprehension: ComprehensionExpr) -> Result<Loop, String> {
        Ok(Loop {
            range: Node::of(comprehension.iter_range)?,
            first: comprehension.iter_var,
            second: comprehension.iter_var2,
            result_name: comprehension.accu_var,
            start: Node::of(comprehension.accu_init)?,
            condition: Node::of(comprehension.loop_cond)?,
            step: Node::of(comprehension.loop_step)?,
            result: Node::of(comprehension.result)?,
        })
    }
}

fn boxed(expression: IdedExpr) -> Result<Box<Node>, String> {
    Ok(Box::new(Node::of(expression)?))
}

fn unsupported(what: &str) -> String {
    format!("ERROR: <input>:1:1: {what} is not supported here")
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(value.inner().to_vec().into()),
        LiteralValue::Double(value) => Value::Float(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::String(value.inner().to_string().into()),
        LiteralValue::UInt(value) => Value::UInt(*value.inner()),
    }
}

fn bind(name: String, value: &Node, body: &Node, kind: Bind) -> Node {
    Node::Bind { name, value: Box::new(value.clone()), body: Box::new(body.clone()), kind }
}

/// The macros that bind the index or key as well.
fn two_variables(name: &str, range: &Node, first: String, second: String, rest: &[Node]) -> Option<Node> {
    let result = || Box::new(Node::Name(RESULT.to_owned()));
    let truth = |value| Node::Literal(Value::Bool(value));
    let (filter, body) = match rest {
        [body] => (None, body.clone()),
        [filter, body] if name.starts_with("transform") => (Some(filter.clone()), body.clone()),
        _ => return None,
    };
    let (start, condition, step) = match name {
        "all" => (truth(true), Node::NotStrictlyFalse(result()), Node::And(result(), Box::new(body))),
        "exists" => {
            let condition = Node::NotStrictlyFalse(Box::new(Node::Not(result())));
            (truth(false), condition, Node::Or(result(), Box::new(body)))
        }
        "existsOne" | "exists_one" => {
            let one = Node::Binary(Binary::Add, Box::new([*result(), Node::Literal(Value::Int(1))]));
            let step = Node::Conditional(Box::new([body, one, *result()]));
            (Node::Literal(Value::Int(0)), truth(true), step)
        }
        "transformList" => {
            let grown = Node::Binary(Binary::Add, Box::new([*result(), Node::List(vec![(body, false)])]));
            (Node::List(Vec::new()), truth(true), filtered(filter, grown))
        }
        _ => {
            let key = Node::Name(first.clone());
            let grown = Node::Insert(Box::new([*result(), key, body]));
            (Node::Map(Vec::new()), truth(true), filtered(filter, grown))
        }
    };
    let is_one = matches!(name, "existsOne" | "exists_one");
    let end = if is_one {
        Node::Binary(Binary::Equal, Box::new([*result(), Node::Literal(Value::Int(1))]))
    } else {
        *result()
    };
    Some(Node::Loop(Box::new(Loop {
        range: range.clone(),
        first,
        second: Some(second),
        result_name: RESULT.to_owned(),
        start,
        condition,
        step,
        result: end,
    })))
}

fn filtered(filter: Option<Node>, grown: Node) -> Node {
    match filter {
        None => grown,
        Some(filter) => Node::Conditional(Box::new([filter, grown, Node::Name(RESULT.to_owned())])),
    }
}
