//! JSONSchemaProps, as JSON, into a schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{AdditionalProperties, Pattern, Rule, Structural, Type, Values};

/// Why a schema cannot be used at all, in kube-apiserver's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    /// A keyword that structural schemas leave out.
    #[error("OpenAPIV3Schema '{0}' is not supported")]
    Unsupported(&'static str),
    /// `items` holds a list of schemas.
    #[error("OpenAPIV3Schema 'items' must be a schema, but is an array")]
    ItemsArray,
    /// `x-kubernetes-preserve-unknown-fields: false`.
    #[error("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined")]
    PreserveFalse,
    /// A keyword with a value of another type than it takes.
    #[error("OpenAPIV3Schema '{0}' must be {1}")]
    WrongType(&'static str, &'static str),
    /// Schemas within schemas beyond any use.
    #[error("OpenAPIV3Schema is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// Schemas are walked recursively: this keeps a hostile one from using up the stack.
const MAX_DEPTH: usize = 100;

impl Structural {
    /// Parses the JSON of a JSONSchemaProps. What is parsed need not be structural: see `check`.
    pub(crate) fn parse(schema: &Value) -> Result<Structural, ParseError> {
        parse(schema, 0)
    }
}

fn parse(schema: &Value, depth: usize) -> Result<Structural, ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::TooDeep);
    }
    let Value::Object(map) = schema else { return Err(ParseError::WrongType("schema", "an object")) };
    let props = Props { map, depth: depth + 1 };
    props.refuse_unsupported()?;
    let mut node = Structural {
        type_: props.text("type")?.map(Type::from).filter(|t| !t.as_str().is_empty()),
        properties: props.schemas("properties")?,
        items: props.items()?,
        additional_properties: props.additional_properties()?,
        nullable: props.flag("nullable")?,
        default: map.get("default").filter(|default| !default.is_null()).cloned(),
        preserve_unknown_fields: props.preserve_unknown_fields()?,
        embedded_resource: props.flag("x-kubernetes-embedded-resource")?,
        int_or_string: props.flag("x-kubernetes-int-or-string")?,
        list_type: props.text("x-kubernetes-list-type")?.map(str::to_owned),
        list_map_keys: props.texts("x-kubernetes-list-map-keys")?,
        map_type: props.text("x-kubernetes-map-type")?.map(str::to_owned),
        rules: props.rules()?,
        has_rules: false,
        has_title: props.text("title")?.is_some_and(|text| !text.is_empty()),
        has_description: props.text("description")?.is_some_and(|text| !text.is_empty()),
        values: Values::default(),
    };
    node.values = props.values()?;
    let mut children = node.properties.values().chain(node.items.as_deref()).chain(node.additional());
    node.has_rules = !node.rules.is_empty() || children.any(|child| child.has_rules);
    Ok(node)
}

impl From<&str> for Type {
    fn from(word: &str) -> Type {
        match word {
            "array" => Type::Array,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "object" => Type::Object,
            "string" => Type::String,
            other => Type::Unknown(other.to_owned()),
        }
    }
}

/// The keywords of one node; `null` is as good as absent.
struct Props<'a> {
    map: &'a Map<String, Value>,
    /// The depth of the node's children.
    depth: usize,
}

