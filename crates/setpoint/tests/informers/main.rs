//! Informers against a scripted server, on paused time: each line of the contract as a test. This program tests
//! the usual form of a cache; `informers_compact`, `informers_eager` and `informers_protobuf` run the same tests on the others.
#![allow(missing_docs)]

mod bad_input;
mod factory;
mod handlers;
mod history;
mod in_process;
mod informer;
mod list;
mod panics;
mod property;
mod recovery;
mod script;
mod watch;

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::InformerBuilder;

fn form(builder: InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> {
    builder
}
