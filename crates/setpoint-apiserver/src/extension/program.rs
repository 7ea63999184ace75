//! What the program of an extension server says about a kind, besides its definition. It comes from code alone: nothing that
//! is stored can say it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Invalid, Object, Source, Subresource, Verbs};
use crate::convert::webhook;
use crate::field_error::FieldError;

/// All kinds of a program, by collection: `group/plural`.
pub(crate) type Programs = BTreeMap<String, Arc<Program>>;

/// Fills in what is missing, in an object of the version that is kept.
pub(super) type Defaults = Box<dyn Fn(&mut Value) -> Result<(), serde_json::Error> + Send + Sync>;
/// What is wrong with an object of the version that is kept, and what it was before.
pub(super) type Validation =
    Box<dyn Fn(&Value, Option<&Value>) -> Result<Vec<Invalid>, serde_json::Error> + Send + Sync>;

/// The code of one kind.
pub(crate) struct Program {
    /// What clients can do.
    pub(crate) verbs: Verbs,
    pub(crate) source: Option<Arc<dyn Source>>,
    pub(super) defaults: Option<Defaults>,
    pub(super) validation: Option<Validation>,
    pub(super) versions: BTreeMap<String, VersionCode>,
    pub(super) subresources: BTreeMap<String, Arc<Subresource>>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("verbs", &self.verbs).finish_non_exhaustive()
    }
}

type Convert = fn(&Value) -> Result<Value, serde_json::Error>;

/// The code of one version.
pub(super) struct VersionCode {
    api_version: String,
    /// Whether an object can be one of this type.
    check: fn(&Value) -> Result<(), serde_json::Error>,
    conversion: Option<Conversion>,
}

struct Conversion {
    to_stored: Convert,
    to_served: Convert,
}

impl VersionCode {
    /// A version with the same fields as the one that is kept, or that one itself.
    pub(super) fn plain<V: Object>() -> VersionCode {
        VersionCode { api_version: V::api_version(&()).into_owned(), check: check::<V>, conversion: None }
    }

    /// A version of another type than `K`, which is kept.
    pub(super) fn converted<V: Object + From<K>, K: Object + From<V>>() -> VersionCode {
        let conversion = Conversion { to_stored: convert::<V, K>, to_served: convert::<K, V> };
        VersionCode { conversion: Some(conversion), ..VersionCode::plain::<V>() }
    }
}

fn check<V: Object>(object: &Value) -> Result<(), serde_json::Error> {
    V::deserialize(object).map(drop)
}

fn convert<A: Object, B: Object + From<A>>(object: &Value) -> Result<Value, serde_json::Error> {
    encode(&B::from(A::deserialize(object)?))
}

pub(super) fn encode<K: Object>(object: &K) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into_owned().into();
    value["kind"] = K::kind(&()).into_owned().into();
    Ok(value)
}

impl Program {
    pub(super) fn new<K: Object>(verbs: Verbs, source: Option<Arc<dyn Source>>) -> Program {
        let versions = [(K::version(&()).into_owned(), VersionCode::plain::<K>())].into();
        let (defaults, validation, subresources) = (None, None, BTreeMap::new());
        Program { verbs, source, defaults, validation, versions, subresources }
    }

    /// The subresource of this name, if the program answers for it.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Arc<Subresource>> {
        self.subresources.get(name)
    }

    /// All subresources that the program answers for.
    pub(crate) fn subresources(&self) -> impl Iterator<Item = &Subresource> {
        self.subresources.values().map(|one| &**one)
    }

    /// An object of this version in the version that is kept.
    pub(crate) fn to_stored(&self, version: &str, object: &mut Value, stored_as: &str) {
        let Some(conversion) = self.conversion(version) else { return };
        if object["apiVersion"] != stored_as {
            replace(object, conversion.to_stored, stored_as);
        }
    }

    /// An object of the version that is kept in this version.
    pub(crate) fn to_served(&self, version: &str, object: &mut Value) {
        let Some(code) = self.versions.get(version) else { return };
        let Some(conversion) = &code.conversion else { return };
        if object["apiVersion"] != code.api_version.as_str() {
            replace(object, conversion.to_served, &code.api_version);
        }
    }

    fn conversion(&self, version: &str) -> Option<&Conversion> {
        self.versions.get(version)?.conversion.as_ref()
    }

    /// Fills in what is missing in an object of this version. One that is no such object is left to validation.
    pub(crate) fn default(&self, version: &str, object: &mut Value) {
        let Some(defaults) = &self.defaults else { return };
        let conversion = self.conversion(version);
        let defaulted = || -> Result<Value, serde_json::Error> {
            let mut hub = match conversion {
                Some(conversion) => (conversion.to_stored)(object)?,
                None => object.clone(),
            };
            defaults(&mut hub)?;
            match conversion {
                Some(conversion) => (conversion.to_served)(&hub),
                None => Ok(hub),
            }
        };
        let Ok(mut defaulted) = defaulted() else { return };
        // Who an object is has no defaults.
        for field in ["apiVersion", "kind", "metadata"] {
            defaulted[field] = object[field].take();
        }
        *object = defaulted;
    }

    /// What is wrong with an object of this version that fits its schema.
    pub(crate) fn validate(&self, version: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Some(code) = self.versions.get(version) else { return Vec::new() };
        let validated = || -> Result<Vec<Invalid>, serde_json::Error> {
            (code.check)(object)?;
            let Some(validation) = &self.validation else { return Ok(Vec::new()) };
            let Some(conversion) = &code.conversion else { return validation(object, old) };
            let old = old.map(conversion.to_stored).transpose()?;
            validation(&(conversion.to_stored)(object)?, old.as_ref())
        };
        match validated() {
            Ok(problems) => problems.into_iter().map(|Invalid(error)| error).collect(),
            // As Go writes a problem that no field is to blame for.
            Err(error) => vec![FieldError::invalid("<nil>", Value::Null, error.to_string())],
        }
    }
}

/// Converts in place. Only labels and annotations of the metadata may change, as where a webhook converts.
fn replace(object: &mut Value, convert: Convert, wanted: &str) {
    let converted = convert(object).map_err(|error| error.to_string());
    let converted = converted.and_then(|converted| webhook::same_object(object, converted, wanted));
    match converted {
        Ok(converted) => *object = converted,
        // Validation and the type itself have let it pass once. It is better seen as it is than not at all.
        Err(why) => tracing::error!(wanted, why, "an object cannot be converted"),
    }
}
