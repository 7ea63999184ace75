//! What the keywords of a schema may hold, node by node.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field_error::{FieldError, Problem};
use crate::schema::{Structural, rules};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Appends what is wrong below `schema`, the errors of CEL rules last. `parsed` is the same schema if it is structural:
/// only then are its rules compiled.
pub(super) fn check(schema: &Value, parsed: Option<&Structural>, path: &str) -> Vec<FieldError> {
    let mut check = Check { schema_errors: Vec::new(), rule_errors: Vec::new() };
    check.node(schema, path, Place { parsed, root: true, ..Place::default() });
    check.schema_errors.extend(check.rule_errors);
    check.schema_errors
}

/// What holds at a node because of those above it.
#[derive(Clone, Default)]
struct Place<'a> {
    /// The node, where rules are allowed.
    parsed: Option<&'a Structural>,
    root: bool,
    /// Within apiVersion, kind or metadata of a resource.
    inside_meta: bool,
    /// Why there may be no default.
    no_defaults: Option<String>,
    /// The list or map whose items have no old value.
    uncorrelatable: Option<String>,
}

impl<'a> Place<'a> {
    fn below(&self, parsed: Option<&'a Structural>) -> Place<'a> {
        Place { parsed, root: false, ..self.clone() }
    }
}

struct Check {
    schema_errors: Vec<FieldError>,
    rule_errors: Vec<FieldError>,
}

fn text<'a>(schema: &'a Value, keyword: &str) -> &'a str {
    schema[keyword].as_str().unwrap_or_default()
}

fn array<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema[keyword].as_array().map_or(&[], Vec::as_slice)
}

impl Check {
    fn push(&mut self, error: FieldError) {
        self.schema_errors.push(error);
    }

    fn forbid(&mut self, path: String, detail: impl Into<String>) {
        self.push(FieldError::forbidden(path, detail));
    }

    fn node(&mut self, schema: &Value, path: &str, place: Place<'_>) {
        if !schema.is_object() {
            return;
        }
        let errors_above = self.schema_errors.len();
        self.keywords(schema, path, &place);
        if schema["uniqueItems"] == true {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbid(format!("{path}.uniqueItems"), detail);
        }
        self.children(schema, path, &place);
        self.map_type(schema, path);
        self.list_type(schema, path);
        self.list_map(schema, path);
        self.list_map_keys(schema, path);
        self.rules(schema, path, &place, errors_above);
    }

