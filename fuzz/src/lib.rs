//! What the fuzz targets share: a server to ask, objects of any kind, and what must hold of every answer.
//!
//! The targets use nothing but the public API of the crates: what they find, a client, a server or a file can do.

mod api;
mod lab;
mod object;

pub use api::{Answer, Api, JSON, PROTOBUF, YAML};
pub use lab::{Lab, start};
pub use object::{any_json, any_object, collection, without_server_fields};
