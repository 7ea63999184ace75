//! The built-in kinds of Kubernetes as data, and Kubernetes' JSON and protobuf encodings.
//!
//! [`table()`] has the resources that kube-apiserver serves by default, and their Go types. `cargo xtask kinds` generates it
//! from the published Go modules of one Kubernetes release. The rest of the crate uses it:
//!
//! - [`conform()`] changes a JSON value as kube-apiserver does when it decodes it into the Go struct of its kind: unknown fields are
//!   dropped, zero values are dropped or added, quantities and times become canonical.
//! - [`protobuf`] decodes and encodes `application/vnd.kubernetes.protobuf` bodies.
//! - [`Behavior`], written by hand, says how the registry treats the objects of a resource: generations, names, field
//!   selectors, updates that create.
//!
//! The crate does no I/O.
//!
//! ```
//! use serde_json::json;
//! use setpoint_kinds::{ListType, conform, table};
//!
//! // Resources, as discovery lists them.
//! let pods = table().resource("", "v1", "pods").unwrap();
//! assert_eq!(&*pods.short_names, ["po"]);
//! assert!(pods.subresource("eviction").is_some());
//!
//! // The type of a field.
//! let spec = pods.ty().field("spec").unwrap().ty.struct_type().unwrap();
//! let containers = spec.field("containers").unwrap();
//! assert_eq!(containers.patch_merge_key, Some("name"));
//! assert_eq!(containers.list_type, Some(ListType::Map));
//!
//! // Decoding: unknown fields are dropped and reported.
//! let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "imag": "x"}]}});
//! let mut unknown = Vec::new();
//! conform(pods.ty(), &mut pod, &mut unknown).unwrap();
//! assert_eq!(unknown[0].path, "spec.containers[0].imag");
//!
//! // The registry's behavior.
//! assert!(pods.behavior().graceful_deletion);
//! assert!(pods.behavior().field_label("spec.nodeName").is_some());
//! ```

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod base64;
mod behavior;
mod conform;
pub mod protobuf;
mod quantity;
mod resource;
mod table;
mod time;
mod types;
mod verb;
mod zero;

pub use behavior::{Behavior, FieldLabel, Generation, NameStyle};
pub use conform::{TypeError, UnknownField, conform};
pub use quantity::{Quantity, QuantityError, canonical_quantity, quantity_nanos};
pub use resource::{Encoding, Group, Resource, Scope, Stored, Subresource};
pub use table::{Table, table};
pub use types::{Embedded, Field, FieldDefault, FieldType, ListType, MapType, Type, TypeId};
pub use verb::Verb;
