//! The tests of `informers`, with informers that ask for protobuf. The scripts answer in JSON, as a server does that knows
//! nothing else; `protobuf` and `in_process` have servers that know protobuf.
#![allow(missing_docs)]

#[path = "informers/bad_input.rs"]
mod bad_input;
#[path = "informers/handlers.rs"]
mod handlers;
#[path = "informers/history.rs"]
mod history;
#[path = "informers/in_process.rs"]
mod in_process;
#[path = "informers/informer.rs"]
mod informer;
#[path = "informers/list.rs"]
mod list;
#[path = "informers/property.rs"]
mod property;
#[path = "informers/protobuf.rs"]
mod protobuf;
#[path = "informers/script.rs"]
mod script;
#[path = "informers/watch.rs"]
mod watch;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::InformerBuilder;

fn form(builder: InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> {
    builder.protobuf()
}
