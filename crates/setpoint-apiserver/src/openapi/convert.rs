//! A document of v2 as one of v3: what servers on older libraries have is told in both forms all the same.
//!
//! Somebody else has written it: nothing here takes anything for granted.

use serde_json::{Map, Value, json};

/// A document of v3 that says what this one of v2 does, as far as clients ask.
pub(crate) fn converted(mut document: Value) -> Value {
    let mut take = |name: &str| document.get_mut(name).map_or(Value::Null, Value::take);
    let (info, paths, definitions) = (take("info"), take("paths"), take("definitions"));
    let mut converted = json!({
        "openapi": "3.0.0", "info": info,
        "paths": each(paths, path_item), "components": {"schemas": map(definitions)},
    });
    lead(&mut converted);
    converted
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn each(value: Value, change: fn(Value) -> Value) -> Map<String, Value> {
    map(value).into_iter().map(|(name, value)| (name, change(value))).collect()
}

/// Lets references lead to where definitions are in v3.
fn lead(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "$ref" => {
                        *text = text.replace("#/definitions/", "#/components/schemas/");
                    }
                    value => lead(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(lead),
        _ => {}
    }
}

fn path_item(item: Value) -> Value {
    let mut fields = map(item);
    for (name, value) in &mut fields {
        *value = match name.as_str() {
            "parameters" => parameters(value.take()).0,
            name if name.starts_with("x-") => value.take(),
            _ => operation(value.take()),
        };
    }
    Value::Object(fields)
}

/// Those that are no body, and the schema of the one that is.
fn parameters(given: Value) -> (Value, Option<Map<String, Value>>) {
    let Value::Array(list) = given else { return (json!([]), None) };
    let (bodies, others): (Vec<_>, Vec<_>) = list.into_iter().partition(|one| one["in"] == "body");
    let others = others.into_iter().map(|parameter| {
        let mut schema = map(parameter);
        let mut fields = Map::new();
        for name in ["name", "in", "description", "required", "$ref"] {
            if let Some(value) = schema.remove(name) {
                fields.insert(name.to_owned(), value);
            }
        }
        if !schema.is_empty() {
            fields.insert("schema".to_owned(), schema.into());
        }
        Value::Object(fields)
    });
    (others.collect(), bodies.into_iter().next().map(map))
}

/// A schema for each of these media types.
fn content(media: Option<Value>, schema: &Value) -> Map<String, Value> {
    let types = media.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    types.iter().filter_map(Value::as_str).map(|one| (one.to_owned(), json!({"schema": schema}))).collect()
}

fn operation(given: Value) -> Value {
    let mut fields = map(given);
    let (consumes, produces) = (fields.remove("consumes"), fields.remove("produces"));
    fields.remove("schemes");
    let (parameters, body) = parameters(fields.remove("parameters").unwrap_or_default());
    fields.insert("parameters".to_owned(), parameters);
    if let Some(mut body) = body {
        let schema = body.remove("schema").unwrap_or_default();
        let mut told = json!({"content": content(consumes, &schema)});
        if let Some(required) = body.remove("required") {
            told["required"] = required;
        }
        fields.insert("requestBody".to_owned(), told);
    }
    if let Some(Value::Object(responses)) = fields.get_mut("responses") {
        for answer in responses.values_mut().filter_map(Value::as_object_mut) {
            if let Some(schema) = answer.remove("schema") {
                answer.insert("content".to_owned(), content(produces.clone(), &schema).into());
            }
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_v2_says_the_same_in_v3() {
        let reference = json!({"$ref": "#/definitions/Thing"});
        let given = json!({"swagger": "2.0", "info": {"title": "a"},
            "paths": {"/apis/a/v1/things": {
                "post": {"operationId": "createThing", "consumes": ["*/*"], "produces": ["application/json"], "schemes": ["https"],
                    "x-kubernetes-group-version-kind": {"group": "a", "version": "v1", "kind": "Thing"},
                    "parameters": [{"name": "body", "in": "body", "required": true, "schema": reference},
                        {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": true, "description": "d"}],
                    "responses": {"200": {"description": "OK", "schema": reference}, "401": {"description": "no"}}},
                "parameters": [{"name": "pretty", "in": "query", "type": "string"}],
            }},
            "definitions": {"Thing": {"type": "object", "properties": {"next": reference}}}});
        let reference = json!({"$ref": "#/components/schemas/Thing"});
        let expect = json!({"openapi": "3.0.0", "info": {"title": "a"},
            "paths": {"/apis/a/v1/things": {
                "post": {"operationId": "createThing",
                    "x-kubernetes-group-version-kind": {"group": "a", "version": "v1", "kind": "Thing"},
                    "parameters": [{"name": "dryRun", "in": "query", "description": "d",
                        "schema": {"type": "string", "uniqueItems": true}}],
                    "requestBody": {"required": true, "content": {"*/*": {"schema": reference}}},
                    "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}},
                        "401": {"description": "no"}}},
                "parameters": [{"name": "pretty", "in": "query", "schema": {"type": "string"}}],
            }},
            "components": {"schemas": {"Thing": {"type": "object", "properties": {"next": reference}}}}});
        assert_eq!(converted(given), expect);
    }

    #[test]
    fn whatever_it_is_it_becomes_a_document() {
        for wrong in [
            json!("x"),
            json!([1]),
            json!({"paths": "x", "definitions": []}),
            json!({"paths": {"/a": "x", "/b": {"get": {"parameters": "x", "responses": {"200": "x"}, "consumes": 7},
                "parameters": [1, {"in": "body"}]}}}),
        ] {
            assert_eq!(converted(wrong.clone())["openapi"], "3.0.0", "{wrong}");
        }
    }
}
