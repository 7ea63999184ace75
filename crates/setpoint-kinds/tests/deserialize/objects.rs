//! Objects of any type, from a seed.

use serde_json::{Map, Value, json};
use setpoint_kinds::{FieldType, Type, conform};

/// Numbers that are always the same for one seed.
pub(crate) struct Random {
    state: u64,
    /// Whether everything is there, and nothing is zero.
    is_full: bool,
}

impl Random {
    /// The seed 0 makes objects that have everything.
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x243f_6a88_85a3_08d3, is_full: seed == 0 }
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % end
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        // The first is what an object has that has everything.
        let at = self.below(choices.len());
        choices[if self.is_full { 0 } else { at }]
    }

    /// Changes, takes away or adds a few bytes.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes[at] = bytes[at].wrapping_add(1),
                2 => bytes[at] ^= 1 << self.below(8),
                3 => bytes.truncate(at),
                4 => drop(bytes.remove(at)),
                _ => bytes.insert(at, self.below(256) as u8),
            }
        }
    }
}

/// An object as the server has it.
pub(crate) fn object(ty: &Type, random: &mut Random) -> Value {
    let mut value = structure(ty, random, 0);
    conform(ty, &mut value, &mut Vec::new()).unwrap_or_else(|error| panic!("{}: {error}", ty.name));
    value
}

fn structure(ty: &Type, random: &mut Random, depth: usize) -> Value {
    let mut map = Map::new();
    for field in ty.fields() {
        // What is not in protobuf is the kind itself.
        let is_kind = depth == 0 && ["apiVersion", "kind"].contains(&field.name);
        let is_there = random.is_full || random.below(3) > 0;
        if field.required && matches!(field.ty, FieldType::Time | FieldType::MicroTime) {
            // The types of k8s-openapi do not take null for these.
            map.insert(field.name.to_owned(), json!("2024-02-29T12:34:56.000000Z"));
        } else if is_there && !is_kind {
            map.insert(field.name.to_owned(), value(&field.ty, random, depth));
        }
    }
    Value::Object(map)
}

fn value(ty: &FieldType, random: &mut Random, depth: usize) -> Value {
    // Schemas have schemas.
    let is_deep = depth > 8;
    let several = if random.is_full { 2 } else { random.below(3) };
    match ty {
        FieldType::String => json!(random.pick(&["text", "", "é🦀", "2024-01-01T00:00:00Z"])),
        FieldType::Bool => json!(random.pick(&[true, false])),
        FieldType::Int32 => json!(random.pick(&[7, 0, -1, i32::MAX, i32::MIN])),
        FieldType::Int64 => json!(random.pick(&[7, 0, -1, i64::MAX, i64::MIN])),
        FieldType::Float64 => json!(random.pick(&[1.5, 0.0, -2.0, 1e300])),
        FieldType::Bytes => json!(random.pick(&["YWJj", "", "/w=="])),
        FieldType::Quantity => json!(random.pick(&["100m", "0", "1Gi", "1.5", "12e6"])),
        FieldType::IntOrString => random.pick(&[&json!(80), &json!("http"), &json!(0), &json!("")]).clone(),
        FieldType::Time => random
            .pick(&[&json!("2024-02-29T12:34:56Z"), &json!(null), &json!("1969-12-31T23:59:59Z")])
            .clone(),
        FieldType::MicroTime => random.pick(&[&json!("2024-02-29T12:34:56.123456Z"), &json!(null)]).clone(),
        FieldType::RawExtension | FieldType::FieldsV1 | FieldType::Json => {
            json!({"f:spec": {"n": random.below(100), "text": "\u{e9}\n"}, "list": [1.5, null, true]})
        }
        FieldType::SchemaOrBool if is_deep || random.below(2) == 0 => json!(random.pick(&[true, false])),
        FieldType::SchemaOrStrings if is_deep || random.below(2) == 0 => json!(["a", "b"]),
        FieldType::SchemaOrArray if !is_deep && random.below(2) == 0 => json!([schema(random, depth)]),
        FieldType::SchemaOrBool | FieldType::SchemaOrArray | FieldType::SchemaOrStrings => {
            if is_deep {
                json!({})
            } else {
                schema(random, depth)
            }
        }
        FieldType::Struct(_) if is_deep => json!({}),
        FieldType::Struct(id) => structure(id.get(), random, depth + 1),
        FieldType::List(_) | FieldType::Map(_) if is_deep => json!(null),
        // Nobody takes null for a time in a map.
        FieldType::Map(item) if **item == FieldType::Time => json!({"key": "2024-02-29T12:34:56Z"}),
        FieldType::List(item) | FieldType::WrappedList(item) => {
            (0..several).map(|_| value(item, random, depth + 1)).collect()
        }
        FieldType::Map(item) => {
            let entries = (0..several).map(|n| (format!("key{n}"), value(item, random, depth + 1)));
            Value::Object(entries.collect())
        }
        other => panic!("a new type: {other:?}"),
    }
}

/// A small one: with all its fields a schema would have thousands of others in it.
fn schema(random: &mut Random, depth: usize) -> Value {
    let ty = setpoint_kinds::table().type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    let mut map = Map::new();
    for field in ty.fields() {
        if random.below(8) == 0 {
            map.insert(field.name.to_owned(), value(&field.ty, random, depth + 4));
        }
    }
    Value::Object(map)
}
