//! A Rust type → a kind that is served.

use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource as KubeResource;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::program::{Program, VersionCode, encode};
use super::source::Made;
use super::{Invalid, Object, Resource, Subresource, Verbs};

/// A kind, and where its objects are. `K` is the type that objects are kept in.
pub struct Kind<K> {
    declared: Declared,
    kept_as: PhantomData<fn() -> K>,
}

/// A [`Kind`] of any type.
pub(super) struct Declared {
    group: String,
    plural: String,
    kind: String,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    is_namespaced: bool,
    versions: Vec<Version>,
    pub(super) program: Program,
}

/// One version of a kind; the first one is what objects are kept in.
struct Version {
    name: String,
    schema: Value,
    columns: Vec<Value>,
    fields: Vec<Value>,
    has_status: bool,
}

impl<K> std::fmt::Debug for Kind<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("name", &self.declared.name()).finish_non_exhaustive()
    }
}

impl<K: Object> Kind<K> {
    /// Objects that this server keeps, and that clients create, change and delete.
    pub fn stored() -> Kind<K> {
        Kind::of(Program::new::<K>(Verbs::ALL, None))
    }

    /// Objects that your program [tells](super::ExtensionServer::tell), and that others only read and watch.
    pub fn told() -> Kind<K> {
        Kind::of(Program::new::<K>(Verbs::READ.watch(), None))
    }

    /// Objects that are yours: you keep them, or make them when somebody asks.
    pub fn made<R: Resource<Object = K>>(resource: R) -> Kind<K> {
        Kind::of(Program::new::<K>(R::VERBS, Some(Arc::new(Made(resource)))))
    }

    fn of(program: Program) -> Kind<K> {
        let kind = K::kind(&()).into_owned();
        let declared = Declared {
            group: K::group(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            is_namespaced: is_namespaced::<K>(),
            versions: vec![Version::of::<K>()],
            kind,
            program,
        };
        Kind { declared, kept_as: PhantomData }
    }

    /// Another version, with the same fields: objects are served in both as they are.
    #[must_use]
    pub fn version<V: Object>(self) -> Kind<K> {
        self.with_version::<V>(VersionCode::plain::<V>())
    }

    /// Another version, of a type that objects are converted to and from. What is written in it is defaulted and validated as the
    /// type that is kept.
    #[must_use]
    pub fn converted<V: Object + From<K>>(self) -> Kind<K>
    where
        K: From<V>,
    {
        self.with_version::<V>(VersionCode::converted::<V, K>())
    }

    fn with_version<V: Object>(mut self, code: VersionCode) -> Kind<K> {
        let mut version = Version::of::<V>();
        version.has_status = self.declared.versions[0].has_status;
        self.declared.program.versions.insert(version.name.clone(), code);
        self.declared.versions.push(version);
        self
    }

    /// Fills in what a client has left out. It is called more than once for one object, and must not change what it has
    /// made itself. Constants can also be `#[serde(default)]`s of the type, which `kubectl explain` knows.
    #[must_use]
    pub fn defaults(mut self, defaults: impl Fn(&mut K) + Send + Sync + 'static) -> Kind<K> {
        self.declared.program.defaults = Some(Box::new(move |value| {
            let mut object = K::deserialize(&*value)?;
            defaults(&mut object);
            *value = encode(&object)?;
            Ok(())
        }));
        self
    }

    /// What is wrong with an object that fits its schema, and with its change from the old state, if there is one.
    #[must_use]
    pub fn validation(
        mut self,
        validation: impl Fn(&K, Option<&K>) -> Vec<Invalid> + Send + Sync + 'static,
    ) -> Kind<K> {
        self.declared.program.validation = Some(Box::new(move |new, old| {
            let old = old.map(K::deserialize).transpose()?;
            Ok(validation(&K::deserialize(new)?, old.as_ref()))
        }));
        self
    }

    /// A path below its objects that you answer.
    #[must_use]
    pub fn subresource(mut self, subresource: Subresource) -> Kind<K> {
        let name = subresource.name.clone();
        self.declared.program.subresources.insert(name, Arc::new(subresource));
        self
    }

    /// A short name for kubectl.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Kind<K> {
        self.declared.short_names.push(name.into());
        self
    }

    /// A group of kinds that kubectl knows by one name, as `all`.
    #[must_use]
    pub fn category(mut self, name: impl Into<String>) -> Kind<K> {
        self.declared.categories.push(name.into());
        self
    }

    /// A column of `kubectl get`, in the version that was named last: its title, its type (`string`, `integer`, `number`,
    /// `boolean`, `date`) and where its value is (`.spec.color`).
    #[must_use]
    pub fn column(mut self, title: &str, ty: &str, path: &str) -> Kind<K> {
        let column = json!({"name": title, "type": ty, "jsonPath": path});
        self.declared.last_version().columns.push(column);
        self
    }

    /// A field that objects can be selected by (`--field-selector spec.color=red`), in the version that was named last: `.spec.color`.
    #[must_use]
    pub fn selectable(mut self, path: &str) -> Kind<K> {
        self.declared.last_version().fields.push(json!({"jsonPath": path}));
        self
    }

    /// The status is written through a path of its own.
    #[must_use]
    pub fn status(mut self) -> Kind<K> {
        self.declared.versions.iter_mut().for_each(|version| version.has_status = true);
        self
    }

    pub(super) fn into_declared(self) -> Declared {
        self.declared
    }
}

impl Declared {
    fn last_version(&mut self) -> &mut Version {
        self.versions.last_mut().expect("a kind begins with one version")
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Its group, with each of its versions.
    pub(super) fn group_versions(&self) -> impl Iterator<Item = (String, String)> {
        self.versions.iter().map(|version| (self.group.clone(), version.name.clone()))
    }

    /// `flunders.wardle.example.com`.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Where its objects would be stored.
    pub(super) fn collection(&self) -> String {
        format!("{}/{}", self.group, self.plural)
    }

    /// The kind as a definition.
    pub(super) fn definition(&self) -> Value {
        let versions: Vec<Value> =
            self.versions.iter().enumerate().map(|(at, one)| one.definition(at == 0)).collect();
        // Groups of Kubernetes' own are not for everybody, and this is the way to say so.
        let annotations = json!({"api-approved.kubernetes.io": "unapproved, served by an extension server"});
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

/// Whether objects of a type are in namespaces.
pub(super) fn is_namespaced<K: KubeResource<DynamicType = ()>>() -> bool {
    type_name::<K::Scope>().contains("Namespace")
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
        let (columns, fields) = (Vec::new(), Vec::new());
        Version { name: K::version(&()).into_owned(), schema, columns, fields, has_status: false }
    }

    fn definition(&self, is_stored: bool) -> Value {
        let mut version = json!({
            "name": self.name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": self.schema},
            "additionalPrinterColumns": self.columns, "selectableFields": self.fields,
        });
        if self.has_status {
            version["subresources"] = json!({"status": {}});
        }
        version
    }
}
