//! An extension API server for the kind `Widget`.

pub mod api;
mod store;

use kube::Client;
use setpoint::Env;
use setpoint_apiserver::extension::{Delegation, ExtensionError, ExtensionServer, Invalid, Kind};

pub use store::Store;

/// The name of the program, its service and its service account.
pub const NAME: &str = "widget-operator";
/// Where it runs.
pub const NAMESPACE: &str = "widget-operator-system";

/// The server. `client` is that of the API server in front, which says who asks and what they may do.
pub async fn server(client: Client, env: &Env) -> Result<ExtensionServer, ExtensionError> {
    ExtensionServer::builder().kind(kind(Store::new(env))).delegation(Delegation::to(client)).build(env).await
}

/// How the kind is served. Versions with other fields, subresources and more selectors are a line each here.
fn kind(store: Store) -> Kind<api::Widget> {
    Kind::made(store)
        .column("Message", "string", ".spec.message")
        .column("Audience", "string", ".spec.audience")
        .column("Age", "date", ".metadata.creationTimestamp")
        .selectable(".spec.audience")
        .defaults(|object| {
            object.spec.audience.get_or_insert_with(|| "everybody".to_owned());
        })
        .validation(|object, _old| match object.spec.message.trim() {
            "" => vec![Invalid::value("spec.message", object.spec.message.as_str(), "nothing but space")],
            _ => Vec::new(),
        })
}
