//! The JSONPath of printer columns and selectable fields: `.status.conditions[?(@.type=="Ready")].status`.

use std::cell::Cell;

use serde_json::{Number, Value};

use crate::bounds::MAX_NODES;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

/// How a path goes on from a value.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name`, `['name']`
    Field(String),
    /// `[2]`, `[-1]`
    Index(i64),
    /// `[1:3]`
    Slice(Option<i64>, Option<i64>),
    /// `.*`, `[*]`
    All,
    /// `..`: the value and all that is in it.
    Descend,
    /// `[?(@.a == 'b')]`
    Filter(JsonPath, Option<(Compare, Literal)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a filter compares with: a constant, or another path from the same item.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Value(Value),
    Path(JsonPath),
}

/// A path cannot nest deeper than this.
const MAX_DEPTH: usize = 8;
/// How many values a path may look at in one object: four times those of the largest. Each `..` after another multiplies.
const MOST_WORK: usize = 4 * MAX_NODES;

impl JsonPath {
    /// Parses a path without its braces; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<JsonPath> {
        let mut parser = Parser { rest: text.trim(), depth: 0 };
        let path = parser.path()?;
        parser.rest.is_empty().then_some(path)
    }

    /// All values that the path leads to; none if that takes too long.
    pub(crate) fn find<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        self.walk(root, &Work(Cell::new(MOST_WORK)))
    }

    /// The first value that the path leads to.
    pub(crate) fn first<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.find(root).first().copied()
    }

    fn walk<'v>(&self, root: &'v Value, work: &Work) -> Vec<&'v Value> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                if step.from(value, work, &mut next).is_none() {
                    return Vec::new();
                }
            }
            found = next;
        }
        found
    }
}

/// How many values may still be looked at.
struct Work(Cell<usize>);

impl Work {
    /// None if that is too many.
    fn spend(&self, values: usize) -> Option<()> {
        self.0.set(self.0.get().checked_sub(values)?);
        Some(())
    }
}

impl Step {
    /// Adds the values that it leads to; none if that takes too long.
    fn from<'v>(&self, value: &'v Value, work: &Work, found: &mut Vec<&'v Value>) -> Option<()> {
        work.spend(1)?;
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
            (Step::Index(index), Value::Array(items)) => {
                let at = place(*index, items.len());
                found.extend(at.and_then(|at| items.get(at)));
            }
            (Step::Slice(start, end), Value::Array(items)) => {
                let start = start.map_or(Some(0), |at| place(at, items.len())).unwrap_or(0);
                let end = end.map_or(Some(items.len()), |at| place(at, items.len())).unwrap_or(0);
                let items = items.get(start..end.min(items.len())).unwrap_or_default();
                work.spend(items.len())?;
                found.extend(items);
            }
            (Step::All, Value::Array(items)) => {
                work.spend(items.len())?;
                found.extend(items);
            }
            (Step::All, Value::Object(fields)) => {
                work.spend(fields.len())?;
                found.extend(fields.values());
            }
            (Step::Descend, value) => descend(value, work, found)?,
            (Step::Filter(path, compare), Value::Array(items)) => {
                for item in items {
                    work.spend(1)?;
                    if holds(path, compare.as_ref(), item, work) {
                        found.push(item);
                    }
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn place(index: i64, length: usize) -> Option<usize> {
    usize::try_from(index).ok().or_else(|| usize::try_from(i64::try_from(length).ok()? + index).ok())
}

fn descend<'v>(value: &'v Value, work: &Work, all: &mut Vec<&'v Value>) -> Option<()> {
    work.spend(1)?;
    all.push(value);
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| descend(item, work, all)),
        Value::Object(fields) => fields.values().try_for_each(|field| descend(field, work, all)),
        _ => Some(()),
    }
}

