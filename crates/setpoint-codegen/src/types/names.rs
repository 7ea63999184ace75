//! Names in JSON → names in Rust.

use std::collections::BTreeSet;

/// Words that cannot name a field as they are. The last four cannot be raw identifiers either.
const KEYWORDS: [&str; 54] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    "union", "raw", "self", "Self", "super", "crate",
];
const NEVER_RAW: [&str; 4] = ["self", "Self", "super", "crate"];

/// Types that generated code, and what the derives expand to, refer to by these names.
const TAKEN_TYPES: [&str; 34] = [
    "BTreeMap",
    "Box",
    "Clone",
    "Copy",
    "CustomResource",
    "Debug",
    "Default",
    "Deserialize",
    "Drop",
    "Eq",
    "Err",
    "Fn",
    "From",
    "Hash",
    "IntOrString",
    "Into",
    "Iterator",
    "JsonSchema",
    "KubeSchema",
    "Map",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Rule",
    "Self",
    "Serialize",
    "Some",
    "String",
    "Value",
    "Vec",
];

/// The words of a name: `podCIDRs` → pod, cidrs; `x-y` → x, y; `HTTPRoute` → http, route.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let chars: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (i, &c) in chars.iter().enumerate() {
            if !word.is_empty() && c.is_ascii_uppercase() && begins_word(&chars, i) {
                words.push(std::mem::take(&mut word));
            }
            word.push(c.to_ascii_lowercase());
        }
        words.extend((!word.is_empty()).then_some(word));
    }
    words
}

/// Whether the upper-case letter at `i` begins a word: after a small one, or as the last of a run of large ones
/// that a word follows. The `s` of a plural (`URLs`) belongs to the run.
fn begins_word(chars: &[char], i: usize) -> bool {
    if !chars[i - 1].is_ascii_uppercase() {
        return true;
    }
    let is_small = |j: usize| chars.get(j).is_some_and(char::is_ascii_lowercase);
    let is_plural = chars.get(i + 1) == Some(&'s') && !is_small(i + 2);
    is_small(i + 1) && !is_plural
}

/// `podCIDRs` → `pod_cidrs`.
pub(crate) fn snake(name: &str) -> String {
    let name = words(name).join("_");
    match name.chars().next() {
        None => "field".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name,
    }
}

/// `x-y` → `XY`.
pub(crate) fn pascal(name: &str) -> String {
    let capital = |word: String| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => word,
    };
    let name: String = words(name).into_iter().map(capital).collect();
    match name.chars().next() {
        None => "Empty".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name,
    }
}

/// A variant for a value of an enum.
pub(crate) fn variant(value: &str) -> String {
    let is_only_symbols = !value.is_empty() && words(value).is_empty();
    if is_only_symbols { "Symbol".to_owned() } else { pascal(value) }
}

/// `FOO` stays, where `pascal` would make `Foo`: kinds are written as they are.
pub(crate) fn type_name(kind: &str) -> String {
    kind.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The name of the type of a kind, as a module of its own has it.
pub(crate) fn root_name(kind: &str) -> String {
    Taken::types().take(&type_name(kind))
}

/// An identifier that can stand in code: a keyword becomes raw, or gets an underscore.
pub(crate) fn escape(ident: &str) -> String {
    match ident {
        ident if NEVER_RAW.contains(&ident) => format!("{ident}_"),
        ident if KEYWORDS.contains(&ident) => format!("r#{ident}"),
        ident => ident.to_owned(),
    }
}

/// Whether it cannot be a name in code.
pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// Whether generated code means another type by this name.
pub(crate) fn is_taken_type(name: &str) -> bool {
    TAKEN_TYPES.contains(&name)
}

/// What serde's `rename_all = "camelCase"` makes of a field.
pub(crate) fn camel(ident: &str) -> String {
    let mut camel = String::new();
    let mut is_start = true;
    for c in ident.chars() {
        match c {
            '_' => is_start = true,
            c if is_start => {
                camel.push(c.to_ascii_uppercase());
                is_start = false;
            }
            c => camel.push(c),
        }
    }
    camel.get(..1).map(str::to_ascii_lowercase).unwrap_or_default() + camel.get(1..).unwrap_or_default()
}

/// Names of which each is given once.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeSet<String>);

impl Taken {
    /// For the types of a module.
    pub(crate) fn types() -> Taken {
        Taken(TAKEN_TYPES.iter().map(|&name| name.to_owned()).collect())
    }

    pub(crate) fn with(names: &[&str]) -> Taken {
        Taken(names.iter().map(|&name| name.to_owned()).collect())
    }

    /// This name, or the first of `name2`, `name3`, … that is free.
    pub(crate) fn take(&mut self, name: &str) -> String {
        let separator = if name.starts_with(|c: char| c.is_ascii_uppercase()) { "" } else { "_" };
        let candidates = (2..).map(|n| format!("{name}{separator}{n}"));
        let free = std::iter::once(name.to_owned()).chain(candidates).find(|name| !self.0.contains(name));
        let free = free.unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_where_a_reader_would() {
        let cases = [
            ("podCIDRs", "pod_cidrs", "PodCidrs"),
            ("externalIPs", "external_ips", "ExternalIps"),
            ("HTTPRoute", "http_route", "HttpRoute"),
            ("x-y", "x_y", "XY"),
            ("$ref", "ref", "Ref"),
            ("type", "type", "Type"),
            ("1password", "_1password", "_1password"),
            ("", "field", "Empty"),
            ("ÄÖ", "field", "Empty"),
            ("URLsOfX", "urls_of_x", "UrlsOfX"),
            ("caBundle", "ca_bundle", "CaBundle"),
            ("ipv4_address", "ipv4_address", "Ipv4Address"),
        ];
        for (name, as_snake, as_pascal) in cases {
            assert_eq!((snake(name).as_str(), pascal(name).as_str()), (as_snake, as_pascal), "{name}");
        }
    }

    #[test]
    fn keywords_are_escaped() {
        assert_eq!(escape("type"), "r#type");
        assert_eq!(escape("self"), "self_");
        assert_eq!(escape("types"), "types");
    }

    #[test]
    fn camel_is_what_serde_makes_of_a_field() {
        assert_eq!(camel("pod_cidrs"), "podCidrs");
        assert_eq!(camel("_1password"), "1password");
        assert_eq!(camel("x"), "x");
    }

    #[test]
    fn a_name_is_given_once() {
        let mut taken = Taken::types();
        assert_eq!(taken.take("Option"), "Option2");
        assert_eq!(taken.take("Foo"), "Foo");
        assert_eq!(taken.take("Foo"), "Foo2");
        assert_eq!(taken.take("x"), "x");
        assert_eq!(taken.take("x"), "x_2");
    }
}
