//! Objects of any kind, made of the bytes of an input, and what is asked of them.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};
use setpoint_kinds::{FieldType, Resource, Type};

/// Texts that mean something somewhere.
const WORDS: &[&str] = &[
    "",
    "a",
    "web",
    "default",
    "kube-system",
    "a.b",
    "example.com/a",
    "A b",
    "-",
    "*",
    "TCP",
    "UDP",
    "Always",
    "Never",
    "OnFailure",
    "IfNotPresent",
    "RollingUpdate",
    "Recreate",
    "OnDelete",
    "ClusterIP",
    "NodePort",
    "LoadBalancer",
    "ExternalName",
    "None",
    "IPv4",
    "IPv6",
    "SingleStack",
    "PreferDualStack",
    "RequireDualStack",
    "10.96.0.7",
    "fd00::1",
    "0.0.0.0/0",
    "Exact",
    "Prefix",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Equal",
    "NoSchedule",
    "NoExecute",
    "PreferNoSchedule",
    "cpu",
    "memory",
    "hugepages-2Mi",
    "requests.cpu",
    "pods",
    "100m",
    "1Gi",
    "1e3",
    "9223372036854775807",
    "-1",
    "0",
    "50%",
    "101%",
    "*/5 * * * *",
    "@daily",
    "59 23 31 12 0",
    "Etc/UTC",
    "Allow",
    "Forbid",
    "Replace",
    "Indexed",
    "NonIndexed",
    "Opaque",
    "kubernetes.io/tls",
    "kubernetes.io/dockerconfigjson",
    "ReadWriteOnce",
    "Filesystem",
    "Block",
    "Delete",
    "Retain",
    "Immediate",
    "WaitForFirstConsumer",
    "get",
    "list",
    "nginx",
    "nginx:1",
    "/x",
    "../x",
    "http",
    "65536",
    "2026-01-01T00:00:00Z",
    "true",
    "!has(object.x)",
    "kubernetes",
    "Resource",
    "Pods",
    "External",
    "Utilization",
    "AverageValue",
    "Fail",
    "Ignore",
    "Cluster",
    "Namespaced",
    "v1",
    "apps",
    "apps/v1",
    "Deployment",
    "Pod",
    "{.spec.x}",
    "string",
    "object",
    "integer",
    "date-time",
];

/// Numbers that mean something somewhere.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    80,
    420,
    511,
    512,
    65_535,
    65_536,
    1_000_000,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// How deep objects are made; JSON schemas have no end of their own.
const DEEPEST: usize = 9;

/// Where the objects of a resource are written.
pub fn collection(resource: &Resource) -> String {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    let namespace = if resource.is_namespaced() { "/namespaces/default" } else { "" };
    format!("/{root}/{}{namespace}/{}", resource.api_version(), resource.plural)
}

/// An object of a kind, mostly in its form.
pub fn any_object(u: &mut Unstructured<'_>, resource: &Resource) -> Result<Value> {
    let mut fields = any_fields(u, resource.ty(), 0)?;
    fields.insert("apiVersion".into(), resource.api_version().into());
    fields.insert("kind".into(), resource.kind.into());
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if u.ratio(15, 16)? && metadata.is_object() {
        metadata["name"] = if u.ratio(7, 8)? { "a".into() } else { any_text(u)?.into() };
        for field in
            ["namespace", "generateName", "resourceVersion", "uid", "managedFields", "deletionTimestamp"]
        {
            metadata.as_object_mut().expect("it is one").remove(field);
        }
    }
    Ok(Value::Object(fields))
}

fn any_fields(u: &mut Unstructured<'_>, ty: &Type, depth: usize) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    for field in ty.fields() {
        let is_wanted = match field.required || matches!(field.name, "spec" | "template" | "selector") {
            true => u.ratio(15, 16)?,
            false => u.ratio(1, 5)?,
        };
        if u.is_empty() || depth == DEEPEST {
            break;
        }
        if is_wanted {
            fields.insert(field.name.to_owned(), any_value(u, &field.ty, depth + 1)?);
        }
    }
    Ok(fields)
}

/// A value that a field may have, or rarely one that it may not.
fn any_value(u: &mut Unstructured<'_>, ty: &FieldType, depth: usize) -> Result<Value> {
    if depth > DEEPEST || u.ratio(1, 64)? {
        return any_json(u, depth);
    }
    Ok(match ty {
        FieldType::String | FieldType::Quantity | FieldType::Time | FieldType::MicroTime => {
            any_text(u)?.into()
        }
        FieldType::Bool => u.arbitrary::<bool>()?.into(),
        FieldType::Int32 | FieldType::Int64 => any_number(u)?.into(),
        FieldType::Float64 => json!(u.arbitrary::<f64>()?),
        FieldType::Bytes => "YQ==".into(),
        FieldType::IntOrString if u.arbitrary()? => any_number(u)?.into(),
        FieldType::IntOrString => any_text(u)?.into(),
        FieldType::Struct(id) => Value::Object(any_fields(u, id.get(), depth)?),
        FieldType::List(item) | FieldType::WrappedList(item) => {
            let count = u.int_in_range(0..=3)?;
            Value::Array((0..count).map(|_| any_value(u, item, depth + 1)).collect::<Result<_>>()?)
        }
        FieldType::Map(item) => {
            let count = u.int_in_range(0..=3)?;
            let pair = |_| Ok((any_text(u)?, any_value(u, item, depth + 1)?));
            Value::Object((0..count).map(pair).collect::<Result<_>>()?)
        }
        _ => any_json(u, depth)?,
    })
}

/// Any JSON.
pub fn any_json(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match u.int_in_range(0..=7)? {
        0 => Value::Null,
        1 => u.arbitrary::<bool>()?.into(),
        2 => any_number(u)?.into(),
        3 => json!(u.arbitrary::<f64>()?),
        4 if depth < DEEPEST => {
            let count = u.int_in_range(0..=3)?;
            Value::Array((0..count).map(|_| any_json(u, depth + 1)).collect::<Result<_>>()?)
        }
        5 if depth < DEEPEST => {
            let count = u.int_in_range(0..=3)?;
            let pair = |_| Ok((any_text(u)?, any_json(u, depth + 1)?));
            Value::Object((0..count).map(pair).collect::<Result<_>>()?)
        }
        _ => any_text(u)?.into(),
    })
}

fn any_text(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(7, 8)? {
        return Ok((*u.choose(WORDS)?).to_owned());
    }
    u.arbitrary()
}

fn any_number(u: &mut Unstructured<'_>) -> Result<i64> {
    if u.ratio(3, 4)? { Ok(*u.choose(NUMBERS)?) } else { u.arbitrary() }
}

/// What a client sends to make the same object again.
pub fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"]
        {
            metadata.remove(field);
        }
    }
    object
}