fn holds(path: &JsonPath, compare: Option<&(Compare, Literal)>, item: &Value, work: &Work) -> bool {
    let first = |path: &JsonPath| path.walk(item, work).first().copied();
    let Some(found) = first(path) else { return false };
    let Some((compare, literal)) = compare else { return true };
    let other = match literal {
        Literal::Value(value) => value,
        Literal::Path(path) => match first(path) {
            Some(value) => value,
            None => return false,
        },
    };
    let order = match (found, other) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(std::cmp::Ordering::Equal),
        _ => None,
    };
    match compare {
        Compare::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Compare::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Compare::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Compare::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn path(&mut self) -> Option<JsonPath> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut steps = Vec::new();
        loop {
            if self.take("..") {
                steps.push(Step::Descend);
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.take(".") {
                // A dot alone is the object itself.
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.take("[") {
                steps.push(self.bracket()?);
            } else {
                break;
            }
        }
        self.depth -= 1;
        Some(JsonPath(steps))
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn field(&mut self) -> Option<Step> {
        if self.take("*") {
            return Some(Step::All);
        }
        let mut name = String::new();
        let mut escaped = false;
        let mut end = self.rest.len();
        for (at, c) in self.rest.char_indices() {
            match c {
                c if escaped => {
                    name.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                '.' | '[' | ']' | ')' | ' ' | '=' | '!' | '<' | '>' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        (!name.is_empty() && !escaped).then_some(Step::Field(name))
    }

    /// What follows `[`.
    fn bracket(&mut self) -> Option<Step> {
        let step = if self.take("?(") {
            self.filter()?
        } else if self.take("*") {
            Step::All
        } else if let Some(text) = self.quoted() {
            Step::Field(text)
        } else {
            let end = self.rest.find(']')?;
            let text = &self.rest[..end];
            self.rest = &self.rest[end..];
            subscript(text)?
        };
        self.take("]").then_some(step)
    }

    fn quoted(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let end = self.rest[1..].find(quote)? + 1;
        let text = self.rest[1..end].to_owned();
        self.rest = &self.rest[end + 1..];
        Some(text)
    }

    fn filter(&mut self) -> Option<Step> {
        self.space();
        if !self.take("@") {
            return None;
        }
        let path = self.path()?;
        self.space();
        let operators = [
            ("==", Compare::Equal),
            ("!=", Compare::NotEqual),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
        ];
        let operator = operators.into_iter().find(|(text, _)| self.take(text)).map(|(_, compare)| compare);
        let compare = match operator {
            Some(compare) => Some((compare, self.literal()?)),
            None => None,
        };
        self.space();
        self.take(")").then_some(Step::Filter(path, compare))
    }

    fn literal(&mut self) -> Option<Literal> {
        self.space();
        if self.take("@") {
            return self.path().map(Literal::Path);
        }
        if let Some(text) = self.quoted() {
            return Some(Literal::Value(text.into()));
        }
        let end = self.rest.find([')', ' '])?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end..];
        let value = match text {
            "true" => true.into(),
            "false" => false.into(),
            text => text.parse::<Number>().ok()?.into(),
        };
        Some(Literal::Value(value))
    }
}

fn subscript(text: &str) -> Option<Step> {
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        text => text.parse().ok().map(Some),
    };
    match text.split_once(':') {
        Some((start, end)) => Some(Step::Slice(number(start)?, number(end)?)),
        None => number(text)?.map(Step::Index),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &str, expect: &Value) {
        let object = json!({
            "spec": {"a.b": 1, "list": [1, 2, 3], "map": {"x": {"n": 5}, "y": {"n": 7}}},
            "status": {"conditions": [
                {"type": "Synced", "status": "False", "n": 1}, {"type": "Ready", "status": "True", "n": 2},
            ]},
        });
        let path = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} is a path"));
        assert_eq!(json!(path.find(&object)), *expect);
    }

    #[test]
    fn paths_lead_where_kubectls_do() {
        check(".spec.list[1]", &json!([2]));
        check(".spec.list[-1]", &json!([3]));
        check(".spec.list[0:2]", &json!([1, 2]));
        check(".spec.list[*]", &json!([1, 2, 3]));
        check(".spec.map.*.n", &json!([5, 7]));
        check(".spec['a.b']", &json!([1]));
        check(r".spec.a\.b", &json!([1]));
        check(".spec.missing.deep", &json!([]));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, &json!(["True"]));
        check(".status.conditions[?(@.type == 'Ready')].status", &json!(["True"]));
        check(".status.conditions[?(@.n>=2)].type", &json!(["Ready"]));
        check(".status.conditions[?(@.type!='Ready')].type", &json!(["Synced"]));
        check("..type", &json!(["Synced", "Ready"]));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["spec", ".spec[", ".spec[?(x)]", ".a[?(@.b==)]", ".spec[x]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }

    /// Eight descents through a hundred levels would lead to more than a million million values.
    #[test]
    fn a_path_that_leads_to_too_many_values_leads_nowhere() {
        let deep = (0..100).fold(json!({"x": 1}), |inner, _| json!({"a": inner}));
        let find = |path: &str| JsonPath::parse(path).unwrap().find(&deep).len();
        assert_eq!(find("..x"), 1);
        assert_eq!(find("..a..x"), 100);
        assert_eq!(find("..a..a..a..a..a..a..a..a..x"), 0);
        let items = json!({"list": vec![deep.clone(); 100]});
        let filter = JsonPath::parse(".list[?(@..a..a..a..a..a..a..none == 1)].a").unwrap();
        assert_eq!(filter.find(&items).len(), 0);
    }
}
