//! Facts about the built-in Kubernetes kinds, as data.

mod base64;
mod behavior;
mod conform;
pub mod protobuf;
mod quantity;
mod resource;
mod table;
mod time;
mod types;
mod zero;

pub use behavior::{Behavior, FieldLabel, Generation, NameStyle};
pub use conform::{TypeError, UnknownField, conform};
pub use quantity::{QuantityError, canonical_quantity};
pub use resource::{Group, Resource, Scope, Subresource};
pub use table::{Table, table};
pub use types::{Embedded, Field, FieldDefault, FieldType, ListType, MapType, Type, TypeId};
