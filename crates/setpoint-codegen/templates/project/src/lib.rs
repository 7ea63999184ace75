//! The kind `Widget`, and the operator that looks after its objects.

pub mod api;
{% if owned %}
mod children;
{% endif %}
mod controller;
{% if webhook %}
pub mod webhook;
{% endif %}

{% if conditions %}
pub use controller::{READY, controller, reconcile};
{% else %}
pub use controller::{controller, reconcile};
{% endif %}

use setpoint::Permissions;

/// The name of the operator, of its lease and its service account.
pub const NAME: &str = "widget-operator";

/// The namespace that config/ puts it in.
pub const NAMESPACE: &str = "widget-operator-system";

/// What an API server has to allow the operator. config/rbac is made from it: `setpoint gen rbac --force`.
pub fn permissions() -> Permissions {
    let mut needs = controller().permissions().clone();
    needs.lease = Some((NAMESPACE.to_owned(), NAME.to_owned()));
    needs
}
