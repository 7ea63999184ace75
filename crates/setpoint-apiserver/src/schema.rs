//! Structural schemas of CustomResourceDefinitions: what objects may look like, what is dropped, what is filled in.
//!
//! A schema is parsed once, when its CustomResourceDefinition is stored; everything else here is a pure function of the
//! parsed schema and a JSON value.

mod check;
mod correlate;
mod default;
mod embedded;
mod format;
mod list_type;
mod parse;
mod pattern;
#[cfg(test)]
mod properties;
mod prune;
mod rules;
mod validate;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

#[cfg(test)]
pub(crate) use check::check;
pub(crate) use check::check_definition;
pub(crate) use pattern::Pattern;
pub(crate) use prune::Nulls;
pub(crate) use rules::{Rule, usable_message};
pub(crate) use validate::NOT_CHECKED;

/// One node of a parsed schema. The schemas below `allOf`, `anyOf`, `oneOf` and `not` are nodes too, though there only
/// value validations, `properties` and `items` may be set for the whole to be structural.
#[derive(Clone, Debug, Default)]
pub(crate) struct Structural {
    /// The declared type; `None` when it is left open.
    pub(crate) type_: Option<Type>,
    /// The fields with a schema of their own.
    pub(crate) properties: BTreeMap<String, Structural>,
    /// The schema of each item of an array.
    pub(crate) items: Option<Box<Structural>>,
    /// What other fields may hold.
    pub(crate) additional_properties: Option<AdditionalProperties>,
    /// Whether `null` is a value of this field.
    pub(crate) nullable: bool,
    /// What a missing field is set to; never `null`.
    pub(crate) default: Option<Value>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`.
    pub(crate) embedded_resource: bool,
    /// `x-kubernetes-int-or-string`.
    pub(crate) int_or_string: bool,
    /// `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub(crate) list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    pub(crate) list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`: `granular` or `atomic`.
    pub(crate) map_type: Option<String>,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Vec<Rule>,
    /// Whether this node, or one below it, has rules.
    pub(crate) has_rules: bool,
    /// Whether a title is set, and whether a description is: neither may be below a junctor.
    pub(crate) has_title: bool,
    /// See `has_title`.
    pub(crate) has_description: bool,
    /// What values of the type are allowed.
    pub(crate) values: Values,
}

/// `additionalProperties`: a schema, or whether there may be any.
#[derive(Clone, Debug)]
pub(crate) enum AdditionalProperties {
    /// `true` or `false`.
    Allowed(bool),
    /// The schema of each of them.
    Schema(Box<Structural>),
}

/// The JSON types that a schema can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// `array`.
    Array,
    /// `boolean`.
    Boolean,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `object`.
    Object,
    /// `string`.
    String,
    /// Any other word: no value has this type.
    Unknown(String),
}

/// The value validations of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// `format`; empty when not set.
    pub(crate) format: String,
    /// `maximum`.
    pub(crate) maximum: Option<f64>,
    /// `exclusiveMaximum`.
    pub(crate) exclusive_maximum: bool,
    /// `minimum`.
    pub(crate) minimum: Option<f64>,
    /// `exclusiveMinimum`.
    pub(crate) exclusive_minimum: bool,
    /// `maxLength`, in characters.
    pub(crate) max_length: Option<i64>,
    /// `minLength`, in characters.
    pub(crate) min_length: Option<i64>,
    /// `pattern`.
    pub(crate) pattern: Option<Pattern>,
    /// `maxItems`.
    pub(crate) max_items: Option<i64>,
    /// `minItems`.
    pub(crate) min_items: Option<i64>,
    /// `uniqueItems`.
    pub(crate) unique_items: bool,
    /// `multipleOf`.
    pub(crate) multiple_of: Option<f64>,
    /// `enum`; empty when not set.
    pub(crate) enumeration: Vec<Value>,
    /// `maxProperties`.
    pub(crate) max_properties: Option<i64>,
    /// `minProperties`.
    pub(crate) min_properties: Option<i64>,
    /// `required`.
    pub(crate) required: Vec<String>,
    /// `allOf`.
    pub(crate) all_of: Vec<Structural>,
    /// `oneOf`.
    pub(crate) one_of: Vec<Structural>,
    /// `anyOf`.
    pub(crate) any_of: Vec<Structural>,
    /// `not`.
    pub(crate) not: Option<Box<Structural>>,
}

impl Structural {
    /// The schema of the field `name` of an object: its own, else that of additional properties.
    pub(crate) fn field(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or_else(|| self.additional())
    }

    /// The schema of fields that have none of their own.
    pub(crate) fn additional(&self) -> Option<&Structural> {
        match &self.additional_properties {
            Some(AdditionalProperties::Schema(schema)) => Some(schema),
            _ => None,
        }
    }
}

impl Values {
    /// Whether nothing is asked of a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.format.is_empty()
            && self.maximum.is_none()
            && !self.exclusive_maximum
            && self.minimum.is_none()
            && !self.exclusive_minimum
            && self.max_length.is_none()
            && self.min_length.is_none()
            && self.pattern.is_none()
            && self.max_items.is_none()
            && self.min_items.is_none()
            && !self.unique_items
            && self.multiple_of.is_none()
            && self.enumeration.is_empty()
            && self.max_properties.is_none()
            && self.min_properties.is_none()
            && self.required.is_empty()
            && self.all_of.is_empty()
            && self.one_of.is_empty()
            && self.any_of.is_empty()
            && self.not.is_none()
    }
}

impl Type {
    /// The word of the schema.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
            Type::Unknown(word) => word,
        }
    }
}
