//! ObjectMeta: what every object's metadata must obey, in kube-apiserver's words.

pub(crate) mod names;

use serde_json::Value;

use crate::field_error::{FieldError, Problem};
use names::NameRule;

const MAX_ANNOTATIONS: usize = 256 * 1024;
pub(crate) const MAX_FIELD_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;
/// How many controllers too many are told: each error quotes all owners.
const MOST_CONTROLLERS: usize = 10;

/// The rules that hold at all times. On an update, [`validate_update`] adds those about what may change.
pub(crate) fn validate_create(metadata: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = validate_name(metadata, rule);
    errors.extend(validate_namespace(metadata, namespaced));
    if let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("metadata.generation", generation, detail));
    }
    errors.extend(validate_labels(&metadata["labels"], "metadata.labels"));
    errors.extend(validate_annotations(&metadata["annotations"], "metadata.annotations"));
    errors.extend(validate_owners(&metadata["ownerReferences"], "metadata.ownerReferences"));
    errors.extend(validate_finalizers(&metadata["finalizers"], "metadata.finalizers"));
    errors.extend(validate_managed_fields(&metadata["managedFields"], "metadata.managedFields"));
    errors
}

/// The length of a new object's name, where the rule of its kind sets no limit.
pub(crate) fn validate_name_length(metadata: &Value) -> Vec<FieldError> {
    let check = |field: &'static str| {
        let name = text(metadata, field);
        // The whole name would be the longest part of the answer.
        let shown = || format!("{}...", name.chars().take(64).collect::<String>());
        names::over_long(name)
            .map(|problem| FieldError::invalid(format!("metadata.{field}"), shown(), problem))
    };
    ["generateName", "name"].into_iter().filter_map(check).collect()
}

/// What an update must not change.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        errors.extend(no_new_finalizers(&new["finalizers"], &old["finalizers"], "metadata.finalizers"));
    }
    let generation = |metadata: &Value| metadata["generation"].as_i64().unwrap_or(0);
    if generation(new) < generation(old) {
        let detail = "must not be decremented";
        errors.push(FieldError::invalid("metadata.generation", generation(new), detail));
    }
    for name in ["name", "namespace", "uid"] {
        if text(new, name) != text(old, name) {
            errors.push(immutable(name, text(new, name).into()));
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new[name] != old[name] {
            errors.push(immutable(name, new[name].clone()));
        }
    }
    errors
}

fn immutable(name: &str, value: Value) -> FieldError {
    FieldError::invalid(format!("metadata.{name}"), value, "field is immutable")
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn invalid(field: &str, value: &str, problems: Vec<String>) -> impl Iterator<Item = FieldError> {
    problems.into_iter().map(move |problem| FieldError::invalid(field, value, problem))
}

fn validate_name(metadata: &Value, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, prefix) = (text(metadata, "name"), text(metadata, "generateName"));
    if !prefix.is_empty() {
        errors.extend(invalid("metadata.generateName", prefix, rule.check_prefix(prefix)));
    }
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        errors.extend(invalid("metadata.name", name, rule.check(name)));
    }
    errors
}

fn validate_namespace(metadata: &Value, namespaced: bool) -> Vec<FieldError> {
    let field = "metadata.namespace";
    match (namespaced, text(metadata, "namespace")) {
        (true, "") => vec![FieldError::required(field, "")],
        (true, namespace) => invalid(field, namespace, names::dns1123_label(namespace)).collect(),
        (false, "") => vec![],
        (false, _) => vec![FieldError::forbidden(field, "not allowed on this type")],
    }
}

/// The keys and values of a set of labels.
pub(crate) fn validate_labels(labels: &Value, field: &str) -> Vec<FieldError> {
    let check = |(key, value)| {
        invalid(field, key, names::label_key(key)).chain(invalid(field, value, names::label_value(value)))
    };
    entries(labels).flat_map(check).collect()
}

/// The keys of annotations, and how much they take together.
pub(crate) fn validate_annotations(annotations: &Value, field: &str) -> Vec<FieldError> {
    // Case does not matter in their keys, so a prefix may have capitals.
    let check = |(key, _): (&str, _)| {
        let problems = names::label_key(&key.to_lowercase());
        invalid(field, key, problems).collect::<Vec<_>>()
    };
    let mut errors: Vec<FieldError> = entries(annotations).flat_map(check).collect();
    if !validate_annotations_size(annotations) {
        errors.push(FieldError::new(field, Problem::TooLong(MAX_ANNOTATIONS)));
    }
    errors
}

/// Whether annotations take no more than they may.
pub(crate) fn validate_annotations_size(annotations: &Value) -> bool {
    let size: usize = entries(annotations).map(|(key, value)| key.len() + value.len()).sum();
    size <= MAX_ANNOTATIONS
}

fn validate_owners(owners: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let mut told = 0;
    for (i, owner) in items(owners).iter().enumerate() {
        errors.extend(validate_owner(owner, &format!("{field}[{i}]")));
        if owner["controller"] != true {
            continue;
        }
        let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
        match &controller {
            None => controller = Some(this),
            Some(_) if told == MOST_CONTROLLERS => {}
            Some(first) => {
                told += 1;
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {this}"
                );
                errors.push(FieldError::invalid(field, owners.clone(), detail));
            }
        }
    }
    errors
}

