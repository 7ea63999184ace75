//! `fieldSelector=metadata.name=web,status.phase!=Failed`

use std::borrow::Cow;

use crate::status::{Result, Status};

/// All terms must hold; none at all selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One term: `field=value`, or `field!=value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FieldTerm {
    field: String,
    value: String,
    /// `true` for `=`, `false` for `!=`.
    equal: bool,
}

/// The fields that objects of a kind can be selected by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldLabels<'a> {
    /// A built-in kind that says nothing about its fields: `metadata.name` and `metadata.namespace`.
    Generic,
    /// Exactly these, `metadata.name` included.
    Only(&'a [&'a str]),
}

impl FieldSelector {
    /// Parses the selector. The order of the terms is that of their texts, as in kube-apiserver: it decides which
    /// of several mistakes is reported.
    pub(crate) fn parse(text: &str) -> Result<FieldSelector> {
        let mut parts = split_at_commas(text);
        parts.sort_unstable();
        let parsed = parts.into_iter().filter(|part| !part.is_empty()).map(|part| {
            FieldTerm::parse(part)?
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))
        });
        let mut terms = parsed.collect::<Result<Vec<_>, String>>().map_err(Status::bad_request)?;
        // `=` alone selects everything.
        terms.retain(|term| !(term.field.is_empty() && term.value.is_empty()));
        Ok(FieldSelector { terms })
    }

    /// Refuses terms about fields that the kind does not offer.
    pub(crate) fn check(&self, labels: FieldLabels<'_>) -> Result<()> {
        for FieldTerm { field, .. } in &self.terms {
            match labels {
                FieldLabels::Generic if matches!(field.as_str(), "metadata.name" | "metadata.namespace") => {}
                FieldLabels::Generic => {
                    return Err(Status::bad_request(format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )));
                }
                FieldLabels::Only(labels) if labels.contains(&field.as_str()) => {}
                FieldLabels::Only(_) => {
                    return Err(Status::bad_request(format!("field label not supported: {field}")));
                }
            }
        }
        Ok(())
    }

    /// Whether an object, given as a lookup of its fields, is selected. A field that it lacks counts as empty.
    pub(crate) fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.terms.iter().all(|term| {
            let value = lookup(&term.field).unwrap_or_default();
            (value == term.value) == term.equal
        })
    }

    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that `field` must have, if there is exactly one such value.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// The name of `metadata.name=x`: such a list or watch concerns one object only.
    pub(crate) fn name(&self) -> Option<&str> {
        self.exact("metadata.name")
    }

    /// The namespace of `metadata.namespace=x`.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.exact("metadata.namespace")
    }
}

impl FieldTerm {
    /// `None` if there is no operator in `part`.
    fn parse(part: &str) -> Result<Option<FieldTerm>, String> {
        let operator = |(at, _): (usize, char)| {
            let found = ["!=", "==", "="].into_iter().find(|operator| part[at..].starts_with(operator));
            found.map(|operator| (at, operator))
        };
        let Some((at, operator)) = part.char_indices().find_map(operator) else { return Ok(None) };
        let value = unescape(&part[at + operator.len()..])?;
        Ok(Some(FieldTerm { field: part[..at].to_owned(), value, equal: operator != "!=" }))
    }
}

/// Splits at the commas that no backslash precedes; the backslashes stay.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let separator = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separator
    })
    .collect()
}

fn unescape(text: &str) -> Result<String, String> {
    let bad_escape = |sequence: &str| format!("invalid field selector: invalid escape sequence: {sequence}");
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                Some(other) => return Err(bad_escape(&format!("\\{other}"))),
                None => return Err(bad_escape("\\")),
            },
            // kube-apiserver prints the character's number.
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

impl std::fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(selector: &str, expect: &[(&str, bool, &str)]) {
        let parsed = FieldSelector::parse(selector).unwrap();
        let terms = parsed.terms.iter().map(|term| (term.field.as_str(), term.equal, term.value.as_str()));
        assert_eq!(terms.collect::<Vec<_>>(), expect, "{selector}");
    }

    #[track_caller]
    fn check_error(result: Result<impl std::fmt::Debug>, expect: &str) {
        let status = result.unwrap_err();
        assert_eq!((status.code.as_u16(), &*status.reason), (400, "BadRequest"));
        assert_eq!(status.message, expect);
    }

    #[test]
    fn terms_and_escapes() {
        check("", &[]);
        check(",,", &[]);
        check("=,!=", &[]);
        check("a=b", &[("a", true, "b")]);
        check("a==b,c!=d", &[("a", true, "b"), ("c", false, "d")]);
        check("b=1,a=2", &[("a", true, "2"), ("b", true, "1")]);
        check("a=", &[("a", true, "")]);
        check(r"a=x\,y\=z\\", &[("a", true, r"x,y=z\")]);
        check("a=b!c", &[("a", true, "b!c")]);
        check("é=ü", &[("é", true, "ü")]);
    }

    #[test]
    fn errors_are_those_of_kube_apiserver() {
        check_error(FieldSelector::parse("a"), "invalid selector: 'a'; can't understand 'a'");
        check_error(FieldSelector::parse("x=1,a"), "invalid selector: 'x=1,a'; can't understand 'a'");
        check_error(
            FieldSelector::parse("a=b=c"),
            "invalid field selector: unescaped character in value: 61",
        );
        check_error(FieldSelector::parse(r"a=\x"), r"invalid field selector: invalid escape sequence: \x");
        check_error(FieldSelector::parse(r"a=\"), r"invalid field selector: invalid escape sequence: \");
        let selector = FieldSelector::parse("spec.x=1").unwrap();
        check_error(
            selector.check(FieldLabels::Only(&["metadata.name"])),
            "field label not supported: spec.x",
        );
        check_error(
            selector.check(FieldLabels::Generic),
            r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        );
        assert!(selector.check(FieldLabels::Only(&["spec.x"])).is_ok());
    }

    #[test]
    fn a_selector_of_one_name_says_so() {
        let selector = FieldSelector::parse("metadata.namespace!=x,metadata.name=web").unwrap();
        assert_eq!(selector.name(), Some("web"));
        assert_eq!(selector.namespace(), None);
    }

    proptest! {
        #[test]
        fn selection_agrees_with_the_model(
            terms in prop::collection::vec(("[a-c]", any::<bool>(), "[x,=\\\\]{0,2}"), 0..4),
            fields in prop::collection::btree_map("[a-c]", "[x,=\\\\]{0,2}", 0..4),
        ) {
            let terms: Vec<FieldTerm> =
                terms.into_iter().map(|(field, equal, value)| FieldTerm { field, value, equal }).collect();
            let built = FieldSelector { terms };
            let parsed = FieldSelector::parse(&built.to_string()).unwrap();
            let (mut some, mut other) = (parsed.terms.clone(), built.terms.clone());
            some.sort();
            other.sort();
            prop_assert_eq!(some, other);
            let value = |field: &str| fields.get(field).map_or("", String::as_str);
            let expect = built.terms.iter().all(|term| (value(&term.field) == term.value) == term.equal);
            let fields: &BTreeMap<String, String> = &fields;
            let lookup = |field: &str| fields.get(field).map(|value| Cow::Borrowed(value.as_str()));
            prop_assert_eq!(parsed.matches(lookup), expect);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[ab=!,\\\\\\u{e9}]{0,12}|\\PC{0,20}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
