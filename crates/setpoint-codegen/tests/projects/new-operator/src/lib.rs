//! The kind `Shop`, and the operator that looks after its objects.

pub mod api;
mod children;
mod controller;
pub mod webhook;

pub use controller::{READY, controller, reconcile};

use setpoint::Permissions;

/// The name of the operator, of its lease and its service account.
pub const NAME: &str = "new-operator";

/// The namespace that config/ puts it in.
pub const NAMESPACE: &str = "new-operator-system";

/// What an API server has to allow the operator. config/rbac is made from it: `setpoint gen rbac --force`.
pub fn permissions() -> Permissions {
    let mut needs = controller().permissions().clone();
    needs.lease = Some((NAMESPACE.to_owned(), NAME.to_owned()));
    needs
}
