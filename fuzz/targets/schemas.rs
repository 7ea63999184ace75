//! Structural schemas, and objects under them; printer columns and selectable fields. A definition is refused, or objects can
//! be written under it: what is pruned and defaulted once stays as it is.
//!
//! The input is JSON, `{"schema": …, "object": …, "columns": ["jsonPath", …], "fields": ["jsonPath", …]}`, or else the choices
//! that make it.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use setpoint_fuzz::{Api, JSON, Lab, any_json, start, without_server_fields};

fuzz_target!(|data: &[u8]| start(data, case));

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/example.org/v1/namespaces/default/bars";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn case(lab: &Lab, input: &[u8]) {
    let input = match input.first() {
        Some(b'{') => serde_json::from_slice(input).ok(),
        _ => any_input(&mut Unstructured::new(input)).ok(),
    };
    if let Some(input) = input {
        lab.block_on(define(&lab.fresh(), &input));
    }
}

async fn define(api: &Api, input: &Value) {
    let paths = |field: &str| input[field].as_array().into_iter().flatten().take(3).enumerate();
    let columns: Vec<Value> = paths("columns")
        .map(|(at, path)| json!({"name": format!("c{at}"), "type": "string", "jsonPath": path}))
        .collect();
    let fields: Vec<Value> = paths("fields").map(|(_, path)| json!({"jsonPath": path})).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bars.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": input["schema"]},
                "additionalPrinterColumns": columns, "selectableFields": fields,
            }],
        },
    });
    let answer = api.call("POST", DEFINITIONS, JSON, definition.to_string()).await;
    if !answer.is_ok() {
        assert_eq!(answer.json()["kind"], "Status");
        return;
    }
    let mut object = input["object"].clone();
    if !object.is_object() {
        object = json!({ "spec": object });
    }
    (object["apiVersion"], object["kind"]) = (json!("example.org/v1"), json!("Bar"));
    object["metadata"] = json!({"name": "a"});
    let answer = api.call("POST", BARS, JSON, object.to_string()).await;
    if !answer.is_ok() {
        assert_eq!(answer.json()["kind"], "Status");
        return;
    }
    let made = answer.json();
    // Rules may look at what there was before, so the same again is a new object and an update.
    let again = without_server_fields(&made);
    let put = api.call("PUT", &format!("{BARS}/a"), JSON, made.to_string()).await;
    if put.is_ok() {
        assert_eq!(without_server_fields(&put.json()), again, "an update with what is there changes nothing");
    }
    let mut other = again.clone();
    other["metadata"]["name"] = json!("b");
    let created = api.call("POST", BARS, JSON, other.to_string()).await;
    assert!(created.is_ok(), "{again} was made, and then {}", created.json());
    let mut created = without_server_fields(&created.json());
    created["metadata"]["name"] = json!("a");
    assert_eq!(created, again, "what was pruned and defaulted stays as it is");
    let table = api.ask("GET", BARS, TABLE, JSON, "").await.expect("it is a request").ok();
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(2), "{table}");
    for field in &fields {
        let name = field["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.');
        let name: String =
            percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string();
        let listed = api.get(&format!("{BARS}?fieldSelector={name}%3Da")).await;
        assert!(matches!(listed.code, 200 | 400), "{}", listed.json());
    }
    api.get("/openapi/v3/apis/example.org/v1").await.ok();
}

/// A definition and an object under it.
fn any_input(u: &mut Unstructured<'_>) -> Result<Value> {
    let mut schema = any_schema(u, 0)?;
    schema["type"] = json!("object");
    let mut object = any_under(u, &schema, 0)?;
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| !matches!(name.as_str(), "metadata" | "apiVersion" | "kind"));
    }
    let path = |u: &mut Unstructured<'_>| -> Result<Value> {
        let steps =
            [".spec", ".a", ".b", "[0]", "[*]", "..", "[?(@.a==1)]", "[1:2]", ".status", ".metadata.name"];
        let count = u.int_in_range(1..=4)?;
        Ok((0..count).map(|_| u.choose(&steps).copied()).collect::<Result<String>>()?.into())
    };
    Ok(json!({"schema": schema, "object": object, "columns": [path(u)?], "fields": [path(u)?]}))
}

const NAMES: &[&str] = &["spec", "a", "b", "c", "status", "metadata"];

