//! The server as clients see it: requests in, responses out, no socket between.

mod bad_input;
mod content;
mod create;
mod delete;
mod guarantees;
mod list;
mod patch;
mod server;
mod subresources;
mod support;
mod update;
mod watch;
