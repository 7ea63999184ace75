//! OpenAPI v2 in protobuf, as gnostic's messages have it: JSON in, bytes out, by tables of field numbers.

use serde_json::Value;

/// How a member of a JSON object is written.
enum Kind {
    Text,
    /// A list of texts.
    Texts,
    Flag,
    Integer,
    Number,
    /// Anything, as YAML; JSON is YAML.
    Any,
    /// A list of anything.
    Anys,
    Message(&'static Message),
    /// A message in another one: its field number there.
    Within(u32, &'static Message),
    /// A message that is a map: the number of its entries, and what they are.
    Named(&'static Map),
    /// One text, in a message that could hold several.
    Type,
    /// A schema, or a flag.
    SchemaOrFlag,
    /// Parameters, each in the message for where it is.
    Parameters,
}

/// A message: its fields, and the number of its extensions.
pub(super) struct Message {
    fields: &'static [(&'static str, u32, Kind)],
    extensions: u32,
}

/// A message with named entries.
pub(super) struct Map {
    number: u32,
    /// The entry's value, which may be inside of another message.
    within: Option<u32>,
    value: &'static Message,
}

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Number),
        ("maximum", 7, Kind::Number),
        ("exclusiveMaximum", 8, Kind::Flag),
        ("minimum", 9, Kind::Number),
        ("exclusiveMinimum", 10, Kind::Flag),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Flag),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::SchemaOrFlag),
        ("type", 22, Kind::Type),
        ("items", 23, Kind::Within(1, &SCHEMA)),
        ("properties", 25, Kind::Named(&PROPERTIES)),
        ("example", 30, Kind::Any),
    ],
    extensions: 31,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Parameters),
        ("responses", 9, Kind::Named(&RESPONSES)),
        ("schemes", 10, Kind::Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Kind::Text), ("schema", 2, Kind::Within(1, &SCHEMA))],
    extensions: 5,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Kind::Message(&OPERATION)),
        ("put", 3, Kind::Message(&OPERATION)),
        ("post", 4, Kind::Message(&OPERATION)),
        ("delete", 5, Kind::Message(&OPERATION)),
        ("patch", 8, Kind::Message(&OPERATION)),
        ("parameters", 9, Kind::Parameters),
    ],
    extensions: 10,
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 5, Kind::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("uniqueItems", 20, Kind::Flag),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("uniqueItems", 19, Kind::Flag),
    ],
    extensions: 22,
};

static INFO: Message =
    Message { fields: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)], extensions: 7 };

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("description", 4, Kind::Text),
    ],
    extensions: 5,
};

static PROPERTIES: Map = Map { number: 1, within: None, value: &SCHEMA };
static RESPONSES: Map = Map { number: 1, within: Some(1), value: &RESPONSE };
pub(super) static DEFINITIONS: Map = Map { number: 1, within: None, value: &SCHEMA };
pub(super) static PATHS: Map = Map { number: 2, within: None, value: &PATH_ITEM };

/// The whole document; its paths and its definitions are encoded already.
pub(super) fn document(info: &Value, paths: &[u8], definitions: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(paths.len() + definitions.len() + 256);
    bytes(1, b"2.0", &mut out);
    nested(2, &mut out, |out| INFO.encode(info, out));
    bytes(8, paths, &mut out);
    bytes(9, definitions, &mut out);
    // The requirement of a token, by name, without scopes; then what it is.
    nested(12, &mut out, |out| {
        nested(1, out, |out| {
            bytes(1, b"BearerToken", out);
            bytes(2, b"", out);
        });
    });
    let key = serde_json::json!({"type": "apiKey", "name": "authorization", "in": "header",
        "description": "Bearer Token authentication"});
    nested(13, &mut out, |out| {
        nested(1, out, |out| {
            bytes(1, b"BearerToken", out);
            nested(2, out, |out| nested(2, out, |out| API_KEY.encode(&key, out)));
        });
    });
    out
}

