//! What makes a schema structural: every field has a type and is named outside of `allOf`, `anyOf`, `oneOf`, `not`.

use crate::field_error::FieldError;
use crate::schema::{AdditionalProperties, Structural, Type};

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Structural {
    /// What keeps the schema from being structural, sorted. None of it: the schema is.
    pub(crate) fn violations(&self, path: &str) -> Vec<FieldError> {
        let mut check = Check { errors: Vec::new() };
        check.invariants(self, Level::Root, path);
        check.complete_values(self, Some(self), path, path);
        check.errors.sort_by_cached_key(ToString::to_string);
        check.errors
    }
}

struct Check {
    errors: Vec<FieldError>,
}

impl Check {
    fn forbid(&mut self, path: String, detail: &str) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn require(&mut self, path: String, detail: &str) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn invariants(&mut self, node: &Structural, level: Level, path: &str) {
        if node.type_ == Some(Type::Array) && node.items.is_none() {
            self.require(format!("{path}.items"), "must be specified");
        }
        if let Some(items) = &node.items {
            self.invariants(items, Level::Item, &format!("{path}.items"));
        }
        for (name, property) in &node.properties {
            self.invariants(property, Level::Field, &format!("{path}.properties[{name}]"));
        }
        if node.additional_properties.is_some() && level == Level::Root {
            self.forbid(format!("{path}.additionalProperties"), "must not be used at the root");
        }
        if let Some(additional) = node.additional() {
            self.invariants(additional, Level::Field, &format!("{path}.additionalProperties"));
        }
        self.extensions(node, path);
        self.values(node, is_int_or_string_any_of(node), is_int_or_string_all_of(node), path);
        self.types(node, level, path);
        self.meta_fields(node, level, path);
    }

    fn extensions(&mut self, node: &Structural, path: &str) {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        for (set, keyword) in [
            (node.preserve_unknown_fields, "x-kubernetes-preserve-unknown-fields"),
            (node.embedded_resource, "x-kubernetes-embedded-resource"),
        ] {
            if node.int_or_string && set {
                self.errors.push(FieldError::invalid(format!("{path}.{keyword}"), true, detail));
            }
        }
    }