fn any_schema(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let mut schema = Map::new();
    let types = ["object", "object", "array", "string", "integer", "number", "boolean"];
    let kind = *u.choose(&types[if depth > 4 { 3 } else { 0 }..])?;
    if u.ratio(15, 16)? {
        schema.insert("type".into(), kind.into());
    }
    match kind {
        "object" if u.ratio(1, 4)? => {
            schema.insert("additionalProperties".into(), any_schema(u, depth + 1)?);
        }
        "object" => {
            let count = u.int_in_range(0..=3)?;
            let field = |_| Ok(((*u.choose(NAMES)?).to_owned(), any_schema(u, depth + 1)?));
            schema.insert("properties".into(), Value::Object((0..count).map(field).collect::<Result<_>>()?));
        }
        "array" => {
            schema.insert("items".into(), any_schema(u, depth + 1)?);
        }
        _ => {}
    }
    let count = u.int_in_range(0..=3)?;
    for _ in 0..count {
        let (name, value) = any_keyword(u, depth)?;
        schema.insert(name.into(), value);
    }
    if u.ratio(1, 6)? {
        let default = any_under(u, &Value::Object(schema.clone()), depth)?;
        schema.insert("default".into(), default);
    }
    Ok(Value::Object(schema))
}

fn any_keyword(u: &mut Unstructured<'_>, depth: usize) -> Result<(&'static str, Value)> {
    let number =
        |u: &mut Unstructured<'_>| Ok(json!(*u.choose(&[0i64, 1, 2, -1, 10, i64::MAX, i64::MIN])?));
    let rules = [
        "true",
        "self == oldSelf",
        "has(self.a)",
        "self.size() < 3",
        "self > 1",
        "self.all(x, x == x)",
        "1/0 == 1",
        "self.a == self.b",
        "self.matches('a+')",
        "type(self) == int",
        "self + self == self",
    ];
    Ok(match u.int_in_range(0..=20)? {
        0 => ("nullable", json!(u.arbitrary::<bool>()?)),
        1 => ("x-kubernetes-preserve-unknown-fields", json!(true)),
        2 => ("x-kubernetes-int-or-string", json!(true)),
        3 => ("x-kubernetes-embedded-resource", json!(true)),
        4 => ("x-kubernetes-list-type", json!(u.choose(&["set", "map", "atomic", "x"])?)),
        5 => ("x-kubernetes-list-map-keys", json!([u.choose(NAMES)?])),
        6 => ("x-kubernetes-map-type", json!(u.choose(&["granular", "atomic"])?)),
        7 => ("required", json!([u.choose(NAMES)?])),
        8 => ("enum", json!([any_json(u, 7)?, any_json(u, 7)?])),
        9 => ("pattern", json!(u.choose(&["^a+$", "(", "[a-z]*", "a{1000}", "(?i)x", "\\d+"])?)),
        10 => (
            "format",
            json!(u.choose(&["date-time", "int32", "byte", "uri", "duration", "ipv4", "uuid", "x"])?),
        ),
        11 => ("minimum", number(u)?),
        12 => ("maximum", number(u)?),
        13 => ("multipleOf", number(u)?),
        14 => ("maxLength", number(u)?),
        15 => ("maxItems", number(u)?),
        16 => ("maxProperties", number(u)?),
        17 => ("uniqueItems", json!(u.arbitrary::<bool>()?)),
        18 if depth < 4 => ("anyOf", json!([any_schema(u, depth + 2)?, any_schema(u, depth + 2)?])),
        19 if depth < 4 => ("not", any_schema(u, depth + 2)?),
        _ => ("x-kubernetes-validations", json!([{"rule": u.choose(&rules)?}])),
    })
}

/// A value that a schema mostly takes.
fn any_under(u: &mut Unstructured<'_>, schema: &Value, depth: usize) -> Result<Value> {
    if u.ratio(1, 32)? || depth > 8 {
        return any_json(u, 7);
    }
    Ok(match schema["type"].as_str() {
        Some("object") => {
            let mut fields = Map::new();
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if u.ratio(3, 4)? {
                    fields.insert(name.clone(), any_under(u, schema, depth + 1)?);
                }
            }
            if schema["additionalProperties"].is_object() || u.ratio(1, 8)? {
                fields.insert(
                    (*u.choose(NAMES)?).into(),
                    any_under(u, &schema["additionalProperties"], depth + 1)?,
                );
            }
            Value::Object(fields)
        }
        Some("array") => {
            let count = u.int_in_range(0..=3)?;
            Value::Array(
                (0..count).map(|_| any_under(u, &schema["items"], depth + 1)).collect::<Result<_>>()?,
            )
        }
        Some("string") => json!(u.choose(&["", "a", "aaa", "2026-01-01T00:00:00Z", "YQ==", "x y", "1"])?),
        Some("integer") => json!(*u.choose(&[0i64, 1, -1, 7, i64::MAX])?),
        Some("number") => json!(u.arbitrary::<f64>()?),
        Some("boolean") => json!(u.arbitrary::<bool>()?),
        _ => any_json(u, 6)?,
    })
}
