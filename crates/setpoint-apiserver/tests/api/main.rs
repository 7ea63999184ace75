//! The server as clients see it: requests in, responses out, no socket between.

mod access;
mod apply;
mod audit;
mod authentication;
mod backup;
mod bad_input;
mod content;
mod create;
mod definitions;
mod delete;
mod guarantees;
mod kinds;
mod list;
mod openapi;
mod patch;
mod policies;
mod protobuf;
mod server;
mod strategic;
mod subresources;
mod support;
mod table;
mod update;
mod watch;
