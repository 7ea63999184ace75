//! Schema → types of a module.

mod default;
mod keywords;
mod root;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

pub(crate) use self::keywords::VERBATIM;
use self::keywords::{extras, without};
use super::model::{Enum, Field, Item, Keywords, Presence, Root, Rust, Struct};
use super::names::{self, Taken};
use crate::error::{Error, FieldPath};
use crate::structural::{is_int_or_string, is_true, object, preserves_unknown, properties, type_of};

type Schema = Map<String, Value>;

/// A struct that is larger than this is put in a box by whoever holds it.
const LARGEST_INLINE: usize = 512;

/// All types of one version.
pub(crate) struct Plan {
    pub(crate) root: Root,
    pub(crate) items: Vec<Item>,
}

/// Makes types of schemas, one for each schema that differs.
pub(crate) struct Planner {
    taken: Taken,
    /// Schemas that have a type already.
    known: BTreeMap<String, String>,
    items: Vec<Item>,
    sizes: BTreeMap<String, usize>,
    /// Types that have a `Default`.
    defaults: BTreeSet<String>,
}

/// A type, and what the schema says beyond it.
struct Planned {
    rust: Rust,
    keywords: Keywords,
}

/// Where a schema stands: that of a property leaves its description, default and nullability to the field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Property,
    Item,
}

impl Planner {
    fn new() -> Planner {
        Planner {
            taken: Taken::types(),
            known: BTreeMap::new(),
            items: Vec::new(),
            sizes: BTreeMap::new(),
            defaults: BTreeSet::new(),
        }
    }

    fn plan(
        &mut self,
        schema: &Schema,
        name: &str,
        path: &FieldPath,
        position: Position,
    ) -> Result<Planned, Error> {
        if is_int_or_string(schema) {
            return Ok(Planned {
                rust: Rust::IntOrString,
                keywords: extras(schema, &["x-kubernetes-int-or-string"], position),
            });
        }
        let scalar = |rust: Rust, implied: &str| {
            let is_implied = schema.get("format").and_then(Value::as_str) == Some(implied);
            let known: &[&str] = if is_implied { &["format"] } else { &[] };
            Planned { rust, keywords: extras(schema, known, position) }
        };
        Ok(match (type_of(schema), schema.get("format").and_then(Value::as_str)) {
            (Some("string"), _) => match string_values(schema) {
                Some(values) => self.enumeration(schema, &values, name, position),
                None => scalar(Rust::String, ""),
            },
            (Some("boolean"), _) => scalar(Rust::Bool, ""),
            (Some("integer"), Some("int32")) => scalar(Rust::I32, "int32"),
            (Some("integer"), _) => scalar(Rust::I64, "int64"),
            (Some("number"), _) => scalar(Rust::F64, "double"),
            (Some("array"), _) => self.list(schema, name, path, position)?,
            (Some("object"), _) => self.object(schema, name, path, position)?,
            _ => scalar(Rust::Json, ""),
        })
    }

    fn list(
        &mut self,
        schema: &Schema,
        name: &str,
        path: &FieldPath,
        position: Position,
    ) -> Result<Planned, Error> {
        let inner = self.inner(schema, "items", name, path)?;
        let mut keywords = extras(schema, &["items"], position);
        if !inner.keywords.is_empty() {
            keywords::add(&mut keywords, "items", &schema["items"]);
        }
        Ok(Planned { rust: Rust::List(Box::new(inner.rust)), keywords })
    }

    fn object(
        &mut self,
        schema: &Schema,
        name: &str,
        path: &FieldPath,
        position: Position,
    ) -> Result<Planned, Error> {
        if is_true(schema, "x-kubernetes-embedded-resource") {
            return Ok(Planned { rust: Rust::JsonMap, keywords: extras(schema, &[], position) });
        }
        let has_properties = properties(schema, path)?.next().is_some();
        match schema.get("additionalProperties") {
            _ if has_properties => self.named(schema, name, path, position),
            Some(Value::Object(_)) => {
                let inner = self.inner(schema, "additionalProperties", name, path)?;
                let mut keywords = extras(schema, &["additionalProperties"], position);
                if !inner.keywords.is_empty() {
                    keywords::add(&mut keywords, "additionalProperties", &schema["additionalProperties"]);
                }
                Ok(Planned { rust: Rust::Dict(Box::new(inner.rust)), keywords })
            }
            Some(_) => Ok(Planned {
                rust: Rust::JsonMap,
                keywords: extras(schema, &["additionalProperties"], position),
            }),
            None if preserves_unknown(schema) => {
                Ok(Planned { rust: Rust::JsonMap, keywords: extras(schema, &[], position) })
            }
            None => self.named(schema, name, path, position),
        }
    }

