//! Validating admission policies and their bindings.

mod scope;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::scope::Known;
pub(super) use self::scope::Scope;
use super::at::At;
use super::fill::{default as set, default_text, each, part};
use super::webhook_configuration::rule;
use crate::cel::{self, Kind, Program};
use crate::field_error::FieldError;
use crate::metadata::names;

const MAX_CONDITIONS: usize = 64;
const MAX_ANNOTATIONS: usize = 20;
/// In bytes of the expression.
const MAX_ANNOTATION: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

pub(super) fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(spec) = part(fields, "spec") else { return };
    default_text(spec, "failurePolicy", "Fail");
    if let Some(constraints) = part(spec, "matchConstraints") {
        default_resources(constraints);
    }
}

pub(super) fn default_binding(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(spec) = part(fields, "spec") else { return };
    if let Some(resources) = part(spec, "matchResources") {
        default_resources(resources);
    }
}

fn default_resources(resources: &mut serde_json::Map<String, Value>) {
    default_text(resources, "matchPolicy", "Equivalent");
    set(resources, "namespaceSelector", json!({}));
    set(resources, "objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        each(resources, rules).for_each(|rule| default_text(rule, "scope", "*"));
    }
}

pub(super) fn validate(policy: &At) {
    let spec = policy.field("spec");
    spec.field("failurePolicy").one_of_if_set(&["Fail", "Ignore"]);
    let kind = spec.field("paramKind");
    if kind.exists() {
        param_kind(&kind);
    }
    let constraints = spec.field("matchConstraints");
    if constraints.exists() {
        match_resources(&constraints);
        if constraints.field("resourceRules").is_empty() {
            constraints.field("resourceRules").required("");
        }
    } else {
        constraints.required("");
    }
    let mut scope = Scope::new(kind.exists());
    match_conditions(&spec.field("matchConditions"), &scope);
    if !spec.field("variables").is_empty() {
        scope.variables = Some(BTreeMap::new());
    }
    for variable in spec.field("variables").items() {
        let name = variable.field("name");
        if name.text().trim().is_empty() {
            name.required("name is not specified");
        } else if !is_identifier(name.text()) {
            name.invalid("must be a valid CEL identifier");
        }
        let at = variable.field("expression");
        if at.text().trim().is_empty() {
            at.required("expression is not specified");
        } else {
            let found = expression(&at, &scope, None).map_or(Kind::Dyn, scope::of_variable);
            scope.variables.get_or_insert_default().insert(name.text().to_owned(), found);
        }
    }
    let (validations, annotations) = (spec.field("validations"), spec.field("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        validations.required(detail);
        annotations.required(detail);
    }
    validations.items().for_each(|validation| self::validation(&validation, &scope));
    audit_annotations(policy.field("metadata").field("name").text(), &annotations, &scope);
}

fn audit_annotations(policy: &str, annotations: &At, scope: &Scope) {
    if annotations.len() > MAX_ANNOTATIONS {
        annotations.invalid(format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations"));
    }
    let mut seen = Vec::new();
    for annotation in annotations.items() {
        let key = annotation.field("key");
        if policy.is_empty() {
            key.invalid("requires metadata.name be non-empty");
        } else {
            let full = format!("{policy}/{}", key.text());
            for why in names::label_key(&full) {
                key.invalid_as(full.as_str(), why);
            }
        }
        let at = annotation.field("valueExpression");
        match at.text().trim().len() {
            0 => at.required("valueExpression is not specified"),
            length if length > MAX_ANNOTATION => {
                at.required(format!("must not exceed {MAX_ANNOTATION} bytes in length").as_str());
            }
            _ => drop(expression(&at, scope, Some(&[Kind::String, Kind::Null]))),
        }
        if seen.contains(&key.text()) {
            key.duplicate();
        }
        seen.push(key.text());
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && cel::escape(name).as_deref() == Some(name)
}

fn param_kind(kind: &At) {
    let version = kind.field("apiVersion");
    match version.text().matches('/').count() {
        _ if version.text().is_empty() => version.required(""),
        0 | 1 => {
            let (group, word) = version.text().split_once('/').unwrap_or(("", version.text()));
            if !group.is_empty() {
                let problems = names::dns1123_subdomain(group);
                if !problems.is_empty() {
                    version.invalid_as(group, problems.join(","));
                }
            }
            if word.is_empty() {
                version.invalid("version must be specified");
            } else if let [first, rest @ ..] = names::dns1035_label(word).as_slice() {
                version.invalid_as(word, [std::slice::from_ref(first), rest].concat().join(","));
            }
        }
        _ => version.invalid(format!("unexpected GroupVersion string: {}", version.text())),
    }
    let word = kind.field("kind");
    if word.text().is_empty() {
        return word.required("");
    }
    let problems = names::dns1035_label(&word.text().to_lowercase());
    if !problems.is_empty() {
        word.invalid(format!("may have mixed case, but should otherwise match: {}", problems.join(",")));
    }
}

fn match_resources(resources: &At) {
    resources.field("matchPolicy").one_of_if_set(&["Equivalent", "Exact"]);
    resources.field("namespaceSelector").label_selector();
    resources.field("objectSelector").label_selector();
    for rules in ["resourceRules", "excludeResourceRules"] {
        for named in resources.field(rules).items() {
            for name in named.field("resourceNames").items() {
                for why in names::path_segment(name.text()) {
                    name.invalid(why);
                }
            }
            rule(&named);
        }
    }
}

/// Also those of webhooks.
pub(super) fn match_conditions(conditions: &At, scope: &Scope) {
    if conditions.len() > MAX_CONDITIONS {
        conditions.too_many(MAX_CONDITIONS);
    }
    let mut seen = Vec::new();
    for condition in conditions.items() {
        let at = condition.field("expression");
        if at.text().trim().is_empty() {
            at.required("");
        } else {
            expression(&at, scope, Some(&[Kind::Bool]));
        }
        let name = condition.field("name");
        if name.text().is_empty() {
            name.required("");
            continue;
        }
        for why in names::label_key(name.text()) {
            name.invalid(why);
        }
        if seen.contains(&name.text()) {
            name.duplicate();
        }
        seen.push(name.text());
    }
}

/// The type of an expression. Says what is wrong with it, which includes that it is none of the `wanted` types.
fn expression(at: &At, scope: &Scope, wanted: Option<&[Kind<Known>]>) -> Option<Kind<Known>> {
    let found = Program::compile(at.text())
        .and_then(|program| cel::check(&program, at.text(), &scope.kinds()))
        .map_err(|error| format!("compilation failed: {error}"));
    let found = found.and_then(|kind| match wanted {
        Some([wanted]) if *wanted != kind => Err(format!("must evaluate to {wanted} but got {kind}")),
        Some(several) if !several.contains(&kind) => {
            let words: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(format!("must evaluate to one of [{}] but got {kind}", words.join(" ")))
        }
        _ => Ok(kind),
    });
    found.map_err(|problem| at.errors().push(FieldError::invalid(at.path(), at.text(), problem))).ok()
}

fn validation(validation: &At, scope: &Scope) {
    let at = validation.field("expression");
    if at.text().trim().is_empty() {
        at.required("expression is not specified");
    } else {
        expression(&at, scope, Some(&[Kind::Bool]));
    }
    let made = validation.field("messageExpression");
    if made.exists() && !made.text().is_empty() {
        if made.text().trim().is_empty() {
            made.invalid("must be non-empty if specified");
        } else {
            expression(&made, scope, Some(&[Kind::String]));
        }
    }
    let message = validation.field("message");
    if !message.text().is_empty() && message.text().trim().is_empty() {
        message.invalid("must be non-empty if specified");
    } else if message.text().trim().contains(['\n', '\r']) {
        message.invalid("must not contain line breaks");
    }
    validation.field("reason").one_of_if_set(&REASONS);
}

pub(super) fn validate_binding(binding: &At) {
    let spec = binding.field("spec");
    let name = spec.field("policyName");
    if name.text().is_empty() {
        name.required("");
    } else {
        names::dns1123_subdomain(name.text()).into_iter().for_each(|why| name.invalid(why));
    }
    let params = spec.field("paramRef");
    if params.exists() {
        param_ref(&params);
    }
    let resources = spec.field("matchResources");
    if resources.exists() {
        match_resources(&resources);
    }
    let actions = spec.field("validationActions");
    let mut seen = Vec::new();
    for action in actions.items() {
        action.one_of(&["Audit", "Deny", "Warn"]);
        if seen.contains(&action.text()) {
            action.duplicate();
        }
        seen.push(action.text());
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        actions.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
             and headers serves no purpose)",
        );
    }
    if seen.is_empty() {
        actions.required("");
    }
}

fn param_ref(params: &At) {
    let (name, selector) = (params.field("name"), params.field("selector"));
    let named = !name.text().is_empty();
    let exclusive = "name and selector are mutually exclusive";
    if named {
        names::path_segment(name.text()).into_iter().for_each(|why| name.invalid(why));
        if selector.exists() {
            name.forbidden(exclusive);
        }
    }
    if selector.exists() {
        selector.label_selector();
        if named {
            selector.forbidden(exclusive);
        }
    } else if !named {
        params.required("one of name or selector must be specified");
    }
    let action = params.field("parameterNotFoundAction");
    if action.text().is_empty() {
        action.required("");
    } else {
        action.one_of(&["Deny", "Allow"]);
    }
}
