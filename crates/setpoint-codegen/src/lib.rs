//! Code generation: Rust types from CRDs, CRDs from Rust types, clients, RBAC roles, and new projects.
//!
//! This is the library behind `setpoint new` and `setpoint gen`. Only a project can compile its own types, so it calls
//! [`Manifests`] in a cargo example, `manifests`, which `setpoint gen crd` and `setpoint gen rbac` run.
//!
//! | from | to | with |
//! | --- | --- | --- |
//! | CRD YAML | Rust types | [`Types`] |
//! | Rust types | CRD YAML | [`Manifests`], [`crd`] |
//! | CRDs or kinds | clientset, listers, informers | [`Clientset`] |
//! | a controller's builder, an audit log | RBAC roles | [`Manifests`], [`Rules`] |
//! | a name | a project | [`Project`] |
//!
//! The file `examples/manifests.rs` of a project:
//!
//! ```no_run
//! # mod foo {
//! #     #[derive(Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema, kube::CustomResource)]
//! #     #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
//! #     pub struct FooSpec {}
//! # }
//! # use foo::Foo;
//! fn main() -> std::process::ExitCode {
//!     setpoint_codegen::Manifests::new("foo").crd::<Foo>().main()
//! }
//! ```

// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod client;
pub mod crd;
mod definition;
mod error;
mod files;
mod manifests;
pub mod project;
pub mod rbac;
mod sample;
mod structural;
mod types;
mod yaml;

pub use client::{ClientKind, Clientset};
pub use definition::{Definition, Names, SelectableField, Subresources, Version};
pub use error::Error;
pub use files::{File, FilesError, Mode, Outcome, put};
pub use manifests::{Manifests, ManifestsError};
pub use project::Project;
pub use rbac::Rules;
pub use sample::{Extent, sample};
pub use types::Types;
