//! The tests of `informers`, with caches whose objects are decoded when they come.
#![allow(missing_docs)]

#[path = "informers/bad_input.rs"]
mod bad_input;
#[path = "informers/handlers.rs"]
mod handlers;
#[path = "informers/history.rs"]
mod history;
#[path = "informers/informer.rs"]
mod informer;
#[path = "informers/list.rs"]
mod list;
#[path = "informers/panics.rs"]
mod panics;
#[path = "informers/property.rs"]
mod property;
#[path = "informers/recovery.rs"]
mod recovery;
#[path = "informers/script.rs"]
mod script;
#[path = "informers/watch.rs"]
mod watch;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::InformerBuilder;

fn form(builder: InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> {
    builder.eager()
}
