//! The types of `self` and what is below it, as rules see them.

use crate::cel::{self, Kind, Object};
use crate::schema::{Structural, Type};

/// An object of a schema.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    schema: &'a Structural,
    /// Whether apiVersion, kind and metadata can be seen.
    resource: bool,
    name: String,
    /// The metadata of a resource, of which rules see the names.
    is_metadata: bool,
}

/// Types are what they are called: where they stand in the schema.
impl PartialEq for At<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<'a> Object for At<'a> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn field(&self, field: &str) -> Option<Kind<At<'a>>> {
        if self.is_metadata {
            return matches!(field, "name" | "generateName").then_some(Kind::String);
        }
        let name = format!("{}.{field}", self.name);
        match field {
            "apiVersion" | "kind" if self.resource => return Some(Kind::String),
            "metadata" if self.resource => {
                return Some(Kind::Object(At { name, is_metadata: true, ..self.clone() }));
            }
            _ => {}
        }
        let mut properties = self.schema.properties.iter();
        let (_, schema) = properties.find(|(name, _)| cel::escape(name).as_deref() == Some(field))?;
        of(schema, schema.embedded_resource, name)
    }
}

/// The variables of a rule at a schema.
pub(super) fn variables(
    schema: &Structural,
    root: bool,
    optional: bool,
) -> [(&'static str, Kind<At<'_>>); 2] {
    let this = of(schema, root, "selfType".to_owned()).unwrap_or(Kind::Dyn);
    let old = if optional { Kind::optional(this.clone()) } else { this.clone() };
    [("self", this), ("oldSelf", old)]
}

/// The type of a value of a schema; nothing if rules cannot see it.
fn of(schema: &Structural, resource: bool, name: String) -> Option<Kind<At<'_>>> {
    if schema.int_or_string {
        return Some(Kind::Dyn);
    }
    Some(match (schema.type_.as_ref()?, schema.values.format.as_str()) {
        (Type::Boolean, _) => Kind::Bool,
        (Type::Integer, _) => Kind::Int,
        (Type::Number, _) => Kind::Double,
        (Type::String, "byte") => Kind::Bytes,
        (Type::String, "duration") => Kind::Duration,
        (Type::String, "date" | "date-time") => Kind::Timestamp,
        (Type::String, _) => Kind::String,
        (Type::Array, _) => {
            let items = schema.items.as_deref()?;
            Kind::list(of(items, items.embedded_resource, format!("{name}.@idx"))?)
        }
        (Type::Object, _) => match schema.additional() {
            Some(values) => {
                Kind::map(Kind::String, of(values, values.embedded_resource, format!("{name}.@elem"))?)
            }
            None => Kind::Object(At { schema, resource, name, is_metadata: false }),
        },
        (Type::Unknown(_), _) => return None,
    })
}
