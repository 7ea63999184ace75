//! What the generated types hold and say.

use serde_json::{Value, json};
use setpoint_codegen::{Definition, crd};

use crate::kitchen_sink::{v1, v1beta1};

fn original() -> anyhow::Result<Value> {
    Ok(serde_saphyr::from_str(include_str!("../data/kitchen_sink.yaml"))?)
}

/// The schema of a version that was made from the types again.
fn again(version: usize) -> anyhow::Result<Value> {
    let merged = crd::merge(vec![crd::of::<v1::Sink>()?, crd::of::<v1beta1::Sink>()?])?;
    Ok(serde_json::to_value(&merged.spec.versions[version])?)
}

/// What types cannot say differs in the ways that docs/codegen.md lists; bring both to one form.
fn normal(mut schema: Value) -> Value {
    fn walk(schema: &mut Value) {
        if let Some(map) = schema.as_object_mut() {
            let is_number = matches!(map.get("type").and_then(Value::as_str), Some("integer" | "number"));
            let is_implied = matches!(map.get("format").and_then(Value::as_str), Some("int64" | "double"));
            if is_number && is_implied {
                map.remove("format");
            }
            if map.get("x-kubernetes-int-or-string").is_some() {
                map.remove("anyOf");
            }
            if map.get("properties").is_some_and(|properties| properties == &json!({})) {
                map.remove("properties");
            }
            if let Some(Value::Array(required)) = map.get_mut("required") {
                required.sort_by_key(|name| name.as_str().map(str::to_owned));
            }
            for key in ["minimum", "maximum", "multipleOf"] {
                if let Some(number) = map.get(key).and_then(Value::as_f64) {
                    map.insert(key.to_owned(), number.into());
                }
            }
            map.values_mut().for_each(walk);
        } else if let Some(items) = schema.as_array_mut() {
            items.iter_mut().for_each(walk);
        }
    }
    walk(&mut schema);
    for name in ["apiVersion", "kind", "metadata"] {
        schema["properties"].as_object_mut().map(|properties| properties.remove(name));
    }
    schema
}

#[test]
fn the_crd_of_the_types_is_the_one_that_they_came_from() -> anyhow::Result<()> {
    for version in [0, 1] {
        let (from, to) = (original()?["spec"]["versions"][version].clone(), again(version)?);
        for key in ["name", "served", "storage", "deprecated", "deprecationWarning", "subresources"] {
            assert_eq!(from.get(key), to.get(key), "{key}");
        }
        for key in ["selectableFields", "additionalPrinterColumns"] {
            assert_eq!(from.get(key), to.get(key), "{key}");
        }
        let schema = |version: &Value| normal(version["schema"]["openAPIV3Schema"].clone());
        let (from, to) = (schema(&from), schema(&to));
        assert_eq!(serde_json::to_string_pretty(&from)?, serde_json::to_string_pretty(&to)?);
    }
    Ok(())
}

#[test]
fn an_object_comes_back_as_it_went_in() -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "kitchen.k8s.io/v1",
        "kind": "Sink",
        "metadata": {"name": "a"},
        "spec": {
            "name": "a", "color": "x-y", "shade": "dark", "replicas": 3, "bytes": 8_589_934_592_i64, "ratio": 0.5,
            "big": true, "greeting": "hello", "maybe": null, "type": "t", "$ref": "r", "x-y": "dash", "x_y": "under",
            "self": "s", "async": true, "1st": "first", "podCIDRs": ["10.0.0.0/8"],
            "ports": [{"port": 80, "protocol": "TCP"}, {"port": "http", "protocol": "UDP"}],
            "size": 8_589_934_592_i64, "limit": "10%", "labels": {"a": "b"}, "free": {"x": [1, null, {"y": 1.5}]},
            "raw": {"deep": {"er": []}}, "anything": [1, "two"],
            "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
            "half": {"known": "k", "unknown": {"kept": true}}, "empty": {}, "strategy": {"kind": "Recreate"},
            "matrix": [[1, 2], [3]], "template": {"selector": {"matchLabels": {"a": "b"}}},
        },
        "status": {"replicas": 3},
    });
    let sink: v1::Sink = serde_json::from_value(object.clone())?;
    assert_eq!(sink.spec.replicas, 3);
    assert_eq!(sink.spec.r#type.as_deref(), Some("t"));
    assert_eq!(serde_json::to_value(&sink)?, object);
    Ok(())
}

#[test]
fn what_is_left_out_has_its_default() -> anyhow::Result<()> {
    let spec: v1::SinkSpec = serde_json::from_value(json!({
        "name": "a", "color": "red", "maybe": null, "empty": {}, "template": {"selector": {}}
    }))?;
    assert_eq!(spec.replicas, 1);
    assert_eq!(spec.shade, v1::SinkSpecShade::Light);
    assert_eq!(spec.greeting, "say \"hi\"\n");
    assert_eq!(spec.limit, v1::IntOrString::String("10%".to_owned()));
    assert_eq!(v1::SinkSpecStrategy::default().kind, v1::SinkSpecStrategyKind::Rolling);
    Ok(())
}

#[test]
fn an_object_of_other_fields_than_spec_and_status_has_them_all() -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "kitchen.k8s.io/v1beta1",
        "kind": "Sink",
        "metadata": {"name": "a"},
        "spec": {"free": {"form": 1}},
        "operation": {"sync": true},
        "status": {"phase": "Done"},
    });
    let sink: v1beta1::Sink = serde_json::from_value(object.clone())?;
    assert_eq!(sink.spec.operation.as_ref().and_then(|operation| operation.sync), Some(true));
    assert_eq!(serde_json::to_value(&sink)?, object);
    Ok(())
}

#[test]
fn schemas_that_are_the_same_share_a_type() {
    let template = v1::SinkSpecTemplate::default();
    let selectors = [Some(template.selector), template.also];
    assert_eq!(selectors.len(), 2);
}

#[test]
fn the_crd_of_generated_types_can_be_read_again() -> anyhow::Result<()> {
    let merged = crd::merge(vec![crd::of::<v1::Sink>()?, crd::of::<v1beta1::Sink>()?])?;
    let definition = Definition::from_value(&serde_json::to_value(&merged)?)?;
    assert_eq!(definition.versions.len(), 2);
    Ok(())
}
