//! OpenAPI v2: one document of everything, made from the documents of v3.
//!
//! client-go, Helm, kustomize and older kubectls read it, most of them in protobuf.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use setpoint_kinds::table;

use super::Others;
use super::gnostic::{self, DEFINITIONS, PATHS};
use crate::definitions::Served;
use crate::response::{Body, respond as response};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// What built-in kinds put into the document, encoded: the members of two maps. Only custom resources change.
static BUILT_IN: LazyLock<Part> = LazyLock::new(|| {
    let groups = table().groups().iter();
    let versions = groups.flat_map(|group| group.versions.iter().map(|version| (group.name, *version)));
    Part::of(versions.map(|(group, version)| super::built_in_document(group, version)))
});

/// A part of the document.
#[derive(Debug, Default)]
pub(crate) struct Part {
    paths: Vec<Member>,
    definitions: Vec<Member>,
}

/// A member of a map, in both encodings.
#[derive(Debug)]
struct Member {
    name: String,
    json: String,
    protobuf: Vec<u8>,
}

impl Member {
    fn new(name: String, value: &Value, map: &gnostic::Map) -> Member {
        let mut protobuf = Vec::new();
        map.encode_entry(&name, value, &mut protobuf);
        Member { json: value.to_string(), protobuf, name }
    }
}

impl Part {
    /// What these documents of v3 say.
    fn of(documents: impl Iterator<Item = Value>) -> Part {
        let mut part = Part::default();
        let mut names = BTreeSet::new();
        for mut document in documents {
            let mut components = take(&mut document, "components");
            for (name, schema) in into_map(take(&mut components, "schemas")) {
                if names.insert(name.clone()) {
                    part.definitions.push(Member::new(name, &definition(schema), &DEFINITIONS));
                }
            }
            for (path, item) in into_map(take(&mut document, "paths")) {
                part.paths.push(Member::new(path, &path_item(item), &PATHS));
            }
        }
        part
    }

    /// What a document of v3 says that another server has written.
    pub(crate) fn foreign(document: Value) -> Part {
        Part::of(std::iter::once(document))
    }

    fn of_custom(served: &Served) -> Part {
        let groups =
            served.groups().flat_map(|(group, versions)| versions.into_iter().map(move |v| (group, v)));
        let documents = groups
            .filter(|(group, version)| !super::is_built_in(group, version))
            .map(|(group, version)| super::custom::document(served, group, version));
        Part::of(documents)
    }
}

/// All members of one map: of those with one name, the first.
fn members<'a>(parts: &[&'a Part], of: fn(&Part) -> &Vec<Member>) -> Vec<&'a Member> {
    let mut names = BTreeSet::new();
    let all = parts.iter().flat_map(|part| of(part));
    all.filter(|member| names.insert(member.name.as_str())).collect()
}

/// Takes a member out of a document that may be anything.
fn take(value: &mut Value, name: &str) -> Value {
    value.get_mut(name).map_or(Value::Null, Value::take)
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Answers `/openapi/v2`. The tag follows from the documents of v3, so nothing is made for a client that has the newest.
pub(super) fn respond(served: &Served, others: Others<'_>, headers: &HeaderMap) -> Response<Body> {
    let Some(is_protobuf) = wants_protobuf(headers) else {
        return response(StatusCode::NOT_ACCEPTABLE, "text/plain", "");
    };
    let hashes = super::built_in(others.is_alone)
        .chain(served.open_api_hashes())
        .map(|(path, hash)| format!("{path} {hash}\n"));
    let hashes = hashes.chain(others.backends.iter().map(|open_api| format!("{}\n", open_api.url)));
    let etag = format!("\"{}\"", super::hash(&hashes.collect::<String>()));
    let media_type = if is_protobuf { PROTOBUF } else { JSON };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == etag.as_bytes());
    let mut answer = if is_known {
        response(StatusCode::NOT_MODIFIED, media_type, "")
    } else {
        let custom = Part::of_custom(served);
        let built_in = (!others.is_alone).then(|| &*BUILT_IN);
        let own = built_in.into_iter().chain([&custom]);
        let parts: Vec<&Part> = own.chain(others.backends.iter().map(|open_api| &open_api.part)).collect();
        let document = if is_protobuf { protobuf(&parts) } else { text(&parts).into_bytes() };
        response(StatusCode::OK, media_type, document)
    };
    super::set(&mut answer, header::ETAG, &etag);
    super::set(&mut answer, header::VARY, "Accept");
    answer
}

