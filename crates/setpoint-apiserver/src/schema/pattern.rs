//! Regular expressions of schemas: written for Go, run here.

use regex::{Regex, RegexBuilder};

/// What one compiled expression may take: a schema is full of them.
const MAX_COMPILED: usize = 1 << 20;

/// A regular expression and its source. One that does not compile matches nothing, and says why.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    source: String,
    compiled: Result<Regex, String>,
}

impl Pattern {
    /// Compiles `source`.
    pub(crate) fn new(source: &str) -> Pattern {
        Pattern { source: source.to_owned(), compiled: compile(source) }
    }

    /// The expression as it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Why it does not compile.
    pub(crate) fn error(&self) -> Option<&str> {
        self.compiled.as_ref().err().map(String::as_str)
    }

    /// Whether it matches anywhere in `text`.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.compiled.as_ref().is_ok_and(|regex| regex.is_match(text))
    }
}

impl Pattern {
    /// The first `most` matches in `text`.
    pub(crate) fn find<'t>(&self, text: &'t str, most: usize) -> Vec<&'t str> {
        let Ok(regex) = &self.compiled else { return Vec::new() };
        regex.find_iter(text).take(most).map(|found| found.as_str()).collect()
    }
}

fn compile(source: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(&translate(source)).size_limit(MAX_COMPILED).build();
    built.map_err(|error| {
        // The last line says what is wrong; those before it draw the place.
        let text = error.to_string();
        let problem = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let (problem, part) = in_go(problem, source);
        format!("error parsing regexp: {problem}: `{part}`")
    })
}

/// The commonest problems in Go's words, with the part of the source that Go shows.
fn in_go<'a>(problem: &'a str, source: &'a str) -> (&'a str, &'a str) {
    match problem {
        "unclosed group" => ("missing closing )", source),
        "unopened group" => ("unexpected )", source),
        "unclosed character class" => {
            ("missing closing ]", source.rfind('[').map_or(source, |at| &source[at..]))
        }
        "repetition operator missing expression" => {
            let operator = source.find(['*', '+', '?']).map_or(source, |at| &source[at..=at]);
            ("missing argument to repetition operator", operator)
        }
        problem if problem.starts_with("look-around") => {
            let found = source.find("(?").and_then(|at| source.get(at..at + 3));
            ("invalid or unsupported Perl syntax", found.unwrap_or(source))
        }
        problem => (problem, source),
    }
}

/// Both are RE2's language, but Go's `\d`, `\w`, `\s` and `\b` are ASCII, a `[` within a class is a plain character, and
/// there are no class operations.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('Q') => quote_literal(&mut chars, &mut out),
                Some(escape) => out.push_str(&translate_escape(escape, in_class)),
                None => out.push('\\'),
            },
            '[' if in_class && chars.peek() == Some(&':') => out.push('['),
            '[' if in_class => out.push_str("\\["),
            '[' => {
                in_class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first is a member, not the end.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            // The end of `[:alpha:]` is not the end of the class around it.
            ':' if in_class && chars.peek() == Some(&']') && names_class(&out) => {
                chars.next();
                out.push_str(":]");
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            // Two dashes are a range that begins or ends with a dash.
            '-' if in_class && chars.peek() == Some(&'-') && opens_class(&out) => out.push_str("\\-"),
            '-' if in_class && chars.next_if_eq(&'-').is_some() => out.push_str("-\\-"),
            c => out.push(c),
        }
    }
    out
}

/// Whether `out` ends with the bracket that opens a class.
fn opens_class(out: &str) -> bool {
    (out.ends_with('[') && !out.ends_with("\\[")) || out.ends_with("[^")
}

/// Whether `out` ends within `[:name`.
fn names_class(out: &str) -> bool {
    out.rfind("[:").is_some_and(|start| out[start + 2..].chars().all(|c| c.is_ascii_alphabetic() || c == '^'))
}

fn translate_escape(escape: char, in_class: bool) -> String {
    let set = match escape.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\f\r ",
        'b' if !in_class => return format!(r"(?-u:\{escape})"),
        _ => return format!(r"\{escape}"),
    };
    match (escape.is_ascii_uppercase(), in_class) {
        (true, _) => format!("[^{set}]"),
        (false, true) => set.to_owned(),
        (false, false) => format!("[{set}]"),
    }
}

/// `\Q…\E` is taken literally.
fn quote_literal(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut literal = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            break;
        }
        literal.push(c);
    }
    out.push_str(&regex::escape(&literal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_go_matches_them() {
        let cases = [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "abC", false),
            (r"^\d+$", "12", true),
            (r"^\d+$", "१२", false),
            (r"^\w+$", "é", false),
            (r"^[\w-]+$", "a-b_c", true),
            (r"^[^\s]+$", "a b", false),
            (r"^[\W]+$", "--", true),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[+--]+$", ",-", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\bfoo\b", "a foo b", true),
            (r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}$", "10.0.0.1", true),
            (r"b", "abc", true),
        ];
        for (pattern, text, expected) in cases {
            let pattern = Pattern::new(pattern);
            assert_eq!(pattern.error(), None, "{pattern:?}");
            assert_eq!(pattern.matches(text), expected, "{pattern:?} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_does_not_compile_matches_nothing_and_says_so() {
        let pattern = Pattern::new("a(");
        assert!(!pattern.matches("a("));
        assert_eq!(pattern.error(), Some("error parsing regexp: missing closing ): `a(`"));
        assert!(Pattern::new(r"(\pL{1000}){1000}").error().is_some(), "too big to compile");
    }
}
