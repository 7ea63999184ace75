//! What names, label keys and label values may look like. Every check returns the problems in kube-apiserver's
//! words; none means that the value is fine.

use crate::kinds::formats::canonical_ip;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_1123: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;
/// Kubernetes sets no limit to names that are path segments. The keys of a store have one, and so do URLs.
const MAX_PATH_SEGMENT: usize = 1024;

/// What an object's name must look like. Most kinds take a subdomain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// `my-app.v2`
    Subdomain,
    /// `my-app`
    Label,
    /// Whatever fits between two slashes: RBAC roles, `system:node`.
    PathSegment,
    /// An IP address, in canonical form.
    IpAddress,
}

impl NameRule {
    /// The problems of a name.
    pub(crate) fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => dns1123_subdomain(name),
            NameRule::Label => dns1123_label(name),
            NameRule::PathSegment => path_segment(name),
            NameRule::IpAddress => canonical_ip(name),
        }
    }

    /// The problems of a `generateName`, to which something will be appended: it may end with a dash.
    pub(crate) fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            NameRule::PathSegment => return path_segment_prefix(prefix),
            // Such names are not generated.
            NameRule::IpAddress => return canonical_ip(prefix),
            NameRule::Subdomain | NameRule::Label => {}
        }
        // kube-apiserver masks a trailing dash by replacing the last two bytes with one letter.
        match prefix.strip_suffix('-').and_then(|head| prefix.get(..head.len().checked_sub(1)?)) {
            Some(head) => self.check(&format!("{head}a")),
            None => self.check(prefix),
        }
    }
}

/// A DNS label as of RFC 1123: namespaces.
pub(crate) fn dns1123_label(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LABEL {
        problems.push(too_long(MAX_LABEL, "characters"));
    }
    if !is_dns1123_label(value) {
        problems.push(if is_dns1123_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            does_not_match(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL_1123,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

/// A DNS label as of RFC 1035: names of services, of the kinds and resources of custom resources.
pub(crate) fn dns1035_label(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LABEL {
        problems.push(too_long(MAX_LABEL, "characters"));
    }
    if !is_dns1123_label(value) || value.starts_with(|first: char| first.is_ascii_digit()) {
        problems.push(does_not_match(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// A DNS subdomain as of RFC 1123: most objects' names.
pub(crate) fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain(value, "characters")
}

/// The same for a name that may go on after it.
pub(crate) fn dns1123_subdomain_prefix(value: &str) -> Vec<String> {
    NameRule::Subdomain.check_prefix(value)
}

fn subdomain(value: &str, unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_SUBDOMAIN {
        problems.push(too_long(MAX_SUBDOMAIN, unit));
    }
    if !is_dns1123_subdomain(value) {
        problems.push(does_not_match(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN_1123,
            &["example.com"],
        ));
    }
    problems
}

/// A name that can stand between two slashes of a path.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

/// Whether a new name, or the beginning of one, is longer than any name may be. Names that were stored are not asked.
pub(crate) fn over_long(name: &str) -> Option<String> {
    (name.len() > MAX_PATH_SEGMENT).then(|| too_long(MAX_PATH_SEGMENT, "bytes"))
}

fn path_segment_prefix(name: &str) -> Vec<String> {
    let bad = ["/", "%"].into_iter().filter(|part| name.contains(part));
    bad.map(|part| format!("may not contain '{part}'")).collect()
}

/// `name` or `example.com/name`: keys of labels and annotations, finalizers.
pub(crate) fn label_key(key: &str) -> Vec<String> {
    let text = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character";
    let pattern = || does_not_match(text, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern()
            )];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            problems.extend(
                subdomain(prefix, "bytes").into_iter().map(|problem| format!("prefix part {problem}")),
            );
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        problems.push(format!("name part {}", too_long(MAX_LABEL, "bytes")));
    }
    if !is_qualified(name) {
        problems.push(format!("name part {}", pattern()));
    }
    problems
}

/// The value of a label; it may be empty.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LABEL {
        problems.push(too_long(MAX_LABEL, "bytes"));
    }
    if !value.is_empty() && !is_qualified(value) {
        problems.push(does_not_match(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

pub(crate) fn is_dns1123_label(value: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = value.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

pub(crate) fn is_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns1123_label)
}

fn is_qualified(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// kube-apiserver counts bytes everywhere, but says so in some messages only.
fn too_long(most: usize, unit: &str) -> String {
    format!("must be no more than {most} {unit}")
}

fn does_not_match(text: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                             '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
                             used for validation is \
                             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                         start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[track_caller]
    fn check(problems: Vec<String>, expect: &[&str]) {
        assert_eq!(problems, expect);
    }

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        check(NameRule::Subdomain.check("a.b-c.1"), &[]);
        check(NameRule::Subdomain.check("A"), &[SUBDOMAIN]);
        check(NameRule::Subdomain.check("a..b"), &[SUBDOMAIN]);
        check(NameRule::Subdomain.check(&"a".repeat(254)), &["must be no more than 253 characters"]);
        check(NameRule::Label.check("a-1"), &[]);
        check(NameRule::Label.check("a.b"), &["must not contain dots"]);
        check(NameRule::Label.check("-a"), &[LABEL]);
        check(NameRule::Label.check(&"a".repeat(64)), &["must be no more than 63 characters"]);
        check(NameRule::PathSegment.check("system:node é"), &[]);
        check(NameRule::PathSegment.check(".."), &["may not be '..'"]);
        check(NameRule::PathSegment.check("a/%"), &["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        check(NameRule::Subdomain.check_prefix("web-"), &[]);
        check(NameRule::Subdomain.check_prefix("web.-"), &[]);
        check(NameRule::Subdomain.check_prefix("-"), &[SUBDOMAIN]);
        check(NameRule::Subdomain.check_prefix("we b-"), &[SUBDOMAIN]);
        check(NameRule::Subdomain.check_prefix("wé-"), &[SUBDOMAIN]);
        check(NameRule::PathSegment.check_prefix("."), &[]);
    }

    #[test]
    fn label_keys_and_values() {
        check(label_key("app"), &[]);
        check(label_key("app.kubernetes.io/name"), &[]);
        check(label_key(""), &["name part must be non-empty", &format!("name part {NAME_PART}")]);
        check(label_key("/a"), &["prefix part must be non-empty"]);
        check(label_key("A/a"), &[&format!("prefix part {SUBDOMAIN}")]);
        check(
            label_key("a/b/c"),
            &[&format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )],
        );
        check(label_key(&"k".repeat(64)), &["name part must be no more than 63 bytes"]);
        check(label_key(&format!("{}/k", "p".repeat(254))), &["prefix part must be no more than 253 bytes"]);
        check(label_value(""), &[]);
        check(label_value("a_b.C-1"), &[]);
        check(label_value(&"v".repeat(64)), &["must be no more than 63 bytes"]);
        assert!(label_value("a b")[0].starts_with("a valid label must be an empty string or consist of"));
    }
}
