//! The paths of a resource, each with its verbs.

use serde_json::{Map, Value, json};
use setpoint_kinds::{Resource, Type, table};

use super::schema::{Schemas, refer};
use crate::definitions::{Custom, PART_VERBS};

/// Custom resources have no strategic merge.
const PATCHES: [&str; 2] = ["application/json-patch+json", "application/merge-patch+json"];
const TYPED_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// The paths of one document.
pub(super) struct Paths<'a> {
    pub(super) schemas: &'a mut Schemas,
    pub(super) paths: Map<String, Value>,
}

/// One operation, before it is written.
struct Operation<'a> {
    action: &'static str,
    /// Group, version and kind of what it is about.
    kind: [&'a str; 3],
    body: Body,
    /// The schema of the answer.
    answer: String,
    parameters: &'static [(&'static str, &'static str)],
}

/// What a request has for a body.
enum Body {
    None,
    /// Of one of these media types.
    Patch(&'static [&'static str]),
    /// Of this schema.
    Object(String),
}

const READ: &[(&str, &str)] = &[("resourceVersion", "string")];
const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

/// The group, the version and the name of the kind of `/scale`.
const SCALE: [&str; 3] = ["autoscaling", "v1", "Scale"];

impl Paths<'_> {
    /// Adds every path of a resource.
    pub(super) fn add(&mut self, resource: &'static Resource) {
        let root = format!("/{}", super::path_of(resource.group, resource.version));
        let scoped = if resource.is_namespaced() { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{scoped}/{}", resource.plural);
        let object = format!("{collection}/{{name}}");
        if resource.is_namespaced() && resource.has_verb("list") {
            self.operation(resource, &format!("{root}/{}", resource.plural), "get", "list");
        }
        for (method, verb) in [("get", "list"), ("post", "create"), ("delete", "deletecollection")] {
            if resource.has_verb(verb) {
                self.operation(resource, &collection, method, verb);
            }
        }
        for (method, verb) in [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")] {
            if resource.has_verb(verb) {
                self.operation(resource, &object, method, verb);
            }
        }
        for part in &resource.subresources {
            let path = format!("{object}/{}", part.name);
            let kind = [part.group, part.version, part.kind];
            for (method, verb) in [("get", "get"), ("post", "create"), ("put", "update"), ("patch", "patch")]
            {
                if part.verbs.contains(&verb) {
                    // Options of streams come in the query, and are no kind for a body.
                    let is_kind = !part.kind.ends_with("Options");
                    let name = if is_kind {
                        self.schemas.add_named(part.ty(), kind)
                    } else {
                        self.name_of(part.ty())
                    };
                    let operation = operation(verb, kind, &name, &name, &TYPED_PATCHES);
                    self.insert(&path, method, operation);
                }
            }
        }
    }

    /// Adds every path of a custom resource, whose schemas have these names.
    pub(super) fn add_custom(&mut self, custom: &Custom, object_schema: &str, list_schema: &str) {
        let root = format!("/{}", super::path_of(&custom.group, &custom.version));
        let scoped = if custom.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{scoped}/{}", custom.plural);
        let object = format!("{collection}/{{name}}");
        let kind = [&*custom.group, &*custom.version, &*custom.kind];
        let write = |verb: &str| operation(verb, kind, object_schema, list_schema, &PATCHES);
        if custom.namespaced {
            self.insert(&format!("{root}/{}", custom.plural), "get", write("list"));
        }
        for (method, verb) in [("get", "list"), ("post", "create"), ("delete", "deletecollection")] {
            self.insert(&collection, method, write(verb));
        }
        for (method, verb) in [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")] {
            self.insert(&object, method, write(verb));
        }
        let scale = self.scale_of(custom);
        for (name, kind, schema) in [
            custom.has_status.then_some(("status", kind, object_schema)),
            scale.as_deref().map(|schema| ("scale", SCALE, schema)),
        ]
        .into_iter()
        .flatten()
        {
            let path = format!("{object}/{name}");
            for verb in PART_VERBS {
                let method = if verb == "update" { "put" } else { verb };
                self.insert(&path, method, operation(verb, kind, schema, schema, &PATCHES));
            }
        }
    }

    fn scale_of(&mut self, custom: &Custom) -> Option<String> {
        custom.scale.as_ref()?;
        let scale = table().type_named("autoscaling.v1.Scale").expect("the table has it");
        Some(self.schemas.add_named(scale, SCALE))
    }

    /// The name of a type's schema, which is added.
    fn name_of(&mut self, ty: &'static Type) -> String {
        self.schemas.add(ty);
        ty.openapi_name()
    }

    fn operation(&mut self, resource: &'static Resource, path: &str, method: &str, verb: &str) {
        let kind = [resource.group, resource.version, resource.kind];
        let list = table().type_of_kind(resource.group, resource.version, &format!("{}List", resource.kind));
        let object = self.name_of(resource.ty());
        let list = match list {
            Some(list) if verb == "list" => self.name_of(list),
            _ => object.clone(),
        };
        self.insert(path, method, operation(verb, kind, &object, &list, &TYPED_PATCHES));
    }

    fn insert(&mut self, path: &str, method: &str, operation: Operation<'_>) {
        let entry = self.paths.entry(path).or_insert_with(|| json!({"parameters": path_parameters(path)}));
        entry[method] = operation.write(self.schemas);
    }
}

fn operation<'a>(
    verb: &str,
    kind: [&'a str; 3],
    object: &str,
    list: &str,
    patches: &'static [&'static str],
) -> Operation<'a> {
    let (ty, list) = (object.to_owned(), list.to_owned());
    let meta = |name: &str| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
    let (action, body, answer, parameters) = match verb {
        "get" => ("get", Body::None, ty, READ),
        "list" => ("list", Body::None, list, LIST),
        "create" => ("post", Body::Object(ty.clone()), ty, WRITE),
        "update" => ("put", Body::Object(ty.clone()), ty, WRITE),
        "patch" => ("patch", Body::Patch(patches), ty, PATCH),
        "delete" => ("delete", Body::Object(meta("DeleteOptions")), meta("Status"), DELETE),
        _ => ("deletecollection", Body::Object(meta("DeleteOptions")), meta("Status"), DELETE),
    };
    Operation { action, kind, body, answer, parameters }
}

impl Operation<'_> {
    fn write(self, schemas: &mut Schemas) -> Value {
        let [group, version, kind] = self.kind;
        let parameter = |(name, kind): &(&str, &str)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}});
        let mut operation = json!({
            "parameters": self.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK", "content": {"application/json": {
                "schema": refer(&self.answer)}}}},
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        match self.body {
            Body::None => {}
            Body::Patch(media_types) => {
                let schema = json!({"schema": schemas.patch()});
                let content = media_types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone()));
                let content: Map<String, Value> = content.collect();
                operation["requestBody"] = json!({"content": content, "required": true});
            }
            Body::Object(name) => {
                operation["requestBody"] = json!({"content": {"*/*": {"schema": refer(&name)}}});
                if !self.action.starts_with("delete") {
                    operation["requestBody"]["required"] = true.into();
                }
            }
        }
        operation
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let parameter = |name: &str, place: &str| {
        let mut parameter =
            json!({"name": name, "in": place, "schema": {"type": "string", "uniqueItems": true}});
        if place == "path" {
            parameter["required"] = true.into();
        }
        parameter
    };
    let mut parameters = Vec::new();
    for name in ["name", "namespace"] {
        if path.contains(&format!("{{{name}}}")) {
            parameters.push(parameter(name, "path"));
        }
    }
    parameters.push(parameter("pretty", "query"));
    parameters
}