impl Map {
    /// One entry: its name and its value.
    pub(super) fn encode_entry(&self, name: &str, value: &Value, out: &mut Vec<u8>) {
        nested(self.number, out, |out| {
            bytes(1, name.as_bytes(), out);
            nested(2, out, |out| match self.within {
                Some(number) => nested(number, out, |out| self.value.encode(value, out)),
                None => self.value.encode(value, out),
            });
        });
    }
}

impl Message {
    fn encode(&self, value: &Value, out: &mut Vec<u8>) {
        for (name, number, kind) in self.fields {
            if let Some(member) = value.get(name) {
                kind.encode(*number, member, out);
            }
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            if name.starts_with("x-") {
                nested(self.extensions, out, |out| {
                    bytes(1, name.as_bytes(), out);
                    nested(2, out, |out| bytes(2, member.to_string().as_bytes(), out));
                });
            }
        }
    }
}

impl Kind {
    fn encode(&self, number: u32, value: &Value, out: &mut Vec<u8>) {
        let items = || value.as_array().into_iter().flatten();
        match self {
            Kind::Text => bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
            Kind::Texts => {
                items().filter_map(Value::as_str).for_each(|text| bytes(number, text.as_bytes(), out))
            }
            Kind::Flag if value == &Value::Bool(true) => {
                varint(u64::from(number) << 3, out);
                out.push(1);
            }
            Kind::Flag => {}
            Kind::Integer => {
                varint(u64::from(number) << 3, out);
                varint(value.as_i64().unwrap_or_default().cast_unsigned(), out);
            }
            Kind::Number => {
                varint(u64::from(number) << 3 | 1, out);
                out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
            }
            Kind::Any => nested(number, out, |out| bytes(2, value.to_string().as_bytes(), out)),
            Kind::Anys => items().for_each(|item| Kind::Any.encode(number, item, out)),
            Kind::Message(message) => nested(number, out, |out| message.encode(value, out)),
            Kind::Within(inner, message) => {
                nested(number, out, |out| nested(*inner, out, |out| message.encode(value, out)));
            }
            Kind::Named(map) => nested(number, out, |out| {
                for (name, member) in value.as_object().into_iter().flatten() {
                    map.encode_entry(name, member, out);
                }
            }),
            Kind::Type => nested(number, out, |out| Kind::Text.encode(1, value, out)),
            Kind::SchemaOrFlag => nested(number, out, |out| match value.as_bool() {
                // As one of two it is written also when it is false.
                Some(flag) => out.extend([2 << 3, u8::from(flag)]),
                None => nested(1, out, |out| SCHEMA.encode(value, out)),
            }),
            Kind::Parameters => items().for_each(|item| nested(number, out, |out| parameter(item, out))),
        }
    }
}

/// A parameter, which is not a reference to one: in the body, in the query or in the path.
fn parameter(value: &Value, out: &mut Vec<u8>) {
    nested(1, out, |out| match value["in"].as_str() {
        Some("body") => nested(1, out, |out| BODY_PARAMETER.encode(value, out)),
        Some("path") => nested(2, out, |out| nested(4, out, |out| PATH_PARAMETER.encode(value, out))),
        _ => nested(2, out, |out| nested(3, out, |out| QUERY_PARAMETER.encode(value, out))),
    });
}

fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(number, &inner, out);
}

fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_are_written_by_number() {
        let mut out = Vec::new();
        let schema = json!({"type": "array", "items": {"$ref": "#/d/X"}, "minItems": 300, "x-a": [1]});
        PROPERTIES.encode_entry("p", &schema, &mut out);
        let reference = [&[10, 5][..], b"#/d/X"].concat();
        let items = [&[0xBA, 1, 9, 10, 7][..], &reference].concat();
        let ty = [&[0xB2, 1, 7, 10, 5][..], b"array"].concat();
        let extension = [&[0xFA, 1, 12, 10, 3][..], b"x-a", &[18, 5, 18, 3], b"[1]"].concat();
        let schema = [&[0x78, 0xAC, 2][..], &ty, &items, &extension].concat();
        let entry = [&[10, 1][..], b"p", &[18, u8::try_from(schema.len()).unwrap()], &schema].concat();
        let expect = [&[10, u8::try_from(entry.len()).unwrap()][..], &entry].concat();
        assert_eq!(out, expect);
    }
}
