//! What a project and its kind may be called.

use crate::error::Error;
use crate::types::names::{is_keyword, is_taken_type, pascal, snake};

/// Packages that a project depends on, or that cargo and rustc keep for themselves.
const TAKEN_PACKAGES: [&str; 26] = [
    "alloc",
    "anyhow",
    "build",
    "clap",
    "core",
    "deps",
    "examples",
    "incremental",
    "k8s-openapi",
    "kube",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "serde-saphyr",
    "setpoint",
    "setpoint-apiserver",
    "setpoint-codegen",
    "setpoint-sim",
    "std",
    "test",
    "tokio",
    "tokio-util",
    "tracing",
    "tracing-subscriber",
    "manifests",
];
/// With `-leader-election` behind it, a name is still a label.
const LONGEST: usize = 46;

pub(super) fn check_project(name: &str) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::new("NAME", format!("{name:?} {problem}")));
    if name.is_empty() {
        return wrong("is not a valid name".to_owned());
    }
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = name.chars().all(is_inside) && name.ends_with(is_end);
    if !is_label || !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.contains("--") {
        let better = snake(name).trim_matches('_').replace('_', "-");
        let is_better = better.starts_with(|c: char| c.is_ascii_lowercase()) && better != "field";
        let hint = if is_better { format!(", such as {better}") } else { String::new() };
        return wrong(format!(
            "is also a namespace and a service account: use small letters, digits and single hyphens, beginning \
             with a letter{hint}"
        ));
    }
    if name.len() > LONGEST {
        return wrong(format!("has {} characters; {LONGEST} are possible", name.len()));
    }
    if is_keyword(&name.replace('-', "_")) {
        return wrong(format!("is a keyword of Rust; call it {name}-operator"));
    }
    if TAKEN_PACKAGES.contains(&name) {
        return wrong(format!("is the name of another package; call it {name}-operator"));
    }
    Ok(())
}

pub(super) fn check_group(group: &str) -> Result<(), Error> {
    let wrong = |problem: &str| Err(Error::new("--group", format!("{group:?} {problem}")));
    if group.len() > 253 || !group.split('.').all(is_label) || !group.contains('.') {
        return wrong("is no API group: use a domain of yours, such as apps.example.com");
    }
    if ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}"))) {
        return wrong("belongs to Kubernetes, and needs its approval: use a domain of yours");
    }
    Ok(())
}

pub(super) fn check_version(version: &str) -> Result<(), Error> {
    if is_label(version) && version.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(Error::new("--version", format!("{version:?} is no version; v1, v1beta1 or v1alpha1 are")))
}

fn is_label(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(is_inside)
        && text.starts_with(is_end)
        && text.ends_with(is_end)
}

pub(super) fn check_kind(kind: &str) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::new("--kind", format!("{kind:?} {problem}")));
    let is_type =
        kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_type {
        let better = pascal(kind);
        let is_better = better.starts_with(|c: char| c.is_ascii_uppercase()) && better != "Empty";
        let hint = if is_better { format!(", such as {better}") } else { String::new() };
        return wrong(format!("is no kind: use letters and digits, beginning with a capital letter{hint}"));
    }
    if kind.len() > 50 {
        return wrong(format!("has {} characters; 50 are possible", kind.len()));
    }
    if is_taken_type(kind) || kind == "Condition" {
        return wrong("is a type that the code of every kind uses: choose another".to_owned());
    }
    Ok(())
}

/// The kind of a project that does not say which: `foo-operator` → `Foo`.
pub fn default_kind(name: &str) -> String {
    let short = ["-operator", "-controller"].iter().find_map(|end| name.strip_suffix(end));
    pascal(short.filter(|short| !short.is_empty()).unwrap_or(name))
}

/// The resource of a kind: `Policy` → `policies`.
pub fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let after_vowel = |stem: &str| stem.ends_with(['a', 'e', 'i', 'o', 'u']);
    match kind.strip_suffix('y') {
        Some(stem) if !stem.is_empty() && !after_vowel(stem) => format!("{stem}ies"),
        _ if ["s", "x", "z", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_is_refused_with_one_that_can() {
        let refused = |name: &str| check_project(name).map_err(|error| error.to_string()).err();
        for good in ["my-app", "a", "x2", "widget-operator"] {
            assert_eq!(refused(good), None);
        }
        for (bad, hint) in [
            ("MyApp", "such as my-app"),
            ("my_app", "such as my-app"),
            ("my--app", "such as my-app"),
            ("-x", "such as x"),
            ("x-", "such as x"),
            ("9lives", "beginning with a letter"),
            ("", "is not a valid name"),
            ("äh", "small letters"),
            ("type", "is a keyword of Rust; call it type-operator"),
            ("self", "is a keyword of Rust"),
            ("test", "is the name of another package; call it test-operator"),
            ("setpoint", "is the name of another package"),
            (&"x".repeat(47), "has 47 characters; 46 are possible"),
        ] {
            let error = refused(bad).unwrap_or_default();
            assert!(error.contains(hint), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_kind_is_a_type_with_a_name_of_its_own() {
        let refused = |kind: &str| check_kind(kind).map_err(|error| error.to_string()).err();
        for good in ["Foo", "FOO", "Foo2", "HTTPRoute", "Context", "Deployment"] {
            assert_eq!(refused(good), None);
        }
        for (bad, hint) in [
            ("foo", "such as Foo"),
            ("fooBar", "such as FooBar"),
            ("my-app", "such as MyApp"),
            ("2Foo", "beginning with a capital letter"),
            ("", "is no kind"),
            ("Self", "choose another"),
            ("Option", "choose another"),
            ("Condition", "choose another"),
        ] {
            let error = refused(bad).unwrap_or_default();
            assert!(error.contains(hint), "{bad:?}: {error}");
        }
    }

    #[test]
    fn groups_and_versions_are_those_of_a_crd() {
        let group = |group: &str| check_group(group).map_err(|error| error.to_string()).err();
        assert_eq!(group("apps.example.com"), None);
        for bad in ["", "com", "Example.com", "a..b", "example.com/v1", "-.com"] {
            assert!(group(bad).is_some_and(|error| error.contains("use a domain of yours")), "{bad:?}");
        }
        assert!(group("x.k8s.io").is_some_and(|error| error.contains("belongs to Kubernetes")));
        assert!(check_version("v1").is_ok() && check_version("v2beta3").is_ok());
        for bad in ["", "1", "V1", "v1.2", "v1_1"] {
            assert!(check_version(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_kind_is_made_of_the_name_and_a_plural_of_the_kind() {
        for (name, kind) in [
            ("my-app", "MyApp"),
            ("foo-operator", "Foo"),
            ("foo-controller", "Foo"),
            ("operator", "Operator"),
        ] {
            assert_eq!(default_kind(name), kind);
        }
        for (kind, several) in [
            ("Foo", "foos"),
            ("Policy", "policies"),
            ("Gateway", "gateways"),
            ("Class", "classes"),
            ("Box", "boxes"),
            ("Batch", "batches"),
            ("HTTPRoute", "httproutes"),
        ] {
            assert_eq!(plural(kind), several);
        }
    }
}
