//! What server-side apply knows of types: what is one value, what is merged, and by which keys.
//!
//! One view of all sources of types, so that comparing and merging are written once.

use serde_json::Value;
use setpoint_kinds::{Field, FieldDefault, FieldType, ListType, MapType, Type};

use crate::resource::Resource;
use crate::schema::{self, AdditionalProperties, Structural};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema<'a> {
    /// A struct of the built-in kinds.
    Struct(&'static Type),
    /// A field of such a struct.
    Field(&'static Field),
    /// An item of a list or map of the built-in kinds.
    Item(&'static FieldType),
    /// Anything: maps are merged, lists are not.
    Deduced,
    /// Anything, as one value.
    Untyped,
    /// A part of a custom resource.
    Custom(Custom<'a>),
}

/// A node of the schema of a custom resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Custom<'a> {
    node: &'a Structural,
    /// Whether fields that are not declared are kept, here and below.
    preserves: bool,
    /// Whether it is an object with metadata of its own.
    is_object: bool,
}

/// The forms that a value of a type can have; most types have one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atom<'a> {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<List<'a>>,
    pub(crate) map: Option<Map<'a>>,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// A list: one value, a set of scalars, or items known by keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    pub(crate) relation: Relation<'a>,
    pub(crate) item: Schema<'a>,
}

/// How the items of a list belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation<'a> {
    Atomic,
    Set,
    Map(Keys<'a>),
}

/// The keys of the items of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys<'a> {
    /// `x-kubernetes-list-map-keys` of a built-in field.
    Field(&'static Field),
    /// The key of strategic merge patches, where nothing else is said.
    One(&'a str),
    /// `x-kubernetes-list-map-keys` of a custom resource.
    Many(&'a [String]),
}

/// A map or struct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    pub(crate) is_atomic: bool,
    fields: Fields<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Fields<'a> {
    Struct(&'static Type),
    Custom(Custom<'a>),
    Each(Schema<'a>),
}

impl<'a> Schema<'a> {
    /// The type of the objects of a resource.
    pub(crate) fn of(resource: &'a Resource) -> Schema<'a> {
        if let Some(ty) = resource.ty() {
            return Schema::Struct(ty);
        }
        match resource.definition().and_then(|custom| custom.schema.as_ref()) {
            Some(node) => {
                Schema::Custom(Custom { node, preserves: node.preserve_unknown_fields, is_object: true })
            }
            None => Schema::Deduced,
        }
    }

    /// The forms of the type.
    pub(crate) fn atom(self) -> Atom<'a> {
        match self {
            Schema::Struct(ty) => Atom::map(struct_map(ty, None)),
            Schema::Field(field) => field_atom(field),
            Schema::Item(ty) => built_in_atom(ty, None),
            Schema::Custom(custom) => custom.atom(),
            Schema::Deduced => Atom::DEDUCED,
            Schema::Untyped => Atom::UNTYPED,
        }
    }
}

impl<'a> Custom<'a> {
    fn child(&self, node: &'a Structural) -> Schema<'a> {
        Schema::Custom(Custom {
            node,
            preserves: self.preserves || node.preserve_unknown_fields,
            is_object: node.embedded_resource,
        })
    }

    fn atom(self) -> Atom<'a> {
        let map =
            Map { is_atomic: self.node.map_type.as_deref() == Some("atomic"), fields: Fields::Custom(self) };
        let list = List {
            relation: match self.node.list_type.as_deref() {
                Some("set") => Relation::Set,
                Some("map") => Relation::Map(Keys::Many(&self.node.list_map_keys)),
                _ => Relation::Atomic,
            },
            item: self.node.items.as_deref().map_or(Schema::Untyped, |items| self.child(items)),
        };
        match &self.node.type_ {
            Some(schema::Type::Object) => Atom::map(map),
            Some(schema::Type::Array) => Atom { scalar: None, list: Some(list), map: None },
            Some(schema::Type::Integer | schema::Type::Number) => Atom::scalar(Scalar::Numeric),
            Some(schema::Type::Boolean) => Atom::scalar(Scalar::Boolean),
            Some(schema::Type::String) if matches!(&*self.node.values.format, "" | "byte") => {
                Atom::scalar(Scalar::String)
            }
            Some(schema::Type::String | schema::Type::Unknown(_)) => Atom::scalar(Scalar::Untyped),
            None => Atom { scalar: Some(Scalar::Untyped), list: Some(list), map: Some(map) },
        }
    }

    fn field(&self, name: &str) -> Option<Schema<'a>> {
        if self.is_object {
            match name {
                "apiVersion" | "kind" => return Some(Schema::Item(&FieldType::String)),
                "metadata" => {
                    return setpoint_kinds::table().type_named("meta.v1.ObjectMeta").map(Schema::Struct);
                }
                _ => {}
            }
        }
        self.node.properties.get(name).map(|node| self.child(node))
    }

    fn element(&self) -> Option<Schema<'a>> {
        match &self.node.additional_properties {
            None if self.preserves || self.node.properties.is_empty() => Some(Schema::Deduced),
            None | Some(AdditionalProperties::Allowed(false)) => None,
            Some(AdditionalProperties::Allowed(true)) => Some(Schema::Deduced),
            Some(AdditionalProperties::Schema(node)) => Some(self.child(node)),
        }
    }
}

fn field_atom(field: &'static Field) -> Atom<'static> {
    built_in_atom(&field.ty, Some(field))
}

fn built_in_atom(ty: &'static FieldType, field: Option<&'static Field>) -> Atom<'static> {
    let map_type = field.and_then(|field| field.map_type);
    match ty {
        FieldType::String | FieldType::Bytes => Atom::scalar(Scalar::String),
        FieldType::Bool => Atom::scalar(Scalar::Boolean),
        FieldType::Int32 | FieldType::Int64 | FieldType::Float64 => Atom::scalar(Scalar::Numeric),
        FieldType::Quantity | FieldType::Time | FieldType::MicroTime => Atom::scalar(Scalar::Untyped),
        FieldType::RawExtension => Atom::UNTYPED,
        FieldType::FieldsV1 => Atom::map(Map { is_atomic: false, fields: Fields::Each(Schema::Deduced) }),
        FieldType::Struct(id) => Atom::map(struct_map(id.get(), map_type)),
        FieldType::List(item) | FieldType::WrappedList(item) => {
            let relation = field.map_or(Relation::Atomic, relation);
            Atom { scalar: None, map: None, list: Some(List { relation, item: Schema::Item(item) }) }
        }
        FieldType::Map(item) => Atom::map(Map {
            is_atomic: map_type == Some(MapType::Atomic),
            fields: Fields::Each(Schema::Item(item)),
        }),
        // What is left takes any JSON: OpenAPI declares no type for it.
        _ => Atom::DEDUCED,
    }
}

fn struct_map(ty: &'static Type, over: Option<MapType>) -> Map<'static> {
    let fields = if ty.fields().is_empty() { Fields::Each(Schema::Deduced) } else { Fields::Struct(ty) };
    Map { is_atomic: over.or(ty.map_type) == Some(MapType::Atomic), fields }
}

/// `x-kubernetes-list-type`; where a field has none, its patch strategy says how it is merged.
fn relation(field: &'static Field) -> Relation<'static> {
    match (field.list_type, field.patches_by("merge"), field.patch_merge_key) {
        (Some(ListType::Atomic), _, _) | (None, false, _) => Relation::Atomic,
        (Some(ListType::Set), _, _) | (None, true, None) => Relation::Set,
        (Some(ListType::Map), _, _) => Relation::Map(Keys::Field(field)),
        (None, true, Some(key)) => Relation::Map(Keys::One(key)),
    }
}

impl<'a> Atom<'a> {
    const DEDUCED: Atom<'static> = Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(List { relation: Relation::Atomic, item: Schema::Untyped }),
        map: Some(Map { is_atomic: false, fields: Fields::Each(Schema::Deduced) }),
    };

    const UNTYPED: Atom<'static> = Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(List { relation: Relation::Atomic, item: Schema::Untyped }),
        map: Some(Map { is_atomic: true, fields: Fields::Each(Schema::Untyped) }),
    };

    fn scalar(scalar: Scalar) -> Atom<'a> {
        Atom { scalar: Some(scalar), list: None, map: None }
    }

    fn map(map: Map<'a>) -> Atom<'a> {
        Atom { scalar: None, list: None, map: Some(map) }
    }

    /// The form that a value has; where the type does not allow it, the form that it should have.
    pub(crate) fn form(&self, value: Option<&Value>) -> Form<'a> {
        match (value, self.scalar, self.list, self.map) {
            (Some(Value::Bool(_) | Value::Number(_) | Value::String(_)), Some(scalar), _, _) => {
                Form::Scalar(scalar)
            }
            (Some(Value::Array(_)), _, Some(list), _) => Form::List(list),
            (_, _, _, Some(map)) => Form::Map(map),
            (_, Some(scalar), _, _) => Form::Scalar(scalar),
            (_, _, Some(list), _) => Form::List(list),
            (_, None, None, None) => Form::Scalar(Scalar::Untyped),
        }
    }
}

/// One form of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(Map<'a>),
}

impl Form<'_> {
    /// Whether two forms of one type are the same form.
    pub(crate) fn same(&self, other: &Form<'_>) -> bool {
        matches!(
            (self, other),
            (Form::Scalar(_), Form::Scalar(_))
                | (Form::List(_), Form::List(_))
                | (Form::Map(_), Form::Map(_))
        )
    }
}