/// Which of the two the client takes: the first that it names. None if neither.
fn wants_protobuf(headers: &HeaderMap) -> Option<bool> {
    let mut clauses =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if clauses.peek().is_none() {
        return Some(false);
    }
    clauses.flat_map(|value| value.split(',')).find_map(|clause| {
        match clause.split(';').next().unwrap_or_default().trim() {
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf" | PROTOBUF => Some(true),
            JSON | "application/*" | "*/*" => Some(false),
            _ => None,
        }
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": format!("v{}", table().kubernetes_version())})
}

fn text(parts: &[&Part]) -> String {
    let mut text = format!("{{\"swagger\":\"2.0\",\"info\":{},\"paths\":", info());
    append(&mut text, &members(parts, |part| &part.paths));
    text.push_str(",\"definitions\":");
    append(&mut text, &members(parts, |part| &part.definitions));
    text.push_str(
        ",\"securityDefinitions\":{\"BearerToken\":{\"description\":\"Bearer Token authentication\",\"type\":\
         \"apiKey\",\"name\":\"authorization\",\"in\":\"header\"}},\"security\":[{\"BearerToken\":[]}]}",
    );
    text
}

fn append(text: &mut String, members: &[&Member]) {
    for (at, member) in members.iter().enumerate() {
        text.push(if at == 0 { '{' } else { ',' });
        text.push_str(&format!("{}:{}", Value::from(member.name.as_str()), member.json));
    }
    text.push_str(if members.is_empty() { "{}" } else { "}" });
}

fn protobuf(parts: &[&Part]) -> Vec<u8> {
    let joined = |of: fn(&Part) -> &Vec<Member>| -> Vec<u8> {
        members(parts, of).iter().flat_map(|member| member.protobuf.iter().copied()).collect()
    };
    gnostic::document(&info(), &joined(|part| &part.paths), &joined(|part| &part.definitions))
}

/// What v2 cannot say, and what kube-apiserver leaves out of it.
const UNKNOWN: [&str; 6] = ["allOf", "anyOf", "oneOf", "not", "nullable", "default"];

/// A schema of v3 as one of v2.
fn definition(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else { return schema };
    let is = |fields: &Map<String, Value>, name: &str| fields.get(name) == Some(&Value::Bool(true));
    if let Some(name) = fields.get("allOf").and_then(|all| all[0]["$ref"].as_str()).map(local) {
        fields.insert("$ref".to_owned(), name.into());
    } else if let Some(name) = fields.get("$ref").and_then(Value::as_str).map(local) {
        fields.insert("$ref".to_owned(), name.into());
    }
    let is_either = !is(&fields, "x-kubernetes-int-or-string") && fields.contains_key("oneOf");
    if is_either && !fields.contains_key("type") {
        // Of a string and a number it is the string.
        fields.insert("type".to_owned(), "string".into());
    }
    let is_open = is(&fields, "x-kubernetes-preserve-unknown-fields");
    if is(&fields, "nullable") || is_open {
        // kubectl does not get along with more.
        fields.remove("items");
        fields.remove("properties");
    }
    let is_bare_list = fields.get("type") == Some(&"array".into()) && !fields.contains_key("items");
    if is(&fields, "nullable") || is_bare_list || is_open && fields.get("type") == Some(&"object".into()) {
        fields.remove("type");
    }
    require_less(&mut fields);
    UNKNOWN.iter().for_each(|name| drop(fields.remove(*name)));
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| *property = definition(property.take()));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(name) {
            *inner = definition(inner.take());
        }
    }
    Value::Object(fields)
}

/// What may be null cannot be asked for.
fn require_less(fields: &mut Map<String, Value>) {
    let nullable: Vec<Value> = fields
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| property["nullable"] == true)
        .map(|(name, _)| name.as_str().into())
        .collect();
    if nullable.is_empty() {
        return;
    }
    let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|name| !nullable.contains(name));
    if required.is_empty() {
        fields.remove("required");
    }
}

/// Where a schema of v3 is in v2.
fn local(reference: &str) -> String {
    reference.replace("#/components/schemas/", "#/definitions/")
}

/// A path of v3 as one of v2.
fn path_item(item: Value) -> Value {
    let mut fields = into_map(item);
    for (name, value) in &mut fields {
        *value = if name == "parameters" { parameters(value.take()) } else { operation(value.take()) };
    }
    Value::Object(fields)
}

fn parameters(given: Value) -> Value {
    let flat = |parameter: Value| {
        let mut fields = into_map(parameter);
        let schema = fields.remove("schema").map(into_map).unwrap_or_default();
        fields.extend(schema);
        Value::Object(fields)
    };
    match given {
        Value::Array(list) => list.into_iter().map(flat).collect(),
        other => other,
    }
}

