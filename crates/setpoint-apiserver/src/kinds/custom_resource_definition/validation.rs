//! What is wrong with a definition, in kube-apiserver's words and order.

use serde_json::Value;

use super::super::at::{At, items};
use super::super::webhook_configuration;
use super::version::{self, Shared};
use crate::definitions::{self, Approval};
use crate::metadata::names;
use crate::schema::check_definition;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Everything but the metadata.
pub(in super::super) fn validate(definition: &At, old: Option<&Value>) {
    if old.is_none() {
        name(definition);
    }
    spec(definition, old);
    accepted_names(&definition.field("status").field("acceptedNames"));
    stored_versions(definition);
    approval(definition, old);
    if definition.field("spec").field("preserveUnknownFields").is_true() {
        definition.field("spec").field("preserveUnknownFields").invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

/// The same for a write of the status.
pub(in super::super) fn validate_status(definition: &At) {
    accepted_names(&definition.field("status").field("acceptedNames"));
}

fn name(definition: &At) {
    let spec = definition.field("spec");
    let required = format!("{}.{}", spec.field("names").field("plural").text(), spec.field("group").text());
    let metadata = definition.field("metadata");
    let name = metadata.field("name");
    if !name.text().is_empty() && name.text() != required {
        name.invalid_text(r#"must be spec.names.plural+"."+spec.group"#);
    }
}

fn spec(definition: &At, old: Option<&Value>) {
    let spec = definition.field("spec");
    let group = spec.field("group");
    if group.text().is_empty() {
        group.required("");
    } else if let problems @ [_, ..] = names::dns1123_subdomain(group.text()).as_slice() {
        group.invalid_text(problems.join(","));
    } else if !group.text().contains('.') {
        group.invalid_text("should be a domain with at least one dot");
    }
    let scope = spec.field("scope");
    match scope.text() {
        "" => scope.required(""),
        _ => scope.one_of_if_set(&["Cluster", "Namespaced"]),
    }
    let versions = spec.field("versions");
    for version in versions.items() {
        if !version.field("schema").field("openAPIV3Schema").exists() {
            version.field("schema").field("openAPIV3Schema").required("");
        }
    }
    let shared = Shared::of(items(versions.value()));
    for version in versions.items() {
        let name = version.field("name");
        if let problems @ [_, ..] = names::dns1035_label(name.text()).as_slice() {
            name.invalid_text(problems.join(","));
        }
        version::validate(&version, &shared);
    }
    version_list(&versions);
    if let Some(first) = items(versions.value()).first() {
        // kube-apiserver has it a second time in its internal form, and checks both.
        let name = spec.alias_of("version", &first["name"]);
        let problems = names::dns1035_label(name.text());
        if !name.text().is_empty() && !problems.is_empty() {
            name.invalid_text(problems.join(","));
        }
    }
    spec_names(&spec.field("names"));
    spec.errors().extend(check_definition(definition.value(), old));
    if let Some(first) = items(versions.value()).first() {
        version::validate_shared(&spec, first, &shared);
    }
    conversion(&spec.field("conversion"));
    if let Some(old) = old {
        immutable(&spec, old);
    }
}

fn version_list(versions: &At) {
    let names: Vec<&str> = items(versions.value()).iter().filter_map(|v| v["name"].as_str()).collect();
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != names.len() {
        versions.invalid("must contain unique version names");
    }
    if items(versions.value()).iter().filter(|version| version["storage"] == true).count() != 1 {
        versions.invalid("must have exactly one version marked as storage version");
    }
}

fn spec_names(names: &At) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if names.field(field).text().is_empty() {
            names.field(field).required("");
        }
    }
    accepted_names(names);
}

fn accepted_names(names: &At) {
    let label = |at: &At| {
        if let problems @ [_, ..] = names::dns1035_label(at.text()).as_slice() {
            at.invalid_text(problems.join(","));
        }
    };
    for field in ["plural", "singular"] {
        if !names.field(field).text().is_empty() {
            label(&names.field(field));
        }
    }
    for field in ["kind", "listKind"] {
        let at = names.field(field);
        let problems = names::dns1035_label(&at.text().to_lowercase());
        if !at.text().is_empty() && !problems.is_empty() {
            at.invalid_text(format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            ));
        }
    }
    names.field("shortNames").items().for_each(|name| label(&name));
    let list_kind = names.field("listKind");
    if !list_kind.text().is_empty() && list_kind.text() == names.field("kind").text() {
        list_kind.invalid_text("kind and listKind may not be the same");
    }
    names.field("categories").items().for_each(|name| label(&name));
}

