//! CEL: the expressions of custom resources' rules, of admission policies and of match conditions.
//!
//! The parser is that of the `cel` crate and most functions are those of `kube-cel`; the evaluator is ours, because
//! theirs has no limit. Every step here costs something, and what an operation may at most allocate is paid before it
//! runs, so that no expression takes more time or memory than its budget, whatever the object.

mod check;
mod equality;
mod evaluate;
mod functions;
mod kind;
mod library;
mod node;
mod overloads;
mod tokens;
mod value;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use kube_cel::cel::Value;
use kube_cel::cel::parser::{ParseError, ParseErrors, Parser};

pub(crate) use check::check;
pub(crate) use evaluate::Failure;
pub(crate) use kind::{Kind, Object};
use node::Node;
pub(crate) use value::{escape, list, map, none, of_json, optional, text, timestamp_or_duration};

/// The longest expression.
const MAX_SOURCE: usize = 16 * 1024;
/// What one evaluation may cost, as in kube-apiserver.
const CALL_LIMIT: u64 = 1_000_000;

/// What the expressions about one object may cost together.
#[derive(Clone, Debug)]
pub(crate) struct Budget(u64);

impl Budget {
    /// For one object, as in kube-apiserver.
    pub(crate) fn for_object() -> Budget {
        Budget(10_000_000)
    }

    /// For the match conditions of one webhook or policy, as in kube-apiserver.
    pub(crate) fn for_conditions() -> Budget {
        Budget(2_500_000)
    }

    /// For no more expressions.
    pub(crate) fn nothing() -> Budget {
        Budget(0)
    }

    /// Whether nothing is left.
    pub(crate) fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    node: Node,
    names: BTreeSet<String>,
}

impl Program {
    /// Parses `source`. The error reads as cel-go's.
    pub(crate) fn compile(source: &str) -> Result<Program, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("ERROR: <input>:1:1: expression is longer than {MAX_SOURCE} bytes"));
        }
        if let Some(problem) = too_deep(source) {
            return Err(problem);
        }
        let node = parse(source)?;
        let names = node.names();
        Ok(Program { node, names })
    }

    /// Whether the expression mentions a variable, or `a.b` of a variable `a`.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The value of the expression, with `variables` by name. A variable may be an error, which counts if it is used.
    pub(crate) fn evaluate(
        &self,
        variables: &[(&str, Result<Value, Failure>)],
        budget: &mut Budget,
    ) -> Result<Value, Failure> {
        let limit = CALL_LIMIT.min(budget.0);
        let mut evaluator = evaluate::Evaluator::new(variables, limit);
        // Some functions are not ours to trust either.
        let result = catch_unwind(AssertUnwindSafe(|| evaluator.evaluate(&self.node)));
        budget.0 -= limit - evaluator.left();
        result.unwrap_or_else(|_| Err(Failure::error("internal error")))
    }
}

/// The generated parser takes about 100 KiB of stack for each bracket that it is in, and is not ours to trust: it runs on
/// a stack of its own, to which its input is fitted.
#[allow(clippy::disallowed_methods, reason = "the thread is joined at once: it is a stack, not a task")]
fn parse(source: &str) -> Result<Node, String> {
    let cannot = || "ERROR: <input>:1:1: cannot be parsed".to_owned();
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("cel-parser".to_owned()).stack_size(PARSER_STACK);
        let parse = || {
            let parser = Parser::new().enable_optional_syntax(true);
            Node::of(parser.parse(source).map_err(|errors| told(source, &errors))?)
        };
        parser.spawn_scoped(scope, parse).map_err(|_| cannot())?.join().unwrap_or_else(|_| Err(cannot()))
    })
}

/// What is wrong with the syntax, as cel-go prints it.
fn told(source: &str, errors: &ParseErrors) -> String {
    let line = |error: &ParseError| {
        let place = |at: isize| usize::try_from(at).unwrap_or_default();
        let (line, column) = (place(error.pos.0), place(error.pos.1));
        tokens::point(source, line, column, &error.msg)
    };
    errors.errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Only what is touched of it takes memory.
const PARSER_STACK: usize = 32 << 20;

/// What the parser's stack can take: its depth grows with these, and it has no limit of its own that holds.
mod limits {
    pub(super) const BRACKETS: usize = 40;
    pub(super) const UNARY: usize = 16;
    pub(super) const CHOICES: usize = 32;
    pub(super) const OPERATORS: usize = 200;
    pub(super) const MEMBERS: usize = 400;
}

/// Why an expression is not even parsed.
fn too_deep(source: &str) -> Option<String> {
    let (mut brackets, mut unary, mut choices, mut operators, mut members) = (0usize, 0usize, 0, 0, 0);
    let mut quote = None;
    let mut escaped = false;
    for byte in source.bytes() {
        if let Some(open) = quote {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                byte if byte == open => quote = None,
                _ => {}
            }
            continue;
        }
        unary = if matches!(byte, b'!' | b'-') || byte.is_ascii_whitespace() { unary + 1 } else { 0 };
        match byte {
            b'"' | b'\'' => quote = Some(byte),
            b'(' | b'[' | b'{' => {
                brackets += 1;
                members += 1;
            }
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b'?' => choices += 1,
            b'+' | b'*' | b'/' | b'%' | b'-' | b'<' | b'>' | b'=' | b'&' | b'|' => operators += 1,
            b'.' => members += 1,
            _ => {}
        }
        let over = [
            (brackets > limits::BRACKETS, "nested brackets", limits::BRACKETS),
            (unary > limits::UNARY && matches!(byte, b'!' | b'-'), "signs in a row", limits::UNARY),
            (choices > limits::CHOICES, "conditionals", limits::CHOICES),
            (operators > limits::OPERATORS, "operators", limits::OPERATORS),
            (members > limits::MEMBERS, "members", limits::MEMBERS),
        ];
        if let Some((_, what, most)) = over.iter().find(|(over, ..)| *over) {
            return Some(format!("ERROR: <input>:1:1: expression has more than {most} {what}"));
        }
    }
    None
}

#[cfg(test)]
mod tests;