fn operation(given: Value) -> Value {
    const PRODUCES: [&str; 3] = [JSON, "application/yaml", "application/vnd.kubernetes.protobuf"];
    let mut fields = into_map(given);
    let mut all = parameters(fields.remove("parameters").unwrap_or_else(|| json!([])));
    let mut consumes = json!(["*/*"]);
    if let Some(mut body) = fields.remove("requestBody") {
        let content = into_map(take(&mut body, "content"));
        consumes = content.keys().map(String::as_str).collect();
        if let Some(mut media) = content.into_iter().next().map(|(_, media)| media)
            && let Value::Array(list) = &mut all
        {
            let mut parameter =
                json!({"name": "body", "in": "body", "schema": definition(take(&mut media, "schema"))});
            if body["required"] == true {
                parameter["required"] = true.into();
            }
            list.insert(0, parameter);
        }
    }
    if let Some(Value::Object(responses)) = fields.get_mut("responses") {
        for answer in responses.values_mut() {
            let mut media = take(&mut take(answer, "content"), JSON);
            let schema = take(&mut media, "schema");
            if let Some(fields) = answer.as_object_mut() {
                fields.remove("content");
                if !schema.is_null() {
                    fields.insert("schema".to_owned(), definition(schema));
                }
            }
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    }
    fields.insert("parameters".to_owned(), all);
    fields.insert("consumes".to_owned(), consumes);
    fields.insert("produces".to_owned(), json!(PRODUCES));
    fields.insert("schemes".to_owned(), json!(["https"]));
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_to_a_definition() {
        let text = text(&[&BUILT_IN]);
        let document: Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains("#/components/"));
        for part in text.split("\"#/definitions/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["definitions"].get(name).is_some(), "{name}");
        }
        assert_eq!(document["definitions"].as_object().unwrap().len(), BUILT_IN.definitions.len());
    }

    #[test]
    fn another_server_can_say_anything_and_takes_no_names() {
        let wrong = [
            json!("x"),
            json!([1]),
            json!({"paths": "x", "components": []}),
            json!({"paths": {
            "/a": "x", "/b": {"get": "x"}, "/c": {"get": {"parameters": ["x", 1], "requestBody": "x", "responses": {"200": "x"}}},
            "/d": {"parameters": "x", "post": {"requestBody": {"content": {"m": "x"}}, "responses": {"200": {"content": "x"}}}},
        }, "components": {"schemas": {"a": "x", "b": {"allOf": 1, "properties": [], "items": 7, "required": "x"}}}}),
        ];
        for document in wrong {
            let part = Part::foreign(document.clone());
            let told = text(&[&BUILT_IN, &part]);
            assert!(serde_json::from_str::<Value>(&told).is_ok(), "{document}");
            protobuf(&[&part]);
        }
        let pod = "io.k8s.api.core.v1.Pod";
        let part = Part::foreign(json!({"components": {"schemas": {pod: {"description": "mine"}}}}));
        let told: Value = serde_json::from_str(&text(&[&BUILT_IN, &part, &part])).unwrap();
        assert_ne!(told["definitions"][pod]["description"], "mine");
    }

    #[test]
    fn schemas_say_what_version_2_can_say() {
        let given = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "object", "nullable": true, "properties": {"x": {"type": "string"}}},
            "b": {"allOf": [{"$ref": "#/components/schemas/B"}], "default": {}, "description": "text"},
            "c": {"type": "array", "items": {"$ref": "#/components/schemas/C"}, "x-kubernetes-list-type": "set"},
            "d": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "e": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "f": {"type": "object", "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
        }});
        let expect = json!({"type": "object", "required": ["b"], "properties": {
            "a": {},
            "b": {"$ref": "#/definitions/B", "description": "text"},
            "c": {"type": "array", "items": {"$ref": "#/definitions/C"}, "x-kubernetes-list-type": "set"},
            "d": {"x-kubernetes-preserve-unknown-fields": true},
            "e": {"x-kubernetes-int-or-string": true},
            "f": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        assert_eq!(definition(given), expect);
    }

    #[test]
    fn the_first_encoding_that_a_client_names_counts() {
        let asked =
            |accept: &str| wants_protobuf(&HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]));
        assert_eq!(wants_protobuf(&HeaderMap::new()), Some(false));
        assert_eq!(asked("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"), Some(true));
        assert_eq!(
            asked("application/json;q=1, application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
            Some(false)
        );
        assert_eq!(asked("*/*"), Some(false));
        assert_eq!(asked("text/html"), None);
    }
}
