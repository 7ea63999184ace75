//! Defaults → Rust expressions.

use serde_json::Value;

use super::{Planner, Schema};
use crate::error::{Error, FieldPath};
use crate::types::json;
use crate::types::model::{Item, Rust};

impl Planner {
    /// The expression of a default that is a plain value; none if it is a list or an object, which stay optional.
    pub(super) fn default(
        &self,
        rust: &Rust,
        schema: &Schema,
        value: &Value,
        path: &FieldPath,
    ) -> Result<Option<String>, Error> {
        let wrong = || {
            let kind = schema.get("type").and_then(Value::as_str).unwrap_or("int-or-string");
            Error::new(path, format!("{value} is not a value of the type {kind}"))
        };
        let expression = match rust {
            Rust::String => format!("{}.to_owned()", json::string(value.as_str().ok_or_else(wrong)?)),
            Rust::Bool => value.as_bool().ok_or_else(wrong)?.to_string(),
            Rust::I32 => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                number.ok_or_else(wrong)?.to_string()
            }
            Rust::I64 => value.as_i64().ok_or_else(wrong)?.to_string(),
            Rust::F64 => json::float(value.as_f64().ok_or_else(wrong)?),
            Rust::IntOrString => match (value.as_i64(), value.as_str()) {
                (Some(number), _) => format!("IntOrString::Int({number})"),
                (_, Some(text)) => format!("IntOrString::String({}.to_owned())", json::string(text)),
                _ => return Err(wrong()),
            },
            Rust::Named(name) => return self.default_variant(name, value, path),
            Rust::Json | Rust::JsonMap | Rust::List(_) | Rust::Dict(_) => return Ok(None),
        };
        Ok(Some(expression))
    }

    fn default_variant(&self, name: &str, value: &Value, path: &FieldPath) -> Result<Option<String>, Error> {
        let find = |item: &Item| match item {
            Item::Enum(found) if found.name == name => Some(found.variants.clone()),
            _ => None,
        };
        let Some(variants) = self.items.iter().find_map(find) else { return Ok(None) };
        match variants.iter().find(|(_, json)| Some(json.as_str()) == value.as_str()) {
            Some((ident, _)) => Ok(Some(format!("{name}::{ident}"))),
            None => Err(Error::new(path, format!("{value} is not one of the values of the enum"))),
        }
    }
}
