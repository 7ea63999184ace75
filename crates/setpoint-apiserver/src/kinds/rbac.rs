//! Roles, cluster roles and their bindings.

use serde_json::Value;

use super::at::{At, same};
use super::fill::{default_text, each, null_if_empty, part_or_new, text};
use crate::metadata::names;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn default_role(role: &mut Value) {
    if let Some(fields) = role.as_object_mut() {
        null_if_empty(fields, "rules");
    }
}

pub(super) fn default_binding(binding: &mut Value) {
    let Some(fields) = binding.as_object_mut() else { return };
    default_text(part_or_new(fields, "roleRef"), "apiGroup", GROUP);
    for subject in each(fields, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_text(subject, "apiGroup", GROUP);
        }
    }
}

pub(super) fn validate_role(role: &At, namespaced: bool) {
    for rule in role.field("rules").items() {
        self::rule(&rule, namespaced);
    }
    aggregation(role);
    // This rule is younger than the others, and comes last.
    for rule in role.field("rules").items().filter(|rule| rule.field("verbs").is_empty()) {
        rule.field("verbs").required("");
    }
}

fn aggregation(role: &At) {
    let aggregation = role.field("aggregationRule");
    if aggregation.exists() {
        let selectors = aggregation.field("clusterRoleSelectors");
        if selectors.is_empty() {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for selector in selectors.items() {
            selector.label_selector();
            if selector.selects(&Value::Null).is_none() {
                selector.invalid_as(Value::Null, "invalid label selector.");
            }
        }
    }
}

fn rule(rule: &At, namespaced: bool) {
    let urls = rule.field("nonResourceURLs");
    if !urls.is_empty() {
        if namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        let resources = ["apiGroups", "resources", "resourceNames"];
        if resources.iter().any(|field| !rule.field(field).is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.field("apiGroups").is_empty() {
        rule.field("apiGroups").required("resource rules must supply at least one api group");
    }
    if rule.field("resources").is_empty() {
        rule.field("resources").required("resource rules must supply at least one resource");
    }
}

pub(super) fn validate_binding(binding: &At, old: Option<&Value>, namespaced: bool) {
    let role = binding.field("roleRef");
    if role.field("apiGroup").text() != GROUP {
        role.field("apiGroup").not_supported(&[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.field("kind").text()) {
        role.field("kind").not_supported(kinds);
    }
    role.field("name").has_form_if_set(names::path_segment);
    binding.field("subjects").items().for_each(|subject| self::subject(&subject, namespaced));
    if old.is_some_and(|old| !same(role.value(), &old["roleRef"])) {
        let fields = [("APIGroup", "apiGroup", "\"\""), ("Kind", "kind", "\"\""), ("Name", "name", "\"\"")];
        role.invalid_as(role.in_go(&fields), "field is immutable");
    }
    // These rules are younger than the others, and come last.
    for subject in binding.field("subjects").items() {
        subject.field("name").has_text();
    }
    role.field("name").has_text();
}

fn subject(subject: &At, namespaced: bool) {
    let (name, group) = (subject.field("name"), subject.field("apiGroup"));
    match subject.field("kind").text() {
        "ServiceAccount" => {
            name.has_form_if_set(names::dns1123_subdomain);
            if !group.is_empty() {
                group.not_supported(&[""]);
            }
            if !namespaced && subject.field("namespace").is_empty() {
                subject.field("namespace").required("");
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                group.not_supported(&[GROUP]);
            }
        }
        _ => subject.field("kind").not_supported(&["ServiceAccount", "User", "Group"]),
    }
}