    fn inner(&mut self, schema: &Schema, key: &str, name: &str, path: &FieldPath) -> Result<Planned, Error> {
        let path = path.field(key);
        self.plan(object(&schema[key], &path)?, name, &path, Position::Item)
    }

    /// A struct for this schema: an earlier one, if it had the same. An empty one tells nothing, so it is never
    /// shared.
    fn named(
        &mut self,
        schema: &Schema,
        name: &str,
        path: &FieldPath,
        position: Position,
    ) -> Result<Planned, Error> {
        let own = own(schema, position);
        let identity = Value::Object(own.clone()).to_string();
        let keywords = extras_of_field(schema, position);
        let is_empty = properties(schema, path)?.next().is_none();
        if let Some(name) = self.known.get(&identity).filter(|_| !is_empty) {
            return Ok(Planned { rust: Rust::Named(name.clone()), keywords });
        }
        let name = self.structure(&own, name, path)?;
        self.known.insert(identity, name.clone());
        Ok(Planned { rust: Rust::Named(name), keywords })
    }

    /// A new struct. Returns its name.
    fn structure(&mut self, schema: &Schema, name: &str, path: &FieldPath) -> Result<String, Error> {
        self.structure_beside(schema, name, path, Taken::default())
    }

    /// A new struct whose fields have other names than these.
    fn structure_beside(
        &mut self,
        schema: &Schema,
        name: &str,
        path: &FieldPath,
        mut idents: Taken,
    ) -> Result<String, Error> {
        let name = self.taken.take(name);
        let place = self.items.len();
        let required = required(schema);
        let mut fields = Vec::new();
        for (json, property) in properties(schema, path)? {
            let path = path.field("properties").key(json);
            let ident = idents.take(&names::snake(json));
            let is_required = required.contains(json.as_str());
            fields.push(self.field(&name, json, ident, object(property, &path)?, is_required, &path)?);
        }
        let rest = self.rest(schema, &name, path)?.map(|rust| (idents.take("other"), rust));
        let known = ["properties", "required", "additionalProperties"];
        let mut keywords = extras(schema, &known, Position::Property);
        // A field with a default need not be there, whether it is required or not.
        let must = fields.iter().filter(|field| field.is_required()).map(|field| field.json.as_str());
        if must.collect::<BTreeSet<_>>() != required {
            keywords.push(("required".to_owned(), required.iter().copied().map(Value::from).collect()));
        }
        let described = Struct {
            description: description(schema),
            keywords,
            is_default: fields.iter().all(|field| self.starts(field)),
            name: name.clone(),
            fields,
            rest,
        };
        self.sizes.insert(name.clone(), self.size_of(&described));
        if described.is_default {
            self.defaults.insert(name.clone());
        }
        // Readers look for the outer type first.
        self.items.insert(place, Item::Struct(described));
        Ok(name)
    }

    /// The type of what is in no property.
    fn rest(&mut self, schema: &Schema, name: &str, path: &FieldPath) -> Result<Option<Rust>, Error> {
        match schema.get("additionalProperties") {
            Some(Value::Object(_)) => {
                Ok(Some(self.inner(schema, "additionalProperties", &format!("{name}Value"), path)?.rust))
            }
            Some(Value::Bool(true)) => Ok(Some(Rust::Json)),
            _ => Ok(preserves_unknown(schema).then_some(Rust::Json)),
        }
    }

