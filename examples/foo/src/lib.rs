//! sample-controller in Rust, in the explicit style: a factory, handlers, a queue, two workers.
//!
//! A [`Foo`] names a Deployment and how many replicas it shall have; the [`FooController`] makes it so and
//! says in the status how many are available.

#![expect(clippy::disallowed_names, reason = "a Foo is called foo")]

mod controller;
mod deployment;
mod foo;

pub use controller::{FooController, RESYNC, WORKERS, permissions};
pub use deployment::new_deployment;
pub use foo::{Foo, FooSpec, FooStatus, crd};