impl<'a> Map<'a> {
    /// The type of a declared field.
    pub(crate) fn field(&self, name: &str) -> Option<Schema<'a>> {
        match self.fields {
            Fields::Struct(ty) => ty.field(name).map(Schema::Field),
            Fields::Custom(custom) => custom.field(name),
            Fields::Each(_) => None,
        }
    }

    /// The type of fields that are not declared, if there may be any.
    pub(crate) fn element(&self) -> Option<Schema<'a>> {
        match self.fields {
            Fields::Struct(_) => None,
            Fields::Custom(custom) => custom.element(),
            Fields::Each(schema) => Some(schema),
        }
    }

    /// Whether it declares nothing, neither fields nor what others are like.
    pub(crate) fn is_deduced(&self) -> bool {
        let declares = match self.fields {
            Fields::Struct(_) => true,
            Fields::Custom(custom) => !custom.node.properties.is_empty() || custom.is_object,
            Fields::Each(_) => false,
        };
        let is_any = |schema: Schema<'_>| {
            !matches!(schema, Schema::Untyped) && schema.atom().scalar == Some(Scalar::Untyped)
        };
        !declares && self.element().is_some_and(is_any)
    }

    /// The type of a field, declared or not.
    pub(crate) fn child(&self, name: &str) -> Option<Schema<'a>> {
        self.field(name).or_else(|| self.element())
    }

    /// What a declared field is taken to be when it is absent.
    fn default_of(&self, name: &str) -> Option<Value> {
        let field = match self.fields {
            Fields::Struct(ty) => ty.field(name)?,
            Fields::Custom(custom) => return custom.node.properties.get(name)?.default.clone(),
            Fields::Each(_) => return None,
        };
        match field.default {
            FieldDefault::None => None,
            FieldDefault::Zero => Some(match &field.ty {
                FieldType::Bool => false.into(),
                FieldType::Int32 | FieldType::Int64 | FieldType::Float64 => 0.into(),
                FieldType::Struct(_) => Value::Object(serde_json::Map::new()),
                _ => "".into(),
            }),
            FieldDefault::Json(text) => serde_json::from_str(text).ok(),
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.relation, Relation::Atomic)
    }

    /// The names of the keys of its items.
    pub(crate) fn keys(&self) -> Vec<&'a str> {
        match self.relation {
            Relation::Map(Keys::Field(field)) => field.list_map_keys().collect(),
            Relation::Map(Keys::One(key)) => vec![key],
            Relation::Map(Keys::Many(keys)) => keys.iter().map(String::as_str).collect(),
            Relation::Atomic | Relation::Set => Vec::new(),
        }
    }

    /// The value of a key that an item leaves out.
    pub(crate) fn key_default(&self, key: &str) -> Option<Value> {
        self.item.atom().map?.default_of(key)
    }
}
