//! Turns JSON into what kube-apiserver would have after decoding it into Go structs and encoding
//! them again.
//!
//! One pass, in place. Nothing is written down on the way; paths are built only while an error or
//! an unknown field travels back up.

mod error;

use serde_json::{Map, Value};

use self::error::Failure;
pub use self::error::{TypeError, UnknownField};
use crate::quantity::{QuantityError, canonical_quantity};
use crate::table::table;
use crate::time::{self, Precision};
use crate::types::{Field, FieldType, Type};
use crate::{base64, zero};

/// How deep structs, lists and maps may nest. `serde_json` has the same limit for text.
const MAX_DEPTH: usize = 128;
/// Go reports no more unknown fields than this.
const MAX_UNKNOWN: usize = 100;

/// Makes `value` what kube-apiserver would have after decoding it into the Go struct of `ty` and
/// encoding it again.
///
/// Unknown fields are removed and appended to `unknown`, in the order of their keys; nulls and the
/// zero values that Go omits are removed; the zero values that Go writes (`"status": {}`) are added;
/// times, quantities and base64 get their canonical form. A value of the wrong type is an error
/// that reads as kube-apiserver's; `value` is then left half done.
///
/// Two details of the text are gone once it is a [`Value`]: duplicate keys, and how a
/// floating-point number was written (`1e3` as a quantity becomes `1k`).
///
/// ```
/// use serde_json::json;
/// use setpoint_kinds::{conform, table};
///
/// let ty = table().type_of_kind("apps", "v1", "Deployment").unwrap();
/// let mut unknown = Vec::new();
/// let mut object = json!({"kind": "Deployment", "spec": {"replicas": 0, "paused": false, "color": "red"}});
/// conform(ty, &mut object, &mut unknown).unwrap();
/// assert_eq!(unknown[0].to_string(), r#"unknown field "spec.color""#);
/// assert_eq!(object["spec"]["replicas"], 0);
/// assert!(object["spec"].get("paused").is_none());
/// assert_eq!(object["status"], json!({}));
///
/// let mut object = json!({"spec": {"replicas": "3"}});
/// assert_eq!(
///     conform(ty, &mut object, &mut unknown).unwrap_err().to_string(),
///     "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
/// );
/// ```
pub fn conform(ty: &Type, value: &mut Value, unknown: &mut Vec<UnknownField>) -> Result<(), TypeError> {
    let start = unknown.len();
    let mut walk = Walk { unknown, start, depth: 0, silent: 0 };
    match value {
        Value::Object(map) => walk.object(ty, map),
        Value::Null => {
            *value = ty.zero();
            Ok(())
        }
        other => Err(Failure::mismatch(other, false, ty.go_type().to_owned())),
    }
    .map_err(|failure| failure.finish())
}

struct Walk<'a> {
    unknown: &'a mut Vec<UnknownField>,
    /// Where this call's unknown fields start.
    start: usize,
    depth: usize,
    /// Above zero inside a type that decodes itself: Go does not report unknown fields there.
    silent: usize,
}

type Outcome<T = ()> = Result<T, Box<Failure>>;