    fn keywords(&mut self, schema: &Value, path: &str, place: &Place<'_>) {
        let type_ = text(schema, "type");
        if !type_.is_empty() && !TYPES.contains(&type_) {
            let allowed = TYPES.map(str::to_owned).to_vec();
            self.push(FieldError::new(format!("{path}.type"), Problem::NotSupported(type_.into(), allowed)));
        }
        if let Some(reason) = place.no_defaults.as_ref().filter(|_| !schema["default"].is_null()) {
            self.forbid(format!("{path}.default"), format!("must not be set {reason}"));
        }
        for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            if super::is_set(&schema[keyword]) {
                self.forbid(format!("{path}.{keyword}"), format!("{keyword} is not supported"));
            }
        }
        if type_ == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.forbid(format!("{path}.type"), detail);
        }
        if !array(schema, "items").is_empty() {
            self.forbid(format!("{path}.items"), "items must be a schema object and not an array");
        }
        if place.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
            let detail = "must not be used inside of resource meta";
            self.forbid(format!("{path}.x-kubernetes-embedded-resource"), detail);
        }
    }

    fn children(&mut self, schema: &Value, path: &str, place: &Place<'_>) {
        let additional = &schema["additionalProperties"];
        let properties = schema["properties"].as_object();
        if !additional.is_null() {
            if *additional != true && properties.is_some_and(|properties| !properties.is_empty()) {
                let detail = "additionalProperties and properties are mutual exclusive";
                self.forbid(format!("{path}.additionalProperties"), detail);
            }
            let mut below = place.below(place.parsed.and_then(Structural::additional));
            if place.inside_meta {
                below.no_defaults =
                    Some("inside additionalProperties applying to object metadata".to_owned());
            }
            self.node(additional, &format!("{path}.additionalProperties"), below);
        }
        for (name, property) in properties.into_iter().flatten() {
            let below = self.property_place(schema, name, path, place);
            self.node(property, &format!("{path}.properties[{name}]"), below);
        }
        self.node(&schema["not"], &format!("{path}.not"), place.below(None));
        for keyword in ["allOf", "oneOf", "anyOf"] {
            for (index, branch) in array(schema, keyword).iter().enumerate() {
                self.node(branch, &format!("{path}.{keyword}[{index}]"), place.below(None));
            }
        }
        let mut below = place.below(place.parsed.and_then(|parsed| parsed.items.as_deref()));
        if text(schema, "x-kubernetes-list-type") != "map" && below.uncorrelatable.is_none() {
            below.uncorrelatable = Some(path.to_owned());
        }
        self.node(&schema["items"], &format!("{path}.items"), below.clone());
        for (index, items) in array(schema, "items").iter().enumerate() {
            self.node(items, &format!("{path}.items[{index}]"), Place { parsed: None, ..below.clone() });
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.push(FieldError::invalid(at, false, "must be true or undefined"));
        }
    }

    fn property_place<'a>(&self, schema: &Value, name: &str, path: &str, place: &Place<'a>) -> Place<'a> {
        let mut below = place.below(place.parsed.and_then(|parsed| parsed.properties.get(name)));
        let map_type = text(schema, "x-kubernetes-map-type");
        if !matches!(map_type, "" | "granular" | "atomic") && below.uncorrelatable.is_none() {
            below.uncorrelatable = Some(path.to_owned());
        }
        let resource = place.root || schema["x-kubernetes-embedded-resource"] == true;
        if resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            below.inside_meta = true;
            if place.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        below
    }

    /// The type that a keyword asks for.
    fn needs_type(&mut self, schema: &Value, path: &str, type_: &str, detail: &str) -> bool {
        let at = format!("{path}.type");
        match text(schema, "type") {
            actual if actual == type_ => return true,
            "" => self.push(FieldError::required(at, detail)),
            actual => self.push(FieldError::invalid(at, actual, detail)),
        }
        false
    }

    fn map_type(&mut self, schema: &Value, path: &str) {
        let map_type = &schema["x-kubernetes-map-type"];
        if map_type.is_null() {
            return;
        }
        self.needs_type(schema, path, "object", "must be object if x-kubernetes-map-type is specified");
        if !matches!(map_type.as_str(), Some("atomic" | "granular")) {
            let allowed = ["atomic", "granular"].map(str::to_owned).to_vec();
            let problem = Problem::NotSupported(map_type.clone().into(), allowed);
            self.push(FieldError::new(format!("{path}.x-kubernetes-map-type"), problem));
        }
    }

    fn list_type(&mut self, schema: &Value, path: &str) {
        let list_type = &schema["x-kubernetes-list-type"];
        if list_type.is_null() {
            return;
        }
        let is_array =
            self.needs_type(schema, path, "array", "must be array if x-kubernetes-list-type is specified");
        let items = &schema["items"];
        if is_array && list_type == "set" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let shown = items["x-kubernetes-list-type"].clone();
            match text(items, "type") {
                "array" if !shown.is_null() && shown != "atomic" => {
                    self.push(FieldError::invalid(
                        format!("{path}.items.x-kubernetes-list-type"),
                        shown,
                        detail,
                    ));
                }
                "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
                    self.push(FieldError::invalid(
                        format!("{path}.items.x-kubernetes-map-type"),
                        shown,
                        detail,
                    ));
                }
                _ => {}
            }
        }
        if !matches!(list_type.as_str(), Some("atomic" | "set" | "map")) {
            let allowed = ["atomic", "set", "map"].map(str::to_owned).to_vec();
            let problem = Problem::NotSupported(list_type.clone().into(), allowed);
            self.push(FieldError::new(format!("{path}.x-kubernetes-list-type"), problem));
        }
    }

    fn list_map(&mut self, schema: &Value, path: &str) {
        let keys = array(schema, "x-kubernetes-list-map-keys");
        let list_type = &schema["x-kubernetes-list-type"];
        if !keys.is_empty() && list_type != "map" {
            let at = format!("{path}.x-kubernetes-list-type");
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.push(match list_type {
                Value::Null => FieldError::required(at, detail),
                other => FieldError::invalid(at, other.clone(), detail),
            });
        }
        if list_type != "map" {
            return;
        }
        let at = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.push(FieldError::required(at.clone(), detail));
        }
        let items = &schema["items"];
        match items {
            Value::Null => {
                let detail = "must have a schema if x-kubernetes-list-type is map";
                self.push(FieldError::required(format!("{path}.items"), detail));
            }
            Value::Array(_) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                self.push(FieldError::invalid(format!("{path}.items"), items.clone(), detail));
            }
            items if text(items, "type") != "object" => {
                let detail = "must be object if parent array's x-kubernetes-list-type is map";
                self.push(FieldError::invalid(format!("{path}.items.type"), text(items, "type"), detail));
            }
            items => self.map_keys(items, keys, &schema["x-kubernetes-list-map-keys"], path),
        }
    }

    fn map_keys(&mut self, items: &Value, keys: &[Value], shown: &Value, path: &str) {
        let at = format!("{path}.x-kubernetes-list-map-keys");
        let mut seen = BTreeSet::new();
        for key in keys.iter().filter_map(Value::as_str) {
            match items["properties"].get(key) {
                Some(property) if matches!(text(property, "type"), "array" | "object") => {
                    let at = format!("{path}.items.properties[{key}].type");
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.push(FieldError::invalid(at, text(items, "type"), detail));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.push(FieldError::invalid(at.clone(), shown.clone(), detail));
                }
            }
            if !seen.insert(key) {
                self.push(FieldError::invalid(
                    at.clone(),
                    shown.clone(),
                    "must not contain duplicate entries",
                ));
            }
        }
    }

    /// Every item of a set or map must have all its keys.
    fn list_map_keys(&mut self, schema: &Value, path: &str) {
        let list_type = text(schema, "x-kubernetes-list-type");
        let items = &schema["items"];
        if !items.is_object() || !matches!(list_type, "set" | "map") {
            return;
        }
        if items["nullable"] == true {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbid(format!("{path}.items.nullable"), detail);
        }
        if list_type == "set" {
            return;
        }
        for key in array(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
            let Some(property) = items["properties"].get(key) else { continue };
            let at = format!("{path}.items.properties[{key}]");
            let required = array(items, "required").iter().any(|name| name == key);
            if !required && property["default"].is_null() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                              required property";
                self.push(FieldError::required(format!("{at}.default"), detail));
            }
            if property["nullable"] == true {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbid(format!("{at}.nullable"), detail);
            }
        }
    }

    fn rules(&mut self, schema: &Value, path: &str, place: &Place<'_>, errors_above: usize) {
        let listed = array(schema, "x-kubernetes-validations");
        for (index, rule) in listed.iter().enumerate() {
            self.rule(schema, rule, &format!("{path}.x-kubernetes-validations[{index}]"));
        }
        // A broken schema makes for errors of its rules that nobody can act on.
        let Some(parsed) = place.parsed.filter(|_| self.schema_errors.len() == errors_above) else { return };
        for (index, rule) in parsed.rules.iter().enumerate() {
            let at = format!("{path}.x-kubernetes-validations[{index}]");
            let found = rules::check(rule, parsed, place.root, place.uncorrelatable.as_deref(), &at);
            self.rule_errors.extend(found);
        }
    }

    fn rule(&mut self, schema: &Value, rule: &Value, path: &str) {
        let has_lines = |text: &str| text.contains(['\n', '\r']);
        let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
        if source.is_empty() {
            self.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let at = format!("{path}.message");
            self.push(FieldError::invalid(at, message, "must be non-empty if specified"));
        } else if has_lines(message.trim()) {
            let at = format!("{path}.message");
            self.push(FieldError::invalid(at, message, "must not contain line breaks"));
        } else if has_lines(source) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            self.push(FieldError::required(format!("{path}.message"), detail));
        }
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.push(FieldError::required(format!("{path}.messageExpression"), detail));
        }
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            let problem = Problem::NotSupported(reason.into(), REASONS.map(str::to_owned).to_vec());
            self.push(FieldError::new(format!("{path}.reason"), problem));
        }
        let field = text(rule, "fieldPath");
        let at = format!("{path}.fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            self.push(FieldError::invalid(at.clone(), field, "must be non-empty if specified"));
        }
        if has_lines(field) {
            self.push(FieldError::invalid(at.clone(), field, "must not contain line breaks"));
        }
        let is_wrong = |parsed: Structural| rules::field_path(field, &parsed).is_none();
        if !field.is_empty() && Structural::parse(schema).is_ok_and(is_wrong) {
            self.push(FieldError::invalid(at, field, "must be a valid path"));
        }
    }
}
