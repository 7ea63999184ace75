//! Write the type, generate the rest; or have the CRD, generate the type.
//!
//! | from | to | with |
//! | --- | --- | --- |
//! | CRD YAML | Rust types | [`Types`] |
//! | Rust types | CRD YAML | [`Manifests`], [`crd`] |
//! | CRDs or kinds | clientset, listers, informers | [`Clientset`] |
//! | a controller's builder, an audit log | roles | [`Manifests`], [`Rules`] |
//! | a name | a project | [`Project`] |

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