impl Walk<'_> {
    fn object(&mut self, ty: &Type, map: &mut Map<String, Value>) -> Outcome {
        self.enter()?;
        let mut failure = None;
        map.retain(|key, value| {
            if failure.is_some() {
                return true;
            }
            let Some(field) = ty.field(key) else {
                self.report(key);
                return false;
            };
            let reported = self.unknown.len();
            match self.field(field, value) {
                Ok(keep) => {
                    self.unknown[reported..].iter_mut().for_each(|unknown| unknown.within_field(key));
                    keep
                }
                Err(found) => {
                    failure = Some(found.within_field(ty, field));
                    true
                }
            }
        });
        self.depth -= 1;
        if let Some(failure) = failure {
            return Err(failure);
        }
        zero::fill(ty, map);
        Ok(())
    }

    fn enter(&mut self) -> Outcome {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Failure::message("exceeded max depth".to_owned())) } else { Ok(()) }
    }

    fn report(&mut self, key: &str) {
        if self.silent == 0 && self.unknown.len() - self.start < MAX_UNKNOWN {
            self.unknown.push(UnknownField { path: key.to_owned() });
        }
    }

    /// Whether the field stays.
    fn field(&mut self, field: &Field, value: &mut Value) -> Outcome<bool> {
        if value.is_null() {
            if field.pointer {
                return Ok(!field.omit_empty);
            }
            *value = field.ty.zero();
        } else {
            self.value(&field.ty, field.go, value)?;
        }
        Ok(!field.omits(value))
    }

    /// Conforms an item of a list or a value of a map.
    fn item(&mut self, ty: &FieldType, go: Option<&'static str>, value: &mut Value) -> Outcome {
        if value.is_null() {
            *value = match ty {
                // Protobuf, which kube-apiserver stores, has no nothing here.
                FieldType::Bytes => Value::String(String::new()),
                ty => ty.zero(),
            };
            return Ok(());
        }
        self.value(ty, go, value)
    }

    /// Conforms a value that is not null. `go` is the type's Go name where it has one of its own.
    fn value(&mut self, ty: &FieldType, go: Option<&'static str>, value: &mut Value) -> Outcome {
        let name = || go.map_or_else(|| ty.go_type(), str::to_owned);
        match (ty, &mut *value) {
            (FieldType::String, Value::String(_)) | (FieldType::Bool, Value::Bool(_)) => Ok(()),
            (FieldType::Struct(id), Value::Object(map)) => self.object(id.get(), map),
            (FieldType::List(item) | FieldType::WrappedList(item), Value::Array(items)) => {
                self.list(item, go.and_then(|name| name.strip_prefix("[]")), items)
            }
            (FieldType::Map(item), Value::Object(map)) => self.map(item, go.and_then(element_of_map), map),
            (FieldType::Int32, Value::Number(number)) if number.as_i64().is_some_and(fits_int32) => Ok(()),
            (FieldType::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
            (FieldType::Int32 | FieldType::Int64, other) => Err(Failure::mismatch(other, true, name())),
            (FieldType::Float64, Value::Number(_)) => {
                shorten_float(value);
                Ok(())
            }
            (FieldType::Bytes, _) => bytes(value, name),
            (FieldType::Quantity, _) => quantity(value).map_err(|error| Failure::message(error.to_string())),
            (FieldType::IntOrString, Value::String(_)) => Ok(()),
            (FieldType::IntOrString, _) => self.value(&FieldType::Int32, None, value),
            (FieldType::Time, _) => timestamp(value, Precision::Seconds),
            (FieldType::MicroTime, _) => timestamp(value, Precision::Micros),
            (FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json, _) => Ok(()),
            (FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings, _) => {
                self.silent += 1;
                let outcome = self.schema_or(ty, value);
                self.silent -= 1;
                outcome
            }
            (_, other) => Err(Failure::mismatch(other, false, name())),
        }
    }

    fn list(&mut self, ty: &FieldType, go: Option<&'static str>, items: &mut [Value]) -> Outcome {
        self.enter()?;
        for (index, item) in items.iter_mut().enumerate() {
            let reported = self.unknown.len();
            self.item(ty, go, item).map_err(|failure| failure.within_index(index))?;
            self.unknown[reported..].iter_mut().for_each(|unknown| unknown.within_index(index));
        }
        self.depth -= 1;
        Ok(())
    }

    fn map(&mut self, ty: &FieldType, go: Option<&'static str>, map: &mut Map<String, Value>) -> Outcome {
        self.enter()?;
        for (key, item) in map.iter_mut() {
            let reported = self.unknown.len();
            self.item(ty, go, item).map_err(|failure| failure.within_key(key))?;
            self.unknown[reported..].iter_mut().for_each(|unknown| unknown.within_field(key));
        }
        self.depth -= 1;
        Ok(())
    }

    /// The unions of a JSON schema with something else. What fits neither side of the last two is
    /// dropped without an error, as Go does.
    fn schema_or(&mut self, ty: &FieldType, value: &mut Value) -> Outcome {
        match (ty, &mut *value) {
            (_, Value::Object(map)) => return self.object(schema_type(), map),
            (FieldType::SchemaOrBool, Value::Bool(_)) => return Ok(()),
            (FieldType::SchemaOrBool, _) => {
                return Err(Failure::message("boolean or JSON schema expected".to_owned()));
            }
            (FieldType::SchemaOrArray, Value::Array(items)) if !items.is_empty() => {
                self.enter()?;
                for item in items {
                    match item {
                        Value::Object(map) => self.object(schema_type(), map)?,
                        Value::Null => *item = schema_type().zero(),
                        other => return Err(Failure::mismatch(other, false, schema_type().go_type().into())),
                    }
                }
                self.depth -= 1;
                return Ok(());
            }
            (FieldType::SchemaOrStrings, Value::Array(items)) if !items.is_empty() => {
                return self.list(&FieldType::String, None, items);
            }
            _ => {}
        }
        *value = Value::Null;
        Ok(())
    }
}

