//! Informers against a scripted server, on paused time: each line of the contract as a test.
#![allow(missing_docs)]

mod bad_input;
mod factory;
mod handlers;
mod history;
mod in_process;
mod informer;
mod list;
mod property;
mod script;
mod watch;
