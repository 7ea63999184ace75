//! What Go encodes for fields that nobody set.

use serde_json::{Map, Value};

use crate::types::{Field, FieldType, Type};

impl FieldType {
    /// The JSON of Go's zero value.
    pub(crate) fn zero(&self) -> Value {
        match self {
            Self::String => Value::String(String::new()),
            Self::Bool | Self::SchemaOrBool => Value::Bool(false),
            Self::Int32 | Self::Int64 | Self::Float64 | Self::IntOrString => Value::from(0),
            Self::Quantity => Value::String("0".to_owned()),
            Self::Struct(id) => id.get().zero(),
            Self::Bytes
            | Self::Time
            | Self::MicroTime
            | Self::RawExtension
            | Self::FieldsV1
            | Self::Json
            | Self::SchemaOrArray
            | Self::SchemaOrStrings
            | Self::List(_)
            | Self::WrappedList(_)
            | Self::Map(_) => Value::Null,
        }
    }
}

impl Field {
    /// Whether Go leaves the field out when it holds this value.
    pub(crate) fn omits(&self, value: &Value) -> bool {
        if self.pointer {
            return false;
        }
        if self.omit_zero && *value == self.ty.zero() {
            return true;
        }
        self.omit_empty
            && !self.ty.is_go_struct()
            && match value {
                Value::Null => true,
                Value::Bool(flag) => !flag,
                Value::Number(number) => number.as_f64() == Some(0.0),
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(map) => map.is_empty(),
            }
    }
}

/// Adds the fields that Go encodes although nobody set them.
pub(crate) fn fill(ty: &Type, map: &mut Map<String, Value>) {
    for at in &ty.always {
        let field = &ty.fields[usize::from(*at)];
        if !map.contains_key(field.name) {
            let value = if field.pointer { Value::Null } else { field.ty.zero() };
            map.insert(field.name.to_owned(), value);
        }
    }
}
