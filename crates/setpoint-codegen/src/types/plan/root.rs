//! The type of a whole object.

use serde_json::{Map, Value};

use super::{Plan, Planner, Schema, keywords, required};
use crate::definition::{Definition, Version};
use crate::error::{Error, FieldPath};
use crate::structural::{object, properties, type_of};
use crate::types::model::{Item, Root};
use crate::types::names::{self, Taken};

/// What every object has; its schema is not the CRD's matter.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Names that the derive wants for itself.
const BESIDE: [&str; 4] = ["api_version", "kind", "metadata", "status"];

impl Plan {
    /// Plans the types of one version.
    pub(crate) fn new(definition: &Definition, version: &Version, path: &FieldPath) -> Result<Plan, Error> {
        let mut planner = Planner::new();
        let kind = planner.taken.take(&names::type_name(&definition.names.kind));
        let schema = version.schema();
        let root = match spec_of(schema, version) {
            Some(spec) => planner.usual(kind, spec, version, path)?,
            None => planner.flat(kind, schema, version, path)?,
        };
        Ok(Plan { root, items: planner.items })
    }
}

impl Planner {
    /// An object of `spec` and `status`.
    fn usual(
        &mut self,
        kind: String,
        spec: &Schema,
        version: &Version,
        path: &FieldPath,
    ) -> Result<Root, Error> {
        let properties = path.field("properties");
        let name = self.part(spec, &format!("{kind}Spec"), &properties.key("spec"))?;
        let status = self.status(&kind, version, path)?;
        Ok(Root { name, kind, status, is_flat: false })
    }

    /// An object of other fields: one struct has all of them.
    fn flat(
        &mut self,
        kind: String,
        schema: &Schema,
        version: &Version,
        path: &FieldPath,
    ) -> Result<Root, Error> {
        let has_subresource = version.subresources.status.is_some();
        let mut inner = Map::new();
        for (name, property) in properties(schema, path)? {
            let is_apart = has_subresource && name == "status";
            if !(is_apart || META.contains(&name.as_str())) {
                inner.insert(name.clone(), property.clone());
            }
        }
        let mut fields =
            super::without(schema, &["properties", "required", "description", "x-kubernetes-validations"]);
        let needed = required(schema).into_iter().filter(|name| inner.contains_key(*name));
        fields.insert("required".to_owned(), needed.map(Value::from).collect());
        fields.insert("properties".to_owned(), Value::Object(inner));
        let name = self.structure_beside(&fields, &format!("{kind}Fields"), path, Taken::with(&BESIDE))?;
        let status = if has_subresource { self.status(&kind, version, path)? } else { None };
        Ok(Root { name, kind, status, is_flat: true })
    }

    fn status(&mut self, kind: &str, version: &Version, path: &FieldPath) -> Result<Option<String>, Error> {
        if version.subresources.status.is_none() {
            return Ok(None);
        }
        let path = path.field("properties").key("status");
        let empty = Map::new();
        let schema = match version.schema().get("properties").and_then(|properties| properties.get("status"))
        {
            Some(schema) => object(schema, &path)?,
            None => &empty,
        };
        self.part(schema, &format!("{kind}Status"), &path).map(Some)
    }

    /// The struct of `spec` or `status`. The derive has no field whose attributes could say a default.
    fn part(&mut self, schema: &Schema, name: &str, path: &FieldPath) -> Result<String, Error> {
        let name = self.structure(schema, name, path)?;
        let is_it = |item: &&mut Item| matches!(item, Item::Struct(described) if described.name == name);
        if let (Some(default), Some(Item::Struct(described))) =
            (schema.get("default"), self.items.iter_mut().find(is_it))
        {
            keywords::add(&mut described.keywords, "default", default);
        }
        Ok(name)
    }
}

/// The schema of `spec`, if the object is one of `spec` and, with a subresource, `status`.
fn spec_of<'a>(schema: &'a Schema, version: &Version) -> Option<&'a Schema> {
    let properties = schema.get("properties")?.as_object()?;
    let is_usual = |name: &String| {
        META.contains(&name.as_str())
            || name == "spec"
            || name == "status" && version.subresources.status.is_some()
    };
    let spec = properties.get("spec")?.as_object()?;
    let is_plain = type_of(spec) == Some("object") && spec.get("nullable") != Some(&Value::Bool(true));
    (is_plain && properties.keys().all(is_usual) && !crate::structural::preserves_unknown(schema))
        .then_some(spec)
}
