//! Rust types → CRD YAML.

mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use schemars::JsonSchema;

use crate::error::Error;

/// The CRD of a type with `#[derive(CustomResource)]`.
///
/// It is that of [`CustomResourceExt::crd`], with a schema as Go's tools make it: an `Option` is not required, but
/// not nullable either; say `#[schemars(extend("nullable" = true))]` for a field that may be null. What stands under
/// `#[schemars(extend("x-setpoint-schema" = {…}))]` is put into the schema as it is, which is the way to have an
/// `anyOf` or `oneOf` of one's own.
pub fn of<K: CustomResourceExt + JsonSchema>() -> Result<CustomResourceDefinition, Error> {
    let mut crd = K::crd();
    let schema = schema::of::<K>(K::crd_name())?;
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(schema.clone()) });
    }
    Ok(crd)
}

/// One CRD of several versions of a kind. The one that is stored is the one whose derive does not say
/// `storage = false`.
pub fn merge(versions: Vec<CustomResourceDefinition>) -> Result<CustomResourceDefinition, Error> {
    let name = versions.first().and_then(|crd| crd.metadata.name.clone()).unwrap_or_default();
    let mut order: Vec<String> = Vec::new();
    let mut served = Vec::new();
    let mut stored = Vec::new();
    for version in versions.iter().flat_map(|crd| &crd.spec.versions) {
        if order.contains(&version.name) {
            return Err(Error::new(name, format!("the version {:?} is there twice", version.name)));
        }
        order.push(version.name.clone());
        served.push(version.served);
        stored.extend(version.storage.then(|| version.name.clone()));
    }
    let [stored] = stored.as_slice() else {
        let problem = "exactly one version must be stored; say #[kube(storage = false)] on the others";
        return Err(Error::new(name, format!("{problem} (stored: {})", stored.join(", "))));
    };
    let mut merged = merge_crds(versions, stored).map_err(|error| Error::new(&name, error))?;
    merged.spec.versions.sort_by_key(|version| order.iter().position(|name| *name == version.name));
    Ok(merged)
}
