//! `labelSelector=app=web,tier in (front,back),!canary`

use std::borrow::Cow;

use crate::field_error::FieldError;
use crate::metadata::names;
use crate::status::{Result, Status};

/// All requirements must hold; none at all selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One requirement: a key, an operator and the values that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted and unique; one for `Gt` and `Lt`, none for `Exists` and `DoesNotExist`.
    values: Vec<String>,
}

/// How the label's value relates to the requirement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// `=`, `==` and `in`: the label exists and has one of the values.
    In,
    /// `!=` and `notin`: the label has none of the values; a missing label qualifies.
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl LabelSelector {
    /// Parses the selector; a blank one selects everything.
    pub(crate) fn parse(text: &str) -> Result<LabelSelector> {
        let requirements = Parser { tokens: Lexer { text, at: 0 }.tokens(), at: 0 }.requirements();
        requirements.map(|requirements| LabelSelector { requirements }).map_err(Status::bad_request)
    }

    /// Whether labels, given as a lookup, are selected.
    pub(crate) fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
    }

    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            Operator::In => label.is_some_and(listed),
            Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt => self.compare(label) == Some(std::cmp::Ordering::Greater),
            Operator::Lt => self.compare(label) == Some(std::cmp::Ordering::Less),
        }
    }

    /// The label against the one value, both as integers; `None` if either is not one.
    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let integer = |text: &str| text.parse::<i64>().ok();
        Some(integer(label?)?.cmp(&integer(self.values.first()?)?))
    }

    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Requirement, String> {
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        if matches!(operator, Operator::Gt | Operator::Lt) {
            for (i, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{i}]"), value.as_str(), detail));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let field = format!("values[{i}][{key}]");
                errors.push(FieldError::invalid(field, value.as_str(), problems.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => Ok(Requirement { key: key.to_owned(), operator, values }),
            [one] => Err(one.to_string()),
            many => {
                Err(format!("[{}]", many.iter().map(FieldError::to_string).collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    /// A key or a value; also the words `in` and `notin`, which are operators only where one is expected.
    Word(&'a str),
}

impl<'a> Token<'a> {
    /// As messages quote it.
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Not => "!",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Word(word) => word,
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn tokens(mut self) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        loop {
            let token = self.token();
            tokens.push(token);
            if token == Token::End {
                return tokens;
            }
        }
    }

    fn token(&mut self) -> Token<'a> {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
        // A NUL ends a token and, where one would begin, the whole selector: so does kube-apiserver's lexer.
        let (token, length) = match rest.as_bytes() {
            [] | [0, ..] => (Token::End, 0),
            [b'=', b'=', ..] => (Token::DoubleEquals, 2),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'!', ..] => (Token::Not, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            _ => {
                let end = rest.find(['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n', '\0']);
                let end = end.unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
        };
        let nul = token != Token::End && rest[length..].starts_with('\0');
        self.at += length + usize::from(nul);
        token
    }
}

struct Parser<'a> {
    /// Ends with [`Token::End`].
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirements(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Not => {}
            other => return Err(unexpected(other, ", expected: !, identifier, or 'end of string'")),
        }
        loop {
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Comma => match self.peek() {
                    Token::Word(_) | Token::Not => {}
                    other => return Err(unexpected(other, ", expected: identifier after ','")),
                },
                other => return Err(unexpected(other, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Not;
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(unexpected(other, ", expected: identifier")),
        };
        let problems = names::label_key(key);
        if !problems.is_empty() {
            // kube-apiserver has no path to name here, and says so.
            return Err(FieldError::invalid("<nil>", key, problems.join("; ")).to_string());
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, vec![]);
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, vec![]);
        }
        let (operator, values) = match self.next() {
            Token::Word("in") => (Operator::In, self.value_set()?),
            Token::Word("notin") => (Operator::NotIn, self.value_set()?),
            Token::Equals | Token::DoubleEquals => (Operator::In, vec![self.value()?]),
            Token::NotEquals => (Operator::NotIn, vec![self.value()?]),
            Token::Greater => (Operator::Gt, vec![self.value()?]),
            Token::Less => (Operator::Lt, vec![self.value()?]),
            other => return Err(unexpected(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        Requirement::new(key, operator, values)
    }

    /// The value after `=`; it may be left out.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value.to_owned()),
            other => Err(unexpected(other, ", expected: identifier")),
        }
    }

    /// `(a,b)`; an empty place, as in `(,a)` and `()`, is the empty value.
    fn value_set(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Open => {}
            other => return Err(unexpected(other, " expected: '('")),
        }
        match self.peek() {
            Token::Word(_) | Token::Comma | Token::Close => {}
            other => return Err(unexpected(other, ", expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                Token::Word(value) => {
                    values.push(value.to_owned());
                    self.next();
                    if !matches!(self.peek(), Token::Comma | Token::Close) {
                        return Err(unexpected(self.peek(), ", expected: ',' or ')'"));
                    }
                }
                Token::Comma | Token::Close => values.push(String::new()),
                other => return Err(unexpected(other, ", expected: ',', or identifier")),
            }
            if self.next() == Token::Close {
                return Ok(values);
            }
        }
    }
}

fn unexpected(token: Token<'_>, rest: &str) -> String {
    format!("found '{}'{rest}", token.text())
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.requirements.iter().map(Requirement::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Requirement { key, operator, values } = self;
        let values = match values.as_slice() {
            [one] => Cow::Borrowed(one),
            many => Cow::Owned(many.join(",")),
        };
        match operator {
            Operator::In if self.values.len() == 1 => write!(f, "{key}={values}"),
            Operator::NotIn if self.values.len() == 1 => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Gt => write!(f, "{key}>{values}"),
            Operator::Lt => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).copied())
    }

    #[track_caller]
    fn check_error(selector: &str, expect: &str) {
        let status = LabelSelector::parse(selector).unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (400, "BadRequest"));
        assert_eq!(status.message, expect, "{selector}");
    }

    #[test]
    fn every_operator_selects_what_kubectl_users_expect() {
        let web = &[("app", "web"), ("n", "5")];
        for selector in [
            "",
            "  ",
            "app",
            "app=web",
            "app==web",
            " app = web ",
            "app!=db",
            "other!=x",
            "!other",
            "app in (web)",
            "app in (a, web)",
            "app notin (a,b)",
            "other notin (a)",
            "n>4",
            "n<6",
            "app=web,n",
            "in notin (in)",
            "other notin ()",
            "\0x=1",
        ] {
            assert!(selects(selector, web), "{selector}");
        }
        for selector in [
            "other",
            "app=",
            "app=db",
            "app!=web",
            "!app",
            "app in (a)",
            "app in ()",
            "app notin (web)",
            "n>5",
            "n<5",
            "app>1",
            "other>1",
            "app=web,other",
        ] {
            assert!(!selects(selector, web), "{selector}");
        }
        assert!(selects("app in (,x)", &[("app", "")]));
        assert!(selects("app in (x,)", &[("app", "")]));
        assert!(selects("app in (x,,y)", &[("app", "")]));
        assert!(selects("app=,x", &[("app", ""), ("x", "")]));
    }

    #[test]
    fn errors_are_those_of_kube_apiserver() {
        const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                            with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
                            for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                             '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                             'my_value',  or '12345', regex used for validation is \
                             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        let operators = "expected: in, notin, =, ==, !=, gt, lt";
        check_error("x a", &format!("unable to parse requirement: found 'a', {operators}"));
        check_error("x!", &format!("unable to parse requirement: found '!', {operators}"));
        check_error("=a", "found '=', expected: !, identifier, or 'end of string'");
        check_error("x,", "found '', expected: identifier after ','");
        check_error("x=a b", "found 'b', expected: ',' or 'end of string'");
        check_error("!x=a", "found '=', expected: ',' or 'end of string'");
        check_error("!", "unable to parse requirement: found '', expected: identifier");
        check_error("x=(", "unable to parse requirement: found '(', expected: identifier");
        check_error("x in a", "unable to parse requirement: found 'a' expected: '('");
        check_error("x in (", "unable to parse requirement: found '', expected: ',', ')' or identifier");
        check_error("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'");
        check_error("x in (,", "unable to parse requirement: found '', expected: ',', or identifier");
        check_error("a$b=c", &format!("unable to parse requirement: <nil>: Invalid value: \"a$b\": {NAME}"));
        check_error(
            "a=$",
            &format!("unable to parse requirement: values[0][a]: Invalid value: \"$\": {VALUE}"),
        );
        check_error(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        );
        check_error(
            "a>-",
            &format!(
                "unable to parse requirement: [values[0]: Invalid value: \"-\": for 'Gt', 'Lt' operators, the value \
                 must be an integer, values[0][a]: Invalid value: \"-\": {VALUE}]"
            ),
        );
    }

    /// What the selector means, said in the plainest way.
    fn model(requirement: &(String, String, Vec<String>), labels: &BTreeMap<String, String>) -> bool {
        let (key, operator, values) = requirement;
        let label = labels.get(key);
        match operator.as_str() {
            "=" | "==" | "in" => label.is_some_and(|label| values.contains(label)),
            "!=" | "notin" => label.is_none_or(|label| !values.contains(label)),
            "exists" => label.is_some(),
            "!" => label.is_none(),
            ">" => {
                label.is_some_and(|label| label.parse::<i64>().is_ok_and(|n| n > values[0].parse().unwrap()))
            }
            "<" => {
                label.is_some_and(|label| label.parse::<i64>().is_ok_and(|n| n < values[0].parse().unwrap()))
            }
            other => panic!("{other}"),
        }
    }

    fn text((key, operator, values): &(String, String, Vec<String>)) -> String {
        match operator.as_str() {
            "exists" => key.clone(),
            "!" => format!("!{key}"),
            "in" | "notin" => format!("{key} {operator} ({})", values.join(", ")),
            _ => format!("{key}{operator}{}", values[0]),
        }
    }

    fn requirement() -> impl Strategy<Value = (String, String, Vec<String>)> {
        let operators = ["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"];
        (0..4u8, prop::sample::select(operators.to_vec())).prop_flat_map(|(key, operator)| {
            let values = match operator {
                ">" | "<" => "[0-9]",
                _ => "[0-9a]?",
            };
            let count = if operator.ends_with("in") { 1..4 } else { 1..2 };
            prop::collection::vec(values, count)
                .prop_map(move |values| (format!("k{key}"), operator.to_owned(), values))
        })
    }

    proptest! {
        #[test]
        fn selection_agrees_with_the_model(
            requirements in prop::collection::vec(requirement(), 0..4),
            labels in prop::collection::btree_map("k[0-3]", "[0-9a]?", 0..4),
        ) {
            let texts: Vec<String> = requirements.iter().map(text).collect();
            let selector = LabelSelector::parse(&texts.join(",")).unwrap();
            let expect = requirements.iter().all(|requirement| model(requirement, &labels));
            prop_assert_eq!(selector.matches(|key| labels.get(key).map(String::as_str)), expect);
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[ab=!(),<> \\x00\\u{e9}in]{0,12}|\\PC{0,20}") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
