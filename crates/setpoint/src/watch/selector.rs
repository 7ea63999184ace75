//! Selectors as sets of requirements, each in one spelling: what means the same is the same.

use std::collections::{BTreeMap, BTreeSet};

/// The requirements of a label selector. What is none stays as it is: the server says what is wrong with it.
pub(super) fn of_labels(selector: &str) -> impl Iterator<Item = String> {
    parts(selector).into_iter().filter_map(|part| {
        let part = part.trim();
        (!part.is_empty()).then(|| of_label(part).unwrap_or_else(|| part.to_owned()))
    })
}

/// The requirements of a field selector. Spaces are part of a value.
pub(super) fn of_fields(selector: &str) -> impl Iterator<Item = String> {
    parts(selector).into_iter().filter(|part| !part.is_empty()).map(|part| match part.split_once("==") {
        // The first operator counts.
        Some((field, value)) if !field.contains('=') && !field.ends_with('!') => format!("{field}={value}"),
        _ => part,
    })
}

/// Whether a label selector takes an object of these labels, as far as that can be told here.
pub(crate) fn takes(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    of_labels(selector).all(|requirement| is_met(&requirement, labels) == Some(true))
}

/// Whether labels meet a requirement in its one spelling; none if it is not understood.
fn is_met(requirement: &str, labels: &BTreeMap<String, String>) -> Option<bool> {
    let has = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    if let Some(key) = requirement.strip_prefix('!') {
        return is_word(key).then(|| !labels.contains_key(key));
    }
    if let Some((head, set)) = requirement.split_once(" (") {
        let (key, operator) = head.split_once(' ')?;
        let is_in = set.strip_suffix(')')?.split(',').any(|value| has(key, value));
        return match operator {
            "in" => Some(is_in),
            "notin" => Some(!is_in),
            _ => None,
        };
    }
    if is_word(requirement) {
        return Some(labels.contains_key(requirement));
    }
    let (key, value) = requirement.split_once('=')?;
    let (key, is_wanted) = key.strip_suffix('!').map_or((key, true), |key| (key, false));
    (is_word(key) && (value.is_empty() || is_word(value))).then(|| has(key, value) == is_wanted)
}

/// All of them as one selector; none if there is none.
pub(super) fn joined(requirements: &BTreeSet<String>) -> Option<String> {
    let all: Vec<&str> = requirements.iter().map(String::as_str).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// One requirement: `app=web`, `app!=web`, `tier in (a,b)`, `tier notin (a,b)`, `app`, `!app`.
fn of_label(part: &str) -> Option<String> {
    if let Some(key) = part.strip_prefix('!') {
        let key = key.trim();
        return is_word(key).then(|| format!("!{key}"));
    }
    if let Some((head, set)) = part.split_once('(') {
        let set = set.trim_end().strip_suffix(')')?;
        let (key, operator) = head.trim_end().rsplit_once(char::is_whitespace)?;
        let (key, is_in) = (key.trim_end(), operator == "in");
        let values: BTreeSet<&str> = set.split(',').map(str::trim).collect();
        let is_known = (is_in || operator == "notin") && is_word(key);
        if !is_known
            || values.iter().any(|value| value.contains(['(', ')']) || value.contains(char::is_whitespace))
        {
            return None;
        }
        let values: Vec<&str> = values.into_iter().collect();
        return Some(match (&values[..], is_in) {
            ([value], true) => format!("{key}={value}"),
            ([value], false) => format!("{key}!={value}"),
            (values, _) => format!("{key} {operator} ({})", values.join(",")),
        });
    }
    let at = part.find(['=', '!'])?;
    let (key, rest) = (part[..at].trim_end(), &part[at..]);
    let (operator, value) = [("==", "="), ("!=", "!="), ("=", "=")]
        .into_iter()
        .find_map(|(spelt, operator)| Some((operator, rest.strip_prefix(spelt)?.trim())))?;
    (is_word(key) && (value.is_empty() || is_word(value))).then(|| format!("{key}{operator}{value}"))
}

/// What stands alone, without an operator in it.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "=!<>(),".contains(c))
}

/// What stands between the commas of a selector, but for those of a set, `tier in (a,b)`, and those that a backslash makes
/// a part of a value.
fn parts(selector: &str) -> Vec<String> {
    let (mut all, mut one) = (Vec::new(), String::new());
    let (mut depth, mut is_escaped) = (0_i32, false);
    for c in selector.chars() {
        match c {
            ',' if depth <= 0 && !is_escaped => {
                all.push(std::mem::take(&mut one));
                continue;
            }
            '(' if !is_escaped => depth += 1,
            ')' if !is_escaped => depth -= 1,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        one.push(c);
    }
    all.push(one);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same_is_spelt_the_same() {
        let labels = |selector: &str| of_labels(selector).collect::<BTreeSet<_>>();
        for (one, two) in [
            ("a=b", " a == b ,"),
            ("a=b,c", "c,a=b"),
            ("a!=b", "a != b"),
            ("a=b", "a in (b)"),
            ("a!=b", "a notin ( b )"),
            ("a in (x,y)", "a  in(y, x,x)"),
            ("!a", "! a"),
            ("a=", "a = "),
        ] {
            assert_eq!(labels(one), labels(two), "{one:?} and {two:?}");
        }
        for (one, two) in
            [("a=b", "a!=b"), ("a in (x,y)", "a notin (x,y)"), ("a", "!a"), ("a=", "a"), ("a>1", "a<1")]
        {
            assert_ne!(labels(one), labels(two), "{one:?} and {two:?}");
        }
    }

    #[test]
    fn a_selector_takes_what_the_server_would_select() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("empty", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for yes in [
            "",
            "app=web",
            "app == web , app",
            "empty",
            "app!=db",
            "other!=db",
            "app in (db, web)",
            "app notin (db,cache)",
            "other notin (db,cache)",
            "!other",
            "empty=",
            "empty in (,x)",
        ] {
            assert!(takes(yes, &labels), "{yes:?}");
        }
        for no in [
            "app=db",
            "app=",
            "app!=web",
            "app=web,other",
            "app in (db,cache)",
            "app notin (db,web)",
            "!app",
            "other=",
            "a>1",
            "app in web",
            "app=web=db",
            "(",
        ] {
            assert!(!takes(no, &labels), "{no:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_as_it_is() {
        for odd in
            ["a>1", "a=b=c", "a in b", "a in (b", "a on (b,c)", "in (a)", "=b", "!", "a b", "a in (b (c))"]
        {
            assert_eq!(of_labels(odd).collect::<Vec<_>>(), [odd]);
        }
    }

    #[test]
    fn values_of_fields_are_left_as_they_are() {
        let fields = |selector: &str| of_fields(selector).collect::<Vec<_>>();
        assert_eq!(fields(r"a==b,c=d\,e==f,,g!=h,i= j"), ["a=b", r"c=d\,e==f", "g!=h", "i= j"]);
        assert_eq!(fields("a!==b"), ["a!==b"], "not equal to =b");
    }
}
