//! The types of expressions, as far as they can be known without running them.

use std::convert::Infallible;
use std::sync::Arc;

/// The type of an expression. `O` is what stands for a type that has fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind<O> {
    /// Anything: it is checked when the expression runs.
    Dyn,
    /// Of an expression that is wrong, which was told already.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Kind<O>>),
    Map(Arc<(Kind<O>, Kind<O>)>),
    Optional(Arc<Kind<O>>),
    /// The type of a type: of `int`, and of `type(x)`.
    Type(Arc<Kind<O>>),
    /// One of Kubernetes' own, such as quantities, by its name.
    Opaque(&'static str),
    Object(O),
    /// Not known yet.
    Free(usize),
}

/// A type that has fields.
pub(crate) trait Object: Clone + PartialEq {
    /// The name that errors give it.
    fn name(&self) -> String;

    /// The type of a field, if there is such a field.
    fn field(&self, name: &str) -> Option<Kind<Self>>;
}

impl Object for Infallible {
    fn name(&self) -> String {
        match *self {}
    }

    fn field(&self, _name: &str) -> Option<Kind<Infallible>> {
        match *self {}
    }
}

/// A type of more parts than this counts as any: they can double with each step of an expression.
const MOST_PARTS: usize = 64;

impl<O: Object> Kind<O> {
    pub(crate) fn list(item: Kind<O>) -> Kind<O> {
        Kind::List(Arc::new(item.bounded()))
    }

    pub(crate) fn map(key: Kind<O>, value: Kind<O>) -> Kind<O> {
        Kind::Map(Arc::new((key.bounded(), value.bounded())))
    }

    pub(crate) fn optional(item: Kind<O>) -> Kind<O> {
        Kind::Optional(Arc::new(item.bounded()))
    }

    pub(super) fn of_type(kind: Kind<O>) -> Kind<O> {
        Kind::Type(Arc::new(kind.bounded()))
    }

    fn bounded(self) -> Kind<O> {
        if self.parts() > MOST_PARTS { Kind::Dyn } else { self }
    }

    fn parts(&self) -> usize {
        1 + match self {
            Kind::List(item) | Kind::Optional(item) | Kind::Type(item) => item.parts(),
            Kind::Map(entry) => entry.0.parts() + entry.1.parts(),
            _ => 0,
        }
    }

    /// As errors of the checker name it.
    pub(super) fn shown(&self) -> String {
        self.text(true)
    }

    fn text(&self, brief: bool) -> String {
        let word = match self {
            Kind::Dyn => "dyn",
            Kind::Error => "!error!",
            Kind::Null if brief => "null",
            Kind::Null => "null_type",
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Double => "double",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::Duration if brief => "duration",
            Kind::Duration => "google.protobuf.Duration",
            Kind::Timestamp if brief => "timestamp",
            Kind::Timestamp => "google.protobuf.Timestamp",
            Kind::Opaque(name) => name,
            Kind::Object(object) => return object.name(),
            Kind::List(item) => return format!("list({})", item.text(brief)),
            Kind::Map(entry) => return format!("map({}, {})", entry.0.text(brief), entry.1.text(brief)),
            Kind::Optional(item) => return format!("optional_type({})", item.text(brief)),
            Kind::Type(kind) => return format!("type({})", kind.text(brief)),
            Kind::Free(_) => "dyn",
        };
        word.to_owned()
    }
}

/// As cel-go prints a type on its own.
impl<O: Object> std::fmt::Display for Kind<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text(false))
    }
}
