//! Types of the table → OpenAPI schemas.

use serde_json::{Map, Value, json};
use setpoint_kinds::{Field, FieldDefault, FieldType, ListType, MapType, Resource, Type, table};

use super::descriptions::Descriptions;

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The schemas of one document: what its kinds need, and what that needs.
pub(super) struct Schemas {
    descriptions: Descriptions,
    schemas: Map<String, Value>,
    /// Referred to, but not written yet.
    wanted: Vec<&'static Type>,
}

/// A reference to a schema by its name.
pub(super) fn refer(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Adds what every document has: how objects are deleted, and what is answered if something goes wrong.
pub(super) fn add_answers(schemas: &mut Schemas) {
    let named = |name| table().type_named(name).expect("the table has it");
    schemas.add(named("meta.v1.DeleteOptions"));
    schemas.add_named(named("meta.v1.Status"), ["", "v1", "Status"]);
}

impl Schemas {
    pub(super) fn new(descriptions: Descriptions) -> Schemas {
        Schemas { descriptions, schemas: Map::new(), wanted: Vec::new() }
    }

    /// Adds the kind of a resource.
    pub(super) fn add_kind(&mut self, resource: &'static Resource) {
        let list_kind = format!("{}List", resource.kind);
        let list = table().type_of_kind(resource.group, resource.version, &list_kind);
        let lists = list.filter(|_| resource.has_verb("list")).map(|ty| (ty, list_kind.as_str()));
        for (ty, kind) in [(resource.ty(), resource.kind)].into_iter().chain(lists) {
            self.add_named(ty, [resource.group, resource.version, kind]);
        }
    }

    /// Adds a type, and says which kind it is: group, version and name. Gives the name of the schema.
    pub(super) fn add_named(&mut self, ty: &'static Type, kind: [&str; 3]) -> String {
        self.add(ty);
        let name = ty.openapi_name();
        let [group, version, kind] = kind;
        self.schemas[&name]["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": kind}]);
        name
    }

    /// Adds a schema that is no type of the table.
    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.schemas.insert(name, schema);
    }

    /// What a type of the table is for, or one of its fields.
    pub(super) fn describe(&self, name: &str, field: &str) -> Option<String> {
        self.descriptions.of_field(name, field)
    }

    /// Adds a type, and what it needs.
    pub(super) fn add(&mut self, ty: &'static Type) {
        self.wanted.push(ty);
        while let Some(ty) = self.wanted.pop() {
            let name = ty.openapi_name();
            if !self.schemas.contains_key(&name) {
                // Its place is taken first: a type may refer to itself.
                self.schemas.insert(name.clone(), Value::Null);
                let schema = self.object(ty);
                self.schemas.insert(name, schema);
            }
        }
    }

    /// A reference to the schema of patches, which can be anything.
    pub(super) fn patch(&mut self) -> Value {
        self.named(PATCH, json!({"type": "object"}))
    }

    pub(super) fn into_map(self) -> Map<String, Value> {
        self.schemas
    }

    fn object(&mut self, ty: &'static Type) -> Value {
        let name = ty.openapi_name();
        let mut properties = Map::new();
        for field in ty.fields() {
            let mut property = self.property(field);
            if let Some(description) = self.descriptions.of_field(&name, field.name) {
                property["description"] = description.into();
            }
            properties.insert(field.name.to_owned(), property);
        }
        let required: Vec<_> = ty.fields().iter().filter(|field| field.required).map(|f| f.name).collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if let Some(description) = self.descriptions.of_type(&name) {
            schema["description"] = description.into();
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if let Some(map_type) = ty.map_type {
            schema["x-kubernetes-map-type"] = map_text(map_type).into();
        }
        schema
    }

    fn property(&mut self, field: &Field) -> Value {
        let mut schema = self.value(&field.ty);
        if schema.get("$ref").is_some() {
            // Nothing may stand beside a reference.
            schema = json!({"allOf": [schema]});
        }
        match field.default {
            FieldDefault::None => {}
            FieldDefault::Zero => schema["default"] = zero(&field.ty),
            FieldDefault::Json(text) => {
                schema["default"] = serde_json::from_str(text).unwrap_or_else(|_| text.into());
            }
        }
        if !field.patch_strategy.is_empty() {
            schema["x-kubernetes-patch-strategy"] = field.patch_strategy.into();
        }
        if let Some(key) = field.patch_merge_key {
            schema["x-kubernetes-patch-merge-key"] = key.into();
        }
        if let Some(list_type) = field.list_type {
            schema["x-kubernetes-list-type"] = list_text(list_type).into();
        }
        let keys: Vec<_> = field.list_map_keys().collect();
        if !keys.is_empty() {
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
        if let Some(map_type) = field.map_type {
            schema["x-kubernetes-map-type"] = map_text(map_type).into();
        }
        schema
    }

    fn value(&mut self, ty: &FieldType) -> Value {
        match ty {
            FieldType::String => json!({"type": "string"}),
            FieldType::Bool => json!({"type": "boolean"}),
            FieldType::Int32 => json!({"type": "integer", "format": "int32"}),
            FieldType::Int64 => json!({"type": "integer", "format": "int64"}),
            FieldType::Float64 => json!({"type": "number", "format": "double"}),
            FieldType::Bytes => json!({"type": "string", "format": "byte"}),
            FieldType::Quantity => {
                self.named(QUANTITY, json!({"oneOf": [{"type": "string"}, {"type": "number"}]}))
            }
            FieldType::IntOrString => self.named(
                INT_OR_STRING,
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            FieldType::Time => self.named(TIME, json!({"type": "string", "format": "date-time"})),
            FieldType::MicroTime => self.named(MICRO_TIME, json!({"type": "string", "format": "date-time"})),
            FieldType::RawExtension => self.named(RAW_EXTENSION, json!({"type": "object"})),
            FieldType::FieldsV1 => self.named(FIELDS_V1, json!({"type": "object"})),
            FieldType::Json => self.named(&format!("{EXTENSIONS}.JSON"), json!({})),
            FieldType::SchemaOrBool => self.named(&format!("{EXTENSIONS}.JSONSchemaPropsOrBool"), json!({})),
            FieldType::SchemaOrArray => {
                self.named(&format!("{EXTENSIONS}.JSONSchemaPropsOrArray"), json!({}))
            }
            FieldType::SchemaOrStrings => {
                self.named(&format!("{EXTENSIONS}.JSONSchemaPropsOrStringArray"), json!({}))
            }
            FieldType::Struct(id) => {
                self.wanted.push(id.get());
                refer(&id.get().openapi_name())
            }
            FieldType::List(item) | FieldType::WrappedList(item) => {
                json!({"type": "array", "items": self.value(item)})
            }
            FieldType::Map(item) => json!({"type": "object", "additionalProperties": self.value(item)}),
            _ => json!({}),
        }
    }

    /// A reference to a schema that is no struct.
    fn named(&mut self, name: &str, mut schema: Value) -> Value {
        if !self.schemas.contains_key(name) {
            if let Some(description) = self.descriptions.of_type(name) {
                schema["description"] = description.into();
            }
            self.schemas.insert(name.to_owned(), schema);
        }
        refer(name)
    }
}

fn zero(ty: &FieldType) -> Value {
    match ty {
        FieldType::String => "".into(),
        FieldType::Bool => false.into(),
        FieldType::Int32 | FieldType::Int64 | FieldType::Float64 | FieldType::IntOrString => 0.into(),
        _ => json!({}),
    }
}

fn list_text(list_type: ListType) -> &'static str {
    match list_type {
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map => "map",
    }
}

fn map_text(map_type: MapType) -> &'static str {
    match map_type {
        MapType::Atomic => "atomic",
        MapType::Granular => "granular",
    }
}