    fn field(
        &mut self,
        owner: &str,
        json: &str,
        ident: String,
        schema: &Schema,
        is_required: bool,
        path: &FieldPath,
    ) -> Result<Field, Error> {
        let name = format!("{owner}{}", names::pascal(json));
        let Planned { rust, mut keywords } = self.plan(schema, &name, path, Position::Property)?;
        let is_nullable = is_true(schema, "nullable");
        let default = schema.get("default");
        let start = match default.filter(|_| !is_nullable) {
            Some(value) => self.default(&rust, schema, value, &path.field("default"))?,
            None => None,
        };
        let presence = match start {
            Some(expression) => Presence::Default(expression),
            None => {
                keywords.extend(default.map(|value| ("default".to_owned(), value.clone())));
                match (is_required, is_nullable) {
                    (true, true) => Presence::RequiredNullable,
                    (true, false) if default.is_none() => Presence::Required,
                    _ => Presence::Optional,
                }
            }
        };
        let is_boxed = matches!(&rust, Rust::Named(name) if self.sizes.get(name).is_some_and(|size| *size > LARGEST_INLINE));
        let description = description(schema);
        Ok(Field { json: json.to_owned(), ident, rust, is_boxed, presence, description, keywords })
    }

    fn enumeration(&mut self, schema: &Schema, values: &[&str], name: &str, position: Position) -> Planned {
        let own = own(schema, position);
        let identity = Value::Object(own.clone()).to_string();
        let keywords = extras_of_field(schema, position);
        if let Some(name) = self.known.get(&identity) {
            return Planned { rust: Rust::Named(name.clone()), keywords };
        }
        let name = self.taken.take(name);
        let mut idents = Taken::with(&["Self"]);
        let mut variants: Vec<(String, String)> = Vec::new();
        for &value in values {
            if variants.iter().all(|(_, json)| json != value) {
                variants.push((idents.take(&names::variant(value)), value.to_owned()));
            }
        }
        self.items.push(Item::Enum(Enum {
            name: name.clone(),
            description: description(&own),
            variants,
            keywords: extras(&own, &["enum"], Position::Property),
        }));
        self.sizes.insert(name.clone(), 1);
        self.known.insert(identity, name.clone());
        Planned { rust: Rust::Named(name), keywords }
    }

    /// Whether a field has a value to start with.
    fn starts(&self, field: &Field) -> bool {
        match (&field.presence, &field.rust) {
            (Presence::Required, Rust::Named(name)) => self.defaults.contains(name),
            (Presence::Required, Rust::IntOrString) => false,
            _ => true,
        }
    }

    fn size_of(&self, described: &Struct) -> usize {
        described.fields.iter().map(|field| self.size(field)).sum::<usize>()
            + 24 * usize::from(described.rest.is_some())
    }

    /// About how large a field is.
    fn size(&self, field: &Field) -> usize {
        match &field.rust {
            _ if field.is_boxed => 8,
            Rust::Bool => 1,
            Rust::I32 => 8,
            Rust::I64 | Rust::F64 => 16,
            Rust::Json => 32,
            Rust::Named(name) => self.sizes.get(name).copied().unwrap_or(8),
            _ => 24,
        }
    }
}

/// The part of a schema that is a type's own, wherever it stands.
fn own(schema: &Schema, position: Position) -> Schema {
    match position {
        Position::Property => without(schema, &["description", "default", "nullable"]),
        Position::Item => without(schema, &["default"]),
    }
}

/// What the field says of a named type.
fn extras_of_field(schema: &Schema, position: Position) -> Keywords {
    if position == Position::Property { nullable(schema) } else { Vec::new() }
}

fn nullable(schema: &Schema) -> Keywords {
    if is_true(schema, "nullable") { vec![("nullable".to_owned(), Value::Bool(true))] } else { Vec::new() }
}

fn description(schema: &Schema) -> Option<String> {
    schema
        .get("description")
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty())
        .map(str::to_owned)
}

fn required(schema: &Schema) -> BTreeSet<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The values of an `enum` of strings.
fn string_values(schema: &Schema) -> Option<Vec<&str>> {
    let values = schema.get("enum")?.as_array()?;
    let strings: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    let nulls = values.iter().filter(|value| value.is_null()).count();
    (!strings.is_empty() && strings.len() + nulls == values.len()).then_some(strings)
}