impl<'a> Props<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &'static str) -> Result<Option<&'a str>, ParseError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ParseError::WrongType(key, "a string")),
        }
    }

    fn owned_text(&self, key: &'static str) -> Result<String, ParseError> {
        Ok(self.text(key)?.unwrap_or_default().to_owned())
    }

    fn flag(&self, key: &'static str) -> Result<bool, ParseError> {
        Ok(self.optional_flag(key)?.unwrap_or_default())
    }

    fn optional_flag(&self, key: &'static str) -> Result<Option<bool>, ParseError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(ParseError::WrongType(key, "a boolean")),
        }
    }

    fn number(&self, key: &'static str) -> Result<Option<f64>, ParseError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(ParseError::WrongType(key, "a number")),
        }
    }

    fn integer(&self, key: &'static str) -> Result<Option<i64>, ParseError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or(ParseError::WrongType(key, "an integer")),
        }
    }

    fn array(&self, key: &'static str) -> Result<&'a [Value], ParseError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(ParseError::WrongType(key, "an array")),
        }
    }

    fn texts(&self, key: &'static str) -> Result<Vec<String>, ParseError> {
        let wrong = ParseError::WrongType(key, "an array of strings");
        self.array(key)?
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong.clone()))
            .collect()
    }

    fn schemas(&self, key: &'static str) -> Result<BTreeMap<String, Structural>, ParseError> {
        match self.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(map)) => {
                map.iter().map(|(name, schema)| Ok((name.clone(), parse(schema, self.depth)?))).collect()
            }
            Some(_) => Err(ParseError::WrongType(key, "an object")),
        }
    }

    fn schema_list(&self, key: &'static str) -> Result<Vec<Structural>, ParseError> {
        self.array(key)?.iter().map(|schema| parse(schema, self.depth)).collect()
    }

    fn refuse_unsupported(&self) -> Result<(), ParseError> {
        const KEYWORDS: [(&str, &str); 7] = [
            ("id", "id"),
            ("$schema", "schema"),
            ("$ref", "$ref"),
            ("patternProperties", "patternProperties"),
            ("dependencies", "dependencies"),
            ("additionalItems", "additionalItems"),
            ("definitions", "definitions"),
        ];
        for (key, name) in KEYWORDS {
            let set = match self.get(key) {
                None => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Object(map)) if key != "additionalItems" => !map.is_empty(),
                Some(_) => true,
            };
            if set {
                return Err(ParseError::Unsupported(name));
            }
        }
        Ok(())
    }

    fn items(&self) -> Result<Option<Box<Structural>>, ParseError> {
        match self.get("items") {
            None => Ok(None),
            Some(Value::Array(_)) => Err(ParseError::ItemsArray),
            Some(schema) => Ok(Some(Box::new(parse(schema, self.depth)?))),
        }
    }

    fn additional_properties(&self) -> Result<Option<AdditionalProperties>, ParseError> {
        match self.get("additionalProperties") {
            None => Ok(None),
            Some(Value::Bool(allowed)) => Ok(Some(AdditionalProperties::Allowed(*allowed))),
            Some(schema) => Ok(Some(AdditionalProperties::Schema(Box::new(parse(schema, self.depth)?)))),
        }
    }

    fn preserve_unknown_fields(&self) -> Result<bool, ParseError> {
        match self.optional_flag("x-kubernetes-preserve-unknown-fields")? {
            Some(false) => Err(ParseError::PreserveFalse),
            set => Ok(set.unwrap_or_default()),
        }
    }

    fn rules(&self) -> Result<Vec<Rule>, ParseError> {
        const KEY: &str = "x-kubernetes-validations";
        self.array(KEY)?
            .iter()
            .map(|rule| {
                let map = rule.as_object().ok_or(ParseError::WrongType(KEY, "an array of objects"))?;
                let props = Props { map, depth: self.depth };
                Ok(Rule {
                    rule: props.owned_text("rule")?,
                    message: props.owned_text("message")?,
                    message_expression: props.owned_text("messageExpression")?,
                    reason: props.text("reason")?.map(str::to_owned),
                    field_path: props.owned_text("fieldPath")?,
                    optional_old_self: props.optional_flag("optionalOldSelf")?,
                    compiled: std::sync::Arc::default(),
                })
            })
            .collect()
    }

    fn values(&self) -> Result<Values, ParseError> {
        Ok(Values {
            format: self.owned_text("format")?,
            maximum: self.number("maximum")?,
            exclusive_maximum: self.flag("exclusiveMaximum")?,
            minimum: self.number("minimum")?,
            exclusive_minimum: self.flag("exclusiveMinimum")?,
            max_length: self.integer("maxLength")?,
            min_length: self.integer("minLength")?,
            pattern: self.text("pattern")?.filter(|text| !text.is_empty()).map(Pattern::new),
            max_items: self.integer("maxItems")?,
            min_items: self.integer("minItems")?,
            unique_items: self.flag("uniqueItems")?,
            multiple_of: self.number("multipleOf")?,
            enumeration: self.array("enum")?.to_vec(),
            max_properties: self.integer("maxProperties")?,
            min_properties: self.integer("minProperties")?,
            required: self.texts("required")?,
            all_of: self.schema_list("allOf")?,
            one_of: self.schema_list("oneOf")?,
            any_of: self.schema_list("anyOf")?,
            not: match self.get("not") {
                None => None,
                Some(schema) => Some(Box::new(parse(schema, self.depth)?)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_cannot_say_is_refused_by_name() {
        let cases = [
            (json!({"$ref": "#/x"}), "OpenAPIV3Schema '$ref' is not supported"),
            (json!({"properties": {"a": {"id": "x"}}}), "OpenAPIV3Schema 'id' is not supported"),
            (json!({"items": [{}]}), "OpenAPIV3Schema 'items' must be a schema, but is an array"),
            (
                json!({"x-kubernetes-preserve-unknown-fields": false}),
                "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
            ),
            (json!({"type": 5}), "OpenAPIV3Schema 'type' must be a string"),
        ];
        for (schema, message) in cases {
            assert_eq!(Structural::parse(&schema).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_schema_of_a_thousand_levels_is_refused() {
        let schema = (0..1000).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert_eq!(Structural::parse(&schema).unwrap_err(), ParseError::TooDeep);
    }
}
