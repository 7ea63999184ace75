//! A Rust type → a kind that is served.

use std::any::type_name;

use kube::Resource as KubeResource;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::resource::{Made, Resource, Source};
use std::sync::Arc;

/// The verbs of what others may only read.
const READ: &str = "get,list,watch";
const MADE: &str = "get,list";
/// Says which verbs a kind has, where it has not all.
pub(crate) const VERBS: &str = "extension.setpoint/verbs";

/// A kind, and where its objects are.
pub struct Kind {
    group: String,
    plural: String,
    kind: String,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    is_namespaced: bool,
    versions: Vec<Version>,
    verbs: Option<&'static str>,
    source: Option<Arc<dyn Source>>,
}

/// One version of a kind; the first one is what objects are kept in.
struct Version {
    name: String,
    schema: Value,
    columns: Vec<Value>,
    has_status: bool,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Kind {
    /// Objects that this server keeps, and that clients create, change and delete.
    pub fn stored<K: KubeResource<DynamicType = ()> + JsonSchema>() -> Kind {
        Kind::new::<K>(None, None)
    }

    /// Objects that your program [tells](super::ExtensionServer::tell), and that others only read and watch.
    pub fn told<K: KubeResource<DynamicType = ()> + JsonSchema>() -> Kind {
        Kind::new::<K>(Some(READ), None)
    }

    /// Objects that are made when somebody asks for them.
    pub fn made<R: Resource>(resource: R) -> Kind {
        Kind::new::<R::Object>(Some(MADE), Some(Arc::new(Made(resource))))
    }

    fn new<K>(verbs: Option<&'static str>, source: Option<Arc<dyn Source>>) -> Kind
    where
        K: KubeResource<DynamicType = ()> + JsonSchema,
    {
        let kind = K::kind(&()).into_owned();
        Kind {
            group: K::group(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            is_namespaced: type_name::<K::Scope>().contains("Namespace"),
            versions: vec![Version::of::<K>()],
            kind,
            verbs,
            source,
        }
    }

    /// Another version, with the same fields: objects are served in both as they are.
    #[must_use]
    pub fn version<K: KubeResource<DynamicType = ()> + JsonSchema>(mut self) -> Kind {
        self.versions.push(Version::of::<K>());
        self
    }

    /// A short name for kubectl.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Kind {
        self.short_names.push(name.into());
        self
    }

    /// A group of kinds that kubectl knows by one name, as `all`.
    #[must_use]
    pub fn category(mut self, name: impl Into<String>) -> Kind {
        self.categories.push(name.into());
        self
    }

    /// A column of `kubectl get`, in the version that was named last: its title, its type (`string`, `integer`, `number`,
    /// `boolean`, `date`) and where its value is (`.spec.color`).
    #[must_use]
    pub fn column(mut self, title: &str, ty: &str, path: &str) -> Kind {
        if let Some(version) = self.versions.last_mut() {
            version.columns.push(json!({"name": title, "type": ty, "jsonPath": path}));
        }
        self
    }

    /// The status is written through a path of its own.
    #[must_use]
    pub fn status(mut self) -> Kind {
        self.versions.iter_mut().for_each(|version| version.has_status = true);
        self
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// `flunders.wardle.example.com`.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    pub(super) fn into_source(self) -> Option<((String, String), Arc<dyn Source>)> {
        Some(((self.group, self.plural), self.source?))
    }

    /// The kind as a definition.
    pub(super) fn definition(&self) -> Value {
        let versions: Vec<Value> =
            self.versions.iter().enumerate().map(|(at, one)| one.definition(at == 0)).collect();
        let mut annotations =
            json!({"api-approved.kubernetes.io": "unapproved, served by an extension server"});
        if let Some(verbs) = self.verbs {
            annotations[VERBS] = verbs.into();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name(), "annotations": annotations},
            "spec": {
                "group": self.group,
                "scope": if self.is_namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "plural": self.plural, "singular": self.singular, "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "shortNames": self.short_names, "categories": self.categories,
                },
                "versions": versions,
            },
        })
    }
}

impl Version {
    fn of<K: KubeResource<DynamicType = ()> + JsonSchema>() -> Version {
        let settings = SchemaSettings::openapi3()
            .with(|settings| {
                settings.inline_subschemas = true;
                settings.meta_schema = None;
            })
            .with_transform(StructuralSchemaRewriter);
        let mut schema = Value::from(settings.into_generator().into_root_schema_for::<K>());
        // What every object has is the server's business.
        let fields = schema.as_object_mut();
        if let Some(fields) = fields {
            fields.remove("title");
            fields.remove("$schema");
            if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| !matches!(name.as_str(), Some("metadata" | "apiVersion" | "kind")));
            }
            let properties = fields.entry("properties").or_insert_with(|| Map::new().into());
            if let Some(properties) = properties.as_object_mut() {
                properties.insert("metadata".to_owned(), json!({"type": "object"}));
            }
        }
        Version { name: K::version(&()).into_owned(), schema, columns: Vec::new(), has_status: false }
    }

    fn definition(&self, is_stored: bool) -> Value {
        let mut version = json!({
            "name": self.name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": self.schema},
            "additionalPrinterColumns": self.columns,
        });
        if self.has_status {
            version["subresources"] = json!({"status": {}});
        }
        version
    }
}