pub(crate) fn schema_type() -> &'static Type {
    table().type_named("apiextensions.v1.JSONSchemaProps").expect("the table has the type of schemas")
}

fn fits_int32(number: i64) -> bool {
    i32::try_from(number).is_ok()
}

/// `map[string]v1.ExtraValue` holds `v1.ExtraValue`; a named map tells nothing.
fn element_of_map(go: &'static str) -> Option<&'static str> {
    go.strip_prefix("map[").and_then(|rest| rest.split_once(']')).map(|(_, element)| element)
}

/// Go writes a float without a fraction as an integer.
fn shorten_float(value: &mut Value) {
    if let Some(float) = value.as_f64()
        && float.fract() == 0.0
        && float.abs() < 1e18
    {
        *value = Value::from(float as i64);
    }
}

fn bytes(value: &mut Value, go: impl Fn() -> String) -> Outcome {
    match value {
        Value::String(text) => {
            let decoded = base64::decode(text).map_err(Failure::message)?;
            if base64::may_change(text) {
                *text = base64::encode(&decoded);
            }
            Ok(())
        }
        // Go also takes a list of numbers.
        Value::Array(items) => {
            let byte = |item: &Value| match item {
                Value::Null => Ok(0),
                item => item
                    .as_u64()
                    .and_then(|number| u8::try_from(number).ok())
                    .ok_or_else(|| Failure::mismatch(item, true, "uint8".to_owned())),
            };
            let decoded = items.iter().map(byte).collect::<Result<Vec<u8>, _>>()?;
            *value = Value::String(base64::encode(&decoded));
            Ok(())
        }
        other => Err(Failure::mismatch(other, false, go())),
    }
}

fn quantity(value: &mut Value) -> Result<(), QuantityError> {
    match value {
        Value::String(text) => {
            let trimmed = text.trim();
            match canonical_quantity(trimmed)? {
                Some(canonical) => *text = canonical,
                None if trimmed.len() < text.len() => *text = trimmed.to_owned(),
                None => {}
            }
        }
        Value::Number(number) => {
            let text = number.to_string();
            *value = Value::String(canonical_quantity(&text)?.unwrap_or(text));
        }
        _ => return Err(QuantityError::Format),
    }
    Ok(())
}

fn timestamp(value: &mut Value, precision: Precision) -> Outcome {
    let Value::String(text) = value else {
        return Err(Failure::mismatch(value, false, "string".to_owned()));
    };
    *value = time::normalize(text, precision).map_err(Failure::message)?.map_or(Value::Null, Value::String);
    Ok(())
}
