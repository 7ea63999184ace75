//! JSON as Go writes it, to the byte: structs in the order of their source, maps by key, three letters escaped, and a line of
//! its own. What is equal here is not written again by kube-apiserver.

use std::io::Write;

use serde_json::{Map, Value};
use setpoint_kinds::{Field, FieldType, Type, table};

const SPEC: &str = "apiextensions.v1.CustomResourceDefinitionSpec";
const VERSION: &str = "apiextensions.v1.CustomResourceDefinitionVersion";
const COLUMN: &str = "apiextensions.v1.CustomResourceColumnDefinition";
const CONVERSION: &str = "apiextensions.v1.CustomResourceConversion";
const WEBHOOK: &str = "apiextensions.v1.WebhookConversion";

/// A field of v1beta1, and the struct and field of v1 that hold the same.
type Renamed = (&'static str, &'static str, &'static str);

/// The structs that v1beta1 has with other fields, in order.
const V1BETA1: [(&str, &[Renamed]); 3] = [
    (
        SPEC,
        &[
            ("group", SPEC, "group"),
            ("version", VERSION, "name"),
            ("names", SPEC, "names"),
            ("scope", SPEC, "scope"),
            ("validation", VERSION, "schema"),
            ("subresources", VERSION, "subresources"),
            ("versions", SPEC, "versions"),
            ("additionalPrinterColumns", VERSION, "additionalPrinterColumns"),
            ("selectableFields", VERSION, "selectableFields"),
            ("conversion", SPEC, "conversion"),
            ("preserveUnknownFields", SPEC, "preserveUnknownFields"),
        ],
    ),
    (
        COLUMN,
        &[
            ("name", COLUMN, "name"),
            ("type", COLUMN, "type"),
            ("format", COLUMN, "format"),
            ("description", COLUMN, "description"),
            ("priority", COLUMN, "priority"),
            ("JSONPath", COLUMN, "jsonPath"),
        ],
    ),
    (
        CONVERSION,
        &[
            ("strategy", CONVERSION, "strategy"),
            ("webhookClientConfig", WEBHOOK, "clientConfig"),
            ("conversionReviewVersions", WEBHOOK, "conversionReviewVersions"),
        ],
    ),
];

/// As Go writes a map of anything.
pub(super) fn of_map(value: &Value) -> Vec<u8> {
    written(|writer| writer.value(None, value))
}

/// As Go writes a struct; CustomResourceDefinitions are taken for those of v1beta1.
pub(super) fn of_struct(ty: &Type, value: &Value) -> Vec<u8> {
    written(|writer| match value {
        Value::Object(map) => writer.fields(ty, map),
        other => writer.value(None, other),
    })
}

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    write(&mut writer);
    writer.0.push(b'\n');
    writer.0
}

/// How deep it recurses is bounded: what is stored has been counted.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn value(&mut self, ty: Option<&FieldType>, value: &Value) {
        match (value, ty) {
            (Value::Null, _) => self.0.extend_from_slice(b"null"),
            (Value::Bool(flag), _) => self.0.extend_from_slice(if *flag { b"true" } else { b"false" }),
            (Value::Number(number), Some(FieldType::Float64)) => {
                self.0.extend_from_slice(float(number.as_f64().unwrap_or_default()).as_bytes());
            }
            (Value::Number(number), _) => self.print(number),
            (Value::String(text), _) => self.text(text),
            (Value::Array(items), Some(FieldType::SchemaOrArray)) => {
                self.list(items, |writer, item| match item {
                    Value::Object(map) => writer.fields(schema(), map),
                    other => writer.value(None, other),
                });
            }
            (Value::Array(items), _) => {
                let of = ty.and_then(item);
                self.list(items, |writer, item| writer.value(of, item));
            }
            (Value::Object(map), Some(FieldType::Struct(id))) => self.fields(id.get(), map),
            (Value::Object(map), Some(FieldType::Map(of))) => self.map(Some(of), map),
            (
                Value::Object(map),
                Some(FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings),
            ) => self.fields(schema(), map),
            (Value::Object(map), _) => self.map(None, map),
        }
    }

    fn list(&mut self, items: &[Value], mut write: impl FnMut(&mut Writer, &Value)) {
        self.0.push(b'[');
        for (at, item) in items.iter().enumerate() {
            self.separate(at);
            write(self, item);
        }
        self.0.push(b']');
    }

    fn map(&mut self, ty: Option<&FieldType>, map: &Map<String, Value>) {
        self.0.push(b'{');
        for (at, (name, value)) in map.iter().enumerate() {
            self.separate(at);
            self.member(name, ty, value);
        }
        self.0.push(b'}');
    }

    fn fields(&mut self, ty: &Type, map: &Map<String, Value>) {
        let mut members: Vec<(u16, &String, Option<&Field>, &Value)> = map
            .iter()
            .map(|(name, value)| {
                let (position, field) = place(ty, name);
                (position, name, field, value)
            })
            .collect();
        members.sort_by_key(|(position, ..)| *position);
        self.0.push(b'{');
        for (at, (_, name, field, value)) in members.into_iter().enumerate() {
            self.separate(at);
            self.member(name, field.map(|field| &field.ty), value);
        }
        self.0.push(b'}');
    }

    fn member(&mut self, name: &str, ty: Option<&FieldType>, value: &Value) {
        self.text(name);
        self.0.push(b':');
        self.value(ty, value);
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.0.push(b',');
        }
    }

    fn text(&mut self, text: &str) {
        let quoted = Value::from(text).to_string();
        for letter in quoted.chars() {
            match letter {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    self.0.extend_from_slice(format!("\\u{:04x}", u32::from(letter)).as_bytes());
                }
                letter => self.0.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    fn print(&mut self, what: impl std::fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.0, "{what}");
    }
}

/// What the items of a list are.
fn item(list: &FieldType) -> Option<&FieldType> {
    match list {
        FieldType::List(item) | FieldType::WrappedList(item) => Some(item),
        _ => None,
    }
}

fn schema() -> &'static Type {
    table().type_named("apiextensions.v1.JSONSchemaProps").expect("the table has the types of definitions")
}

/// Where a field of this name stands, and what it is. What the struct does not have comes last.
fn place(ty: &Type, name: &str) -> (u16, Option<&'static Field>) {
    let of = |ty: &str, field: &str| table().type_named(ty).and_then(|ty| ty.field(field));
    let Some((_, fields)) = V1BETA1.iter().find(|(known, _)| *known == ty.name) else {
        let field = of(ty.name, name);
        return (field.map_or(u16::MAX, |field| field.position), field);
    };
    let mut placed = (0..).zip(*fields);
    let found = placed.find(|(_, (known, ..))| *known == name);
    found.map_or((u16::MAX, None), |(at, (_, ty, field))| (at, of(ty, field)))
}

/// As Go writes a number with a fraction: without one if it has none, with an exponent if it is very large or small.
fn float(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if (1e-6..1e21).contains(&size) => number.to_string(),
        size if size < 1.0 => format!("{number:e}"),
        _ => format!("{number:e}").replace('e', "e+"),
    }
}