fn validate_owner(owner: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let version = text(owner, "apiVersion");
    if version.is_empty() {
        errors.push(FieldError::required(format!("{field}.apiVersion"), "must not be empty"));
    } else if version.ends_with('/') || version.matches('/').count() > 1 {
        let detail = "must be <group>/<version> or <version>";
        errors.push(FieldError::invalid(format!("{field}.apiVersion"), version, detail));
    }
    for name in ["kind", "name", "uid"] {
        if text(owner, name).is_empty() {
            errors.push(FieldError::required(format!("{field}.{name}"), "must not be empty"));
        }
    }
    // Events come and go by themselves, so nothing may depend on one.
    if version == "v1" && text(owner, "kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid(field, owner.clone(), detail));
    }
    errors
}

fn validate_finalizers(finalizers: &Value, field: &str) -> Vec<FieldError> {
    let names = || items(finalizers).iter().filter_map(Value::as_str);
    let mut errors: Vec<FieldError> =
        names().flat_map(|name| invalid(field, name, names::label_key(name))).collect();
    if names().any(|name| name == "orphan") && names().any(|name| name == "foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(field, finalizers.clone(), detail));
    }
    errors
}

/// What the kinds of Kubernetes itself ask of finalizers on top: a name of their own domain, or a well-known one.
pub(crate) fn validate_kube_finalizers(metadata: &Value) -> Vec<FieldError> {
    let names = items(&metadata["finalizers"]).iter().enumerate();
    let check = |(index, name): (usize, &Value)| {
        let name = name.as_str().unwrap_or_default();
        let problem = unqualified_finalizer(name)?;
        Some(FieldError::invalid(format!("metadata.finalizers[{index}]"), name, problem))
    };
    names.filter_map(check).collect()
}

/// What is wrong with a finalizer that belongs to nobody.
pub(crate) fn unqualified_finalizer(name: &str) -> Option<&'static str> {
    let is_known = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    let problem = "name is neither a standard finalizer name nor is it fully qualified";
    (!name.contains('/') && !is_known).then_some(problem)
}

/// An object that is being deleted gets no new finalizers.
pub(crate) fn no_new_finalizers(new: &Value, old: &Value, field: &str) -> Option<FieldError> {
    let is_new = |name: &&Value| !items(old).contains(name);
    let mut found: Vec<&str> = items(new).iter().filter(is_new).filter_map(Value::as_str).collect();
    found.sort_unstable();
    found.dedup();
    let found: Vec<String> = found.into_iter().map(|name| format!("{name:?}")).collect();
    let detail = || {
        let found = found.join(", ");
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
        )
    };
    (!found.is_empty()).then(|| FieldError::forbidden(field, detail()))
}

