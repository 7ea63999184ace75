//! Printer columns: what `kubectl get` shows of a custom resource.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::json_path::JsonPath;

/// One column, as a table tells about it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Column {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    format: String,
    description: String,
    priority: i64,
    /// Where its cells come from; a path that cannot be read has none.
    #[serde(skip)]
    path: Option<JsonPath>,
}

impl Column {
    /// The columns of a version, after that of the name. Without any there is the age.
    pub(super) fn of_version(version: &Value) -> Vec<Column> {
        let columns: Vec<Column> =
            version["additionalPrinterColumns"].as_array().into_iter().flatten().map(Column::of).collect();
        if !columns.is_empty() {
            return columns;
        }
        vec![Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: "When the object was created.".to_owned(),
            priority: 0,
            path: JsonPath::parse(".metadata.creationTimestamp"),
        }]
    }

    fn of(column: &Value) -> Column {
        let text = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
        let path = text("jsonPath");
        let description = match text("description") {
            none if none.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            description => description,
        };
        Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column["priority"].as_i64().unwrap_or(0),
            path: JsonPath::parse(&path),
        }
    }

    /// The cell of an object.
    pub(crate) fn cell(&self, object: &Value, age: impl Fn(Timestamp) -> Value) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", Value::String(text)) => text.clone().into(),
            ("string", Value::Null) => "<nil>".into(),
            ("string", other) => other.to_string().into(),
            #[allow(clippy::cast_possible_truncation, reason = "as Go converts it")]
            ("integer", Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|number| number as i64))
                .map_or(Value::Null, Value::from),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => match text.parse() {
                Ok(time) => age(time),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}
