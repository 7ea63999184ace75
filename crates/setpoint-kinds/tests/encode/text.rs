//! Objects as text that is not as the server writes it.

use serde_json::Value;
use setpoint_kinds::{FieldType, Type};

use super::objects::Random;

/// The text of an object with its keys in another order, spaces, escapes, and fields that mean nothing.
pub(crate) fn shuffled(ty: &Type, object: &Value, random: &mut Random) -> String {
    let mut text = String::new();
    structure(ty, object, random, &mut text);
    text
}

fn structure(ty: &Type, object: &Value, random: &mut Random, out: &mut String) {
    let Value::Object(map) = object else { return value(object, random, out) };
    let mut fields: Vec<String> = Vec::new();
    for (name, found) in map {
        let mut text = String::new();
        key(name, random, &mut text);
        match ty.field(name) {
            Some(field) => typed(&field.ty, found, random, &mut text),
            None => value(found, random, &mut text),
        }
        fields.push(text);
    }
    shuffle(&mut fields, random);
    if random.below(3) == 0 {
        let at = random.below(fields.len() + 1);
        fields.insert(at, r#""nobodyKnowsThis" : [{"a": null, "b": "\ud83e\udd80"}, 1e5, []]"#.to_owned());
    }
    if let Some((name, _)) = map.iter().next()
        && random.below(3) == 0
    {
        // What comes again counts.
        fields.insert(0, format!("{name:?}:null"));
    }
    join("{", &fields, "}", random, out);
}

fn typed(ty: &FieldType, found: &Value, random: &mut Random, out: &mut String) {
    let schema = || setpoint_kinds::table().type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    match (ty, found) {
        (FieldType::Struct(id), _) => structure(id.get(), found, random, out),
        (
            FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings,
            Value::Object(_),
        ) => structure(schema(), found, random, out),
        (FieldType::SchemaOrArray, Value::Array(items)) => {
            list(items, random, out, |item, random, out| structure(schema(), item, random, out));
        }
        (FieldType::List(ty) | FieldType::WrappedList(ty), Value::Array(items)) => {
            list(items, random, out, |item, random, out| typed(ty, item, random, out));
        }
        (FieldType::Map(ty), Value::Object(map)) => {
            let mut entries = Vec::new();
            for (name, found) in map {
                let mut text = String::new();
                key(name, random, &mut text);
                typed(ty, found, random, &mut text);
                entries.push(text);
            }
            shuffle(&mut entries, random);
            join("{", &entries, "}", random, out);
        }
        // The order of what is in there is kept.
        (FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json, _) => {
            out.push_str(&found.to_string())
        }
        _ => value(found, random, out),
    }
}

fn list(
    items: &[Value],
    random: &mut Random,
    out: &mut String,
    mut write: impl FnMut(&Value, &mut Random, &mut String),
) {
    let mut texts = Vec::new();
    for item in items {
        let mut text = String::new();
        write(item, random, &mut text);
        texts.push(text);
    }
    join("[", &texts, "]", random, out);
}

fn value(found: &Value, random: &mut Random, out: &mut String) {
    match found {
        Value::String(text) if random.below(2) == 0 => {
            out.push('"');
            for unit in text.encode_utf16() {
                out.push_str(&format!("\\u{unit:04x}"));
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn key(name: &str, random: &mut Random, out: &mut String) {
    value(&Value::from(name), random, out);
    out.push_str(if random.below(2) == 0 { ":" } else { " :\n" });
}

fn join(open: &str, parts: &[String], close: &str, random: &mut Random, out: &mut String) {
    let comma = if random.below(2) == 0 { "," } else { "\t, " };
    out.push_str(open);
    out.push_str(&parts.join(comma));
    out.push_str(close);
}

fn shuffle(parts: &mut [String], random: &mut Random) {
    for last in (1..parts.len()).rev() {
        parts.swap(last, random.below(last + 1));
    }
}