fn conversion(conversion: &At) {
    if !conversion.exists() {
        return;
    }
    let strategy = conversion.field("strategy");
    match strategy.text() {
        "" => strategy.required(""),
        _ => strategy.one_of_if_set(&["None", "Webhook"]),
    }
    let webhook = conversion.field("webhook");
    // kube-apiserver checks its internal form, where these two have other names and places.
    let config = conversion.alias_of("webhookClientConfig", &webhook.value()["clientConfig"]);
    let versions =
        conversion.alias_of("conversionReviewVersions", &webhook.value()["conversionReviewVersions"]);
    if strategy.text() != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if config.exists() {
            config.forbidden(why);
        }
        if !versions.is_empty() {
            versions.forbidden(why);
        }
        return;
    }
    if !config.exists() {
        config.required("required when strategy is set to Webhook");
    } else {
        webhook_configuration::client_config(&config);
    }
    review_versions(&versions);
}

fn review_versions(versions: &At) {
    if versions.is_empty() {
        versions.required("");
        return;
    }
    let mut seen = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.text()) {
            version.invalid_text("duplicate version");
            continue;
        }
        seen.push(version.text());
        names::dns1035_label(version.text()).into_iter().for_each(|problem| version.invalid_text(problem));
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        versions.invalid(format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")));
    }
}

fn immutable(spec: &At, old: &Value) {
    let old_spec = &old["spec"];
    let conditions = items(&old["status"]["conditions"]).iter();
    if conditions.clone().any(|found| found["type"] == "Established" && found["status"] == "True") {
        spec.field("scope").immutable(&old_spec["scope"]);
        spec.field("names").field("kind").immutable(&old_spec["names"]["kind"]);
    }
    spec.field("group").immutable(&old_spec["group"]);
    spec.field("names").field("plural").immutable(&old_spec["names"]["plural"]);
}

fn stored_versions(definition: &At) {
    let status = definition.field("status");
    let stored = status.field("storedVersions");
    if stored.is_empty() {
        stored.invalid("must have at least one stored version");
        return;
    }
    let spec = definition.field("spec");
    let versions = items(spec.field("versions").value());
    let has = |name: &str| items(stored.value()).iter().any(|found| found == name);
    for version in versions {
        let name = version["name"].as_str().unwrap_or_default();
        if version["storage"] == true && !has(name) {
            stored.invalid(format!("must have the storage version {name}"));
        }
    }
    for name in stored.items() {
        if !versions.iter().any(|version| version["name"] == *name.value()) {
            let text = name.text();
            name.invalid_text(format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {text} and removes \
                 {text} from status.storedVersions"
            ));
        }
    }
}

fn approval(definition: &At, old: Option<&Value>) {
    if !definitions::is_protected(definition.field("spec").field("group").text()) {
        return;
    }
    let (state, reason) = definitions::approval(definition.value());
    if old.is_some_and(|old| definitions::approval(old).0 == state) {
        return;
    }
    let metadata = definition.field("metadata");
    let annotations = metadata.field("annotations");
    let at = annotations.key("api-approved.kubernetes.io");
    match state {
        Approval::Missing => at.required(reason),
        Approval::Invalid => at.invalid_text(reason),
        Approval::Approved | Approval::Bypassed => {}
    }
}