    fn types(&mut self, node: &Structural, level: Level, path: &str) {
        let at = format!("{path}.type");
        if node.embedded_resource && node.type_ != Some(Type::Object) {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match &node.type_ {
                None => self.require(at.clone(), detail),
                Some(other) => self.errors.push(FieldError::invalid(at.clone(), other.as_str(), detail)),
            }
        } else if node.type_.is_none() && !node.int_or_string && !node.preserve_unknown_fields {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.require(at.clone(), detail);
        }
        if node.embedded_resource && node.additional_properties.is_some() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbid(format!("{path}.additionalProperties"), detail);
        }
        if let Some(other) = node.type_.as_ref().filter(|t| level == Level::Root && **t != Type::Object) {
            self.errors.push(FieldError::invalid(at, other.as_str(), "must be object at the root"));
        }
    }

    fn meta_fields(&mut self, node: &Structural, level: Level, path: &str) {
        let is_resource = level == Level::Root || node.embedded_resource;
        let type_of = |field: &Structural| field.type_.as_ref().map_or("", Type::as_str).to_owned();
        for name in ["kind", "apiVersion"] {
            let Some(field) = node.properties.get(name).filter(|_| is_resource) else { continue };
            if field.type_ != Some(Type::String) {
                let at = format!("{path}.properties[{name}].type");
                self.errors.push(FieldError::invalid(at, type_of(field), "must be string"));
            }
        }
        if let Some(metadata) = node.properties.get("metadata") {
            let at = format!("{path}.properties[metadata]");
            if is_resource && metadata.type_ != Some(Type::Object) {
                self.errors.push(FieldError::invalid(
                    format!("{at}.type"),
                    type_of(metadata),
                    "must be object",
                ));
            }
            if level == Level::Root && !restricts_names_only(metadata) {
                let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                              specified";
                self.forbid(at, detail);
            }
        }
        if node.embedded_resource && !node.preserve_unknown_fields && node.properties.is_empty() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            self.require(format!("{path}.properties"), detail);
        }
    }

    /// The junctors of a node; the two forms of int-or-string may have types there.
    fn values(&mut self, node: &Structural, skip_any_of: bool, skip_all_of: bool, path: &str) {
        let values = &node.values;
        if !skip_any_of {
            for (index, branch) in values.any_of.iter().enumerate() {
                self.nested(branch, false, &format!("{path}.anyOf[{index}]"));
            }
        }
        for (index, branch) in values.all_of.iter().enumerate() {
            self.nested(branch, skip_all_of && index == 0, &format!("{path}.allOf[{index}]"));
        }
        for (index, branch) in values.one_of.iter().enumerate() {
            self.nested(branch, false, &format!("{path}.oneOf[{index}]"));
        }
        if let Some(not) = &values.not {
            self.nested(not, false, &format!("{path}.not"));
        }
        if let Some((pattern, error)) = values.pattern.as_ref().and_then(|p| Some((p, p.error()?))) {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.errors.push(FieldError::invalid(format!("{path}.pattern"), pattern.source(), detail));
        }
    }

    fn nested(&mut self, node: &Structural, skip_any_of: bool, path: &str) {
        self.values(node, skip_any_of, false, path);
        if let Some(items) = &node.items {
            self.nested(items, false, &format!("{path}.items"));
        }
        for (name, property) in &node.properties {
            self.nested(property, false, &format!("{path}.properties[{name}]"));
        }
        let additional = match &node.additional_properties {
            None | Some(AdditionalProperties::Allowed(false)) => false,
            Some(_) => true,
        };
        let forbidden = [
            (node.type_.is_some(), "type", "must be empty to be structural"),
            (additional, "additionalProperties", "must be undefined to be structural"),
            (node.default.is_some(), "default", "must be undefined to be structural"),
            (node.has_title, "title", "must be empty to be structural"),
            (node.has_description, "description", "must be empty to be structural"),
            (node.nullable, "nullable", "must be false to be structural"),
            (
                node.preserve_unknown_fields,
                "x-kubernetes-preserve-unknown-fields",
                "must be false to be structural",
            ),
            (node.embedded_resource, "x-kubernetes-embedded-resource", "must be false to be structural"),
            (node.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
            (!node.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
            (node.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
            (node.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
            (!node.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
            (
                node.properties.contains_key("metadata"),
                "properties[metadata]",
                "must not be specified in a nested context",
            ),
        ];
        for (is_set, keyword, detail) in forbidden {
            if is_set {
                self.forbid(format!("{path}.{keyword}"), detail);
            }
        }
    }

    /// Whatever a junctor speaks of must have a schema of its own: `at` in the structure for `from` in the junctor.
    fn complete_values(&mut self, node: &Structural, structure: Option<&Structural>, at: &str, from: &str) {
        let values = &node.values;
        if let Some(not) = &values.not {
            self.complete(not, structure, at, &format!("{from}.not"));
        }
        for (keyword, branches) in
            [("allOf", &values.all_of), ("anyOf", &values.any_of), ("oneOf", &values.one_of)]
        {
            for (index, branch) in branches.iter().enumerate() {
                self.complete(branch, structure, at, &format!("{from}.{keyword}[{index}]"));
            }
        }
    }

    fn complete(&mut self, node: &Structural, structure: Option<&Structural>, at: &str, from: &str) {
        let Some(structure) = structure else {
            self.require(at.to_owned(), &format!("because it is defined in {from}"));
            return;
        };
        self.complete_values(node, Some(structure), at, from);
        if let Some(items) = &node.items {
            self.complete(
                items,
                structure.items.as_deref(),
                &format!("{at}.items"),
                &format!("{from}.items"),
            );
        }
        for (name, property) in &node.properties {
            let below = format!("properties[{name}]");
            let known = structure.properties.get(name);
            self.complete(property, known, &format!("{at}.{below}"), &format!("{from}.{below}"));
        }
    }
}

/// Whether the schema of an object's metadata says no more than what its name may be.
fn restricts_names_only(metadata: &Structural) -> bool {
    let Structural { values, .. } = metadata;
    let names = metadata.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"));
    let plain = !metadata.nullable
        && !metadata.has_title
        && !metadata.has_description
        && !metadata.preserve_unknown_fields
        && !metadata.embedded_resource
        && !metadata.int_or_string
        && metadata.items.is_none()
        && metadata.additional_properties.is_none()
        && metadata.list_type.is_none()
        && metadata.list_map_keys.is_empty()
        && metadata.map_type.is_none()
        && metadata.rules.is_empty();
    names && plain && values.is_empty()
}

fn is_int_or_string_any_of(node: &Structural) -> bool {
    let plain = |branch: &Structural, type_: Type| branch.type_ == Some(type_) && branch.is_only_typed();
    match node.values.any_of.as_slice() {
        [first, second] => plain(first, Type::Integer) && plain(second, Type::String),
        _ => false,
    }
}

fn is_int_or_string_all_of(node: &Structural) -> bool {
    node.values.all_of.first().is_some_and(is_int_or_string_any_of)
}

impl Structural {
    /// Whether nothing but the type is said.
    fn is_only_typed(&self) -> bool {
        let bare = Structural { type_: None, ..self.clone() };
        restricts_names_only(&bare) && bare.properties.is_empty() && bare.default.is_none()
    }
}
