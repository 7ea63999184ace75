//! A test for each lab, against a server in this process.

mod discovery_client;
mod dynamic_client;
mod informer;
mod informer_workqueue;
mod list_watch;
mod rest_client;
mod support;
mod typed_client;
