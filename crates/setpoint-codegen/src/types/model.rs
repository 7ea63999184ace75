//! The types of one version, before they are written as code.

use serde_json::Value;

/// A Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rust {
    String,
    Bool,
    I32,
    I64,
    F64,
    IntOrString,
    /// Any JSON.
    Json,
    /// Any JSON object.
    JsonMap,
    List(Box<Rust>),
    Dict(Box<Rust>),
    /// A type of the module.
    Named(String),
}

impl Rust {
    /// How it is written.
    pub(crate) fn render(&self) -> String {
        match self {
            Rust::String => "String".to_owned(),
            Rust::Bool => "bool".to_owned(),
            Rust::I32 => "i32".to_owned(),
            Rust::I64 => "i64".to_owned(),
            Rust::F64 => "f64".to_owned(),
            Rust::IntOrString => "IntOrString".to_owned(),
            Rust::Json => "Value".to_owned(),
            Rust::JsonMap => "Map<String, Value>".to_owned(),
            Rust::List(item) => format!("Vec<{}>", item.render()),
            Rust::Dict(value) => format!("BTreeMap<String, {}>", value.render()),
            Rust::Named(name) => name.clone(),
        }
    }

    /// Whether it is, or holds, a type that `test` is true of.
    pub(crate) fn any(&self, test: &impl Fn(&Rust) -> bool) -> bool {
        test(self)
            || match self {
                Rust::List(inner) | Rust::Dict(inner) => inner.any(test),
                _ => false,
            }
    }
}

/// What a schema says beyond its type: keywords and their values, as in the schema.
pub(crate) type Keywords = Vec<(String, Value)>;

/// A field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Its name in JSON.
    pub(crate) json: String,
    /// Its name in Rust, not escaped.
    pub(crate) ident: String,
    pub(crate) rust: Rust,
    /// A large struct is kept apart, so that whoever holds it stays small.
    pub(crate) is_boxed: bool,
    pub(crate) presence: Presence,
    pub(crate) description: Option<String>,
    pub(crate) keywords: Keywords,
}

/// Whether a field has to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// It has to be there, but may be null.
    RequiredNullable,
    Optional,
    /// It may be missing, and then it is this expression.
    Default(String),
}

impl Field {
    /// Its type, as it is written.
    pub(crate) fn render_type(&self) -> String {
        let inner = self.rust.render();
        let inner = if self.is_boxed { format!("Box<{inner}>") } else { inner };
        if self.is_option() { format!("Option<{inner}>") } else { inner }
    }

    /// Whether its type alone says that it has to be there.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self.presence, Presence::Required | Presence::RequiredNullable)
    }

    pub(crate) fn is_option(&self) -> bool {
        matches!(self.presence, Presence::Optional | Presence::RequiredNullable)
    }
}

/// A struct.
#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) fields: Vec<Field>,
    /// The field that holds what no other one does, and the type of its values.
    pub(crate) rest: Option<(String, Rust)>,
    pub(crate) keywords: Keywords,
    /// Whether every field has a value to start with.
    pub(crate) is_default: bool,
}

/// One of several strings.
#[derive(Clone, Debug)]
pub(crate) struct Enum {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// Names in Rust and in JSON.
    pub(crate) variants: Vec<(String, String)>,
    pub(crate) keywords: Keywords,
}

/// A type of the module.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Struct(Struct),
    Enum(Enum),
}

/// What `#[derive(CustomResource)]` is put on.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// The struct that has the derive.
    pub(crate) name: String,
    /// The struct that the derive makes.
    pub(crate) kind: String,
    /// The struct of the status, if there is a subresource.
    pub(crate) status: Option<String>,
    /// Whether the struct holds the fields beside `metadata`, rather than those of `spec`.
    pub(crate) is_flat: bool,
}