fn validate_managed_fields(entries: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, entry) in items(entries).iter().enumerate() {
        let field = format!("{field}[{i}]");
        match text(entry, "operation") {
            "Apply" | "Update" => {}
            "" => errors.push(FieldError::required(format!("{field}.operation"), "must not be empty")),
            other => {
                let problem = Problem::NotSupported(other.into(), vec!["Apply".into(), "Update".into()]);
                errors.push(FieldError::new(format!("{field}.operation"), problem));
            }
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(
                format!("{field}.fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(text(entry, "manager"), &format!("{field}.manager")));
        if text(entry, "subresource").len() > MAX_SUBRESOURCE {
            errors.push(FieldError::new(format!("{field}.subresource"), Problem::TooLong(MAX_SUBRESOURCE)));
        }
    }
    errors
}

/// The name of a field manager: printable, and not long. The query parameter `fieldManager` obeys it, too.
pub(crate) fn validate_field_manager(manager: &str, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MAX_FIELD_MANAGER {
        errors.push(FieldError::new(field, Problem::TooLong(MAX_FIELD_MANAGER)));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid(field, manager, detail));
    }
    errors
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space.
pub(crate) fn is_printable(c: char) -> bool {
    let invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{f0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                       an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                       validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(FieldError::to_string).collect()
    }

    /// Puts `field` into metadata that is fine otherwise.
    #[track_caller]
    fn check(field: &str, value: Value, expect: &[&str]) {
        let mut metadata = json!({"name": "a", "namespace": "b"});
        metadata[field] = value;
        assert_eq!(texts(validate_create(&metadata, true, NameRule::Subdomain)), expect);
    }

    #[test]
    fn names_and_namespaces() {
        check("name", json!("web-1.x"), &[]);
        check("name", json!(null), &["metadata.name: Required value: name or generateName is required"]);
        check(
            "name",
            json!("Web"),
            &[
                "metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain must consist of lower case \
               alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
               'example.com', regex used for validation is \
               '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        );
        check("namespace", json!(""), &["metadata.namespace: Required value"]);
        check(
            "namespace",
            json!("a.b"),
            &["metadata.namespace: Invalid value: \"a.b\": must not contain dots"],
        );
        check("generateName", json!("web-"), &[]);
        let node = json!({"name": "a", "namespace": "b"});
        assert_eq!(
            texts(validate_create(&node, false, NameRule::Subdomain)),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
        check(
            "generation",
            json!(-1),
            &["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
        );
    }

    #[test]
    fn labels_and_annotations() {
        check("labels", json!({"app": "web", "x/y": ""}), &[]);
        check("labels", json!({"a b": "c"}), &[&format!("metadata.labels: Invalid value: \"a b\": {KEY}")]);
        check(
            "labels",
            json!({"a": "x".repeat(64)}),
            &[&format!(
                "metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes",
                "x".repeat(64)
            )],
        );
        check("annotations", json!({"Example.COM/Key": "any thing"}), &[]);
        check(
            "annotations",
            json!({"a b": ""}),
            &[&format!("metadata.annotations: Invalid value: \"a b\": {KEY}")],
        );
        check("annotations", json!({"a": "x".repeat(MAX_ANNOTATIONS - 1)}), &[]);
        check(
            "annotations",
            json!({"a": "x".repeat(MAX_ANNOTATIONS)}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
    }

    #[test]
    fn owners() {
        let owner = |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "n", "uid": "u"});
        check("ownerReferences", json!([owner("ReplicaSet"), owner("Job")]), &[]);
        check(
            "ownerReferences",
            json!([{}]),
            &[
                "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
                "metadata.ownerReferences[0].kind: Required value: must not be empty",
                "metadata.ownerReferences[0].name: Required value: must not be empty",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ],
        );
        check(
            "ownerReferences",
            json!([{"apiVersion": "a/b/c", "kind": "k", "name": "n", "uid": "u"}]),
            &[
                "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>",
            ],
        );
        check(
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]),
            &["metadata.ownerReferences[0]: Invalid value: \
               {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"n\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed \
               from being an owner"],
        );
        let mut two = [owner("A"), owner("B")];
        two.iter_mut().for_each(|owner| owner["controller"] = json!(true));
        let metadata = json!({"name": "a", "namespace": "b", "ownerReferences": two});
        let errors = texts(validate_create(&metadata, true, NameRule::Subdomain));
        assert!(errors[0].ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for A/n and B/n"
        ));
    }

    #[test]
    fn finalizers() {
        check("finalizers", json!(["example.com/x", "orphan"]), &[]);
        check(
            "finalizers",
            json!(["a b"]),
            &[&format!("metadata.finalizers: Invalid value: \"a b\": {KEY}")],
        );
        check(
            "finalizers",
            json!(["orphan", "foregroundDeletion"]),
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
               foregroundDeletion cannot be both set",
            ],
        );
    }

    #[test]
    fn managed_fields() {
        check(
            "managedFields",
            json!([{"manager": "kubectl", "operation": "Apply", "fieldsType": "FieldsV1"}]),
            &[],
        );
        check(
            "managedFields",
            json!([{"manager": "a\u{7}", "operation": "Merge", "fieldsType": "FieldsV2"}, {}]),
            &[
                "metadata.managedFields[0].operation: Unsupported value: \"Merge\": supported values: \"Apply\", \
                 \"Update\"",
                "metadata.managedFields[0].fieldsType: Invalid value: \"FieldsV2\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)",
                "metadata.managedFields[1].operation: Required value: must not be empty",
            ],
        );
    }

    #[track_caller]
    fn check_update(new: Value, old: Value, expect: &[&str]) {
        assert_eq!(texts(validate_update(&new, &old)), expect);
    }

    #[test]
    fn updates_leave_identity_and_time_alone() {
        let old =
            json!({"name": "a", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2});
        check_update(old.clone(), old.clone(), &[]);
        check_update(
            json!({"name": "b", "uid": "2", "generation": 1}),
            old.clone(),
            &[
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.creationTimestamp: Invalid value: null: field is immutable",
            ],
        );
        let mut deleted = old.clone();
        deleted["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check_update(
            deleted,
            old,
            &["metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable"],
        );
    }

    #[test]
    fn an_object_that_is_being_deleted_gets_no_new_finalizers() {
        let old = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
        let with = |finalizers: Value| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        check_update(with(json!([])), old.clone(), &[]);
        check_update(
            with(json!(["z/z", "a/b", "c/d"])),
            old,
            &[
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
               new finalizers []string{\"c/d\", \"z/z\"}",
            ],
        );
    }

    proptest! {
        #[test]
        fn no_metadata_makes_it_panic(
            name in "\\PC{0,20}",
            prefix in "\\PC{0,20}",
            labels in prop::collection::btree_map("\\PC{0,20}", "\\PC{0,20}", 0..3),
        ) {
            let metadata = json!({
                "name": name, "generateName": prefix, "labels": labels, "annotations": labels, "finalizers": [name],
                "ownerReferences": [labels, 1, null], "managedFields": [{"manager": prefix}, "x"],
            });
            for rule in [NameRule::Subdomain, NameRule::Label, NameRule::PathSegment] {
                let _ = validate_create(&metadata, true, rule);
            }
            let _ = validate_update(&metadata, &json!({"deletionTimestamp": "x"}));
        }
    }
}
