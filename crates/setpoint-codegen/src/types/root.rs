//! The attributes of `#[derive(CustomResource)]`.

use serde_json::Value;

use super::json::string;
use super::model::{Root, Struct};
use crate::definition::{Definition, Version};

/// The items of `#[kube(…)]`.
pub(super) fn attributes(
    definition: &Definition,
    version: &Version,
    root: &Root,
    described: &Struct,
) -> Vec<String> {
    let names = &definition.names;
    let mut items = vec![
        format!("group = {}", string(&definition.group)),
        format!("version = {}", string(&version.name)),
        format!("kind = {}", string(&names.kind)),
    ];
    let mut add = |condition: bool, item: String| items.extend(condition.then_some(item));
    add(root.kind != names.kind, format!("root = {}", string(&root.kind)));
    add(true, format!("plural = {}", string(&names.plural)));
    add(names.singular != names.kind.to_ascii_lowercase(), format!("singular = {}", string(&names.singular)));
    add(definition.is_namespaced, "namespaced".to_owned());
    add(root.is_flat, "no_spec".to_owned());
    if let Some(status) = &root.status {
        add(true, format!("status = {}", string(status)));
    }
    add(true, "derive = \"PartialEq\"".to_owned());
    add(described.is_default, "derive = \"Default\"".to_owned());
    add(!version.storage, "storage = false".to_owned());
    add(!version.served, "served = false".to_owned());
    names.short_names.iter().for_each(|name| add(true, format!("shortname = {}", string(name))));
    names.categories.iter().for_each(|name| add(true, format!("category = {}", string(name))));
    match &version.deprecation_warning {
        Some(warning) if version.deprecated => add(true, format!("deprecated = {}", string(warning))),
        _ => add(version.deprecated, "deprecated".to_owned()),
    }
    if let Some(scale) = &version.subresources.scale {
        add(root.status.is_some(), format!("scale = {}", string(&scale.to_string())));
    }
    for column in &version.additional_printer_columns {
        add(true, format!("printcolumn = {}", string(&column.to_string())));
    }
    version
        .selectable_fields
        .iter()
        .for_each(|each| add(true, format!("selectable = {}", string(&each.json_path))));
    if let Some(approval) = &definition.approval {
        add(true, format!("annotation(\"api-approved.kubernetes.io\", {})", string(approval)));
    }
    // Unless it is said that there is none, the derive makes one up.
    let description = version.schema().get("description").and_then(Value::as_str);
    add(true, format!("doc = {}", string(description.unwrap_or_default())));
    rules(version).iter().for_each(|rule| add(true, format!("validation = {rule}")));
    items
}

/// The CEL rules of the whole object, in `kube`'s words.
fn rules(version: &Version) -> Vec<String> {
    let rules = version.schema().get("x-kubernetes-validations").and_then(Value::as_array);
    rules.into_iter().flatten().map(rule).collect()
}

fn rule(rule: &Value) -> String {
    let text = |key: &str| rule.get(key).and_then(Value::as_str);
    let mut code = format!("Rule::new({})", string(text("rule").unwrap_or_default()));
    if let Some(message) = text("message") {
        code += &format!(".message({})", string(message));
    } else if let Some(expression) = text("messageExpression") {
        code += &format!(".message(Message::Expression({}.into()))", string(expression));
    }
    if let Some(path) = text("fieldPath") {
        code += &format!(".field_path({})", string(path));
    }
    if let Some(
        reason @ ("FieldValueInvalid" | "FieldValueForbidden" | "FieldValueRequired" | "FieldValueDuplicate"),
    ) = text("reason")
    {
        code += &format!(".reason(Reason::{reason})");
    }
    if rule.get("optionalOldSelf") == Some(&Value::Bool(true)) {
        code += ".optional_old_self(true)";
    }
    code
}
