//! The tests of `informers`, with informers that ask for protobuf. The scripts answer in what they are asked for; where a test
//! says what the bytes are (`bad_input`), that is JSON, as from a server that knows nothing else.
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
#[path = "informers/panics.rs"]
mod panics;
#[path = "informers/property.rs"]
mod property;
#[path = "informers/protobuf.rs"]
mod protobuf;
#[path = "informers/recovery.rs"]
mod recovery;
#[path = "informers/script.rs"]
mod script;
#[path = "informers/watch.rs"]
mod watch;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::InformerBuilder;

fn form(builder: InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> {
    builder.protobuf()
}
